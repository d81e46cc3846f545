"""A farm on loopback: results are right, and neither bad kernels nor lost servers stop it."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import psutil
import pytest

from support import farm_kernels, tiny_tunables
from support.command import refuses, run
from support.farm_kernels import ARGS, Farm, eventually, kill_group, session_of
from tvmscope.core.tuning import Candidate, TuningTask
from tvmscope.errors import RunError, UsageError
from tvmscope.machine import cpu_features
from tvmscope.measure.remote import here
from tvmscope.measure.worker import run_isolated
from tvmscope.tuning.farm.remote import RemoteRunner
from tvmscope.tuning.farm.service import Ports, is_loopback, run_server
from tvmscope.tuning.farm.tracker import parse_address
from tvmscope.tuning.trials.builders import Builders
from tvmscope.tuning.trials.kernels import fill
from tvmscope.tuning.trials.workshop import Setting, Workshop

QUICK = {"seed": 1, "repeat": 2, "min_repeat_ms": 1.0, "timeout_s": 10.0}


@pytest.fixture(scope="module")
def kernels(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("kernels")
    return run_isolated(here(farm_kernels.build), folder)


@pytest.fixture(scope="module")
def farm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Farm]:
    with farm_kernels.farm(tmp_path_factory.mktemp("farm")) as made:
        made.server()
        yield made


@pytest.fixture(scope="module")
def runner(farm: Farm) -> Iterator[RemoteRunner]:
    with RemoteRunner(farm.address, "board", wait_s=30) as made:
        yield made


def test_a_kernel_is_measured_and_its_result_comes_back(
    runner: RemoteRunner, kernels: dict[str, Path]
) -> None:
    values = runner.measure(kernels["good"], ARGS, **QUICK)
    assert len(values) == 2
    assert all(0 < value < 1e-3 for value in values)
    (y,) = runner.outputs(kernels["good"], ARGS, seed=7)
    np.testing.assert_allclose(y, 2 * fill(ARGS, 7)[0] + 1, rtol=1e-6)


def test_a_server_tells_what_its_machine_is(runner: RemoteRunner) -> None:
    device = runner.device_info()
    assert device is not None
    assert device.cpu == cpu_features.model_name()
    assert device.threads == 1
    assert set(device.features) == cpu_features.reported()


def test_a_kernel_that_dies_or_hangs_costs_only_itself(
    runner: RemoteRunner, kernels: dict[str, Path], farm: Farm
) -> None:
    with pytest.raises(RunError, match="lost 2 times"):
        runner.measure(kernels["dies"], ARGS, **QUICK)
    with pytest.raises(RunError, match="took over 1 s"):
        runner.measure(kernels["hangs"], ARGS, **{**QUICK, "timeout_s": 1.0})
    assert runner.measure(kernels["good"], ARGS, **QUICK)
    assert "again" not in farm.said()  # the server itself has lived through it


def test_what_is_wrong_over_there_is_said(
    runner: RemoteRunner, kernels: dict[str, Path], tmp_path: Path
) -> None:
    with pytest.raises(RunError, match="no library"):
        runner.measure(tmp_path / "none.so", ARGS, **QUICK)
    (tmp_path / "bad.so").write_text("not a library")
    with pytest.raises(RunError, match=r"127\.0\.0\.1:\d+: .*(invalid ELF|too short|bad)"):
        runner.measure(tmp_path / "bad.so", ARGS, **QUICK)
    with pytest.raises(RunError, match=r"127\.0\.0\.1:\d+: "):
        runner.measure(kernels["good"], (*ARGS, ARGS[0]), **QUICK)


def test_a_search_on_the_farm_tries_the_same_candidates_and_checks_them(
    farm: Farm, task: TuningTask, setting: Setting, tmp_path: Path
) -> None:
    wrong = Candidate(params={"fault": "wrong"})
    candidates = (*task.candidates[:4], wrong)
    runner = RemoteRunner(farm.address, "board", wait_s=30)
    builders = Builders(1, tunables=tiny_tunables.TUNABLES)
    with Workshop(builders, runner, tmp_path, setting, take_turns=False) as workshop:
        found = {
            t.candidate.id: t.status for _, t in workshop.try_all([(task, c) for c in candidates])
        }
    assert found == {c.id: "wrong" if c is wrong else "ok" for c in candidates}


def test_a_killed_server_costs_a_try_and_a_new_one_is_taken_up(
    farm: Farm, kernels: dict[str, Path]
) -> None:
    servers, once = [farm.processes[1], farm.server()], {**QUICK, "repeat": 1}
    with RemoteRunner(farm.address, "board", wait_s=30) as runner, ThreadPoolExecutor(3) as pool:
        assert runner.slots == 3
        runs = [pool.submit(runner.measure, kernels["slow"], ARGS, **once) for _ in range(3)]
        group = eventually(lambda: session_of(servers[0]))
        kill_group(group)  # the server with its session; what watches it starts it again
        assert all(value > 0.69 for future in runs for value in future.result())
    assert "starting it again" in farm.said()
    eventually(lambda: farm.count("board") == 2)
    servers[0].kill()  # and now the whole command
    eventually(lambda: farm.count("board") == 1)
    farm.server()
    assert farm.count("board") == 2


@pytest.mark.slow  # servers look after their tracker every few seconds only
def test_a_restarted_tracker_is_waited_for_and_finds_its_servers(
    farm: Farm, runner: RemoteRunner, kernels: dict[str, Path]
) -> None:
    assert runner.measure(kernels["good"], ARGS, **QUICK)
    (tracker,) = psutil.Process(farm.processes[0].pid).children()
    kill_group(tracker.pid)
    tracker.wait(5)
    assert runner.measure(kernels["good"], ARGS, **QUICK)


def test_status_shows_keys_and_who_is_free(farm: Farm) -> None:
    eventually(lambda: farm.count("board"))
    done = run("farm", "status", "--tracker", f"127.0.0.1:{farm.port}", "--json")
    assert done.returncode == 0
    assert "board" in done.stderr
    assert '"waiting": 0' in done.stdout


def test_an_unknown_key_is_refused_with_those_that_are_there(farm: Farm) -> None:
    with pytest.raises(RunError, match="no server for key 'gpu'; keys it knows: board"):
        RemoteRunner(farm.address, "gpu")


def test_no_tracker_is_said_at_once() -> None:
    address = f"127.0.0.1:{farm_kernels.free_port()}"
    done = run("farm", "status", "--tracker", address)
    refuses(done, 1, f"no tracker at {address}", "tvmscope farm tracker")


def test_a_taken_port_is_an_error(tmp_path: Path, farm: Farm) -> None:
    port = str(farm.port)
    done = run("farm", "tracker", "--port", port, "--port-end", port, XDG_CACHE_HOME=str(tmp_path))
    assert done.returncode == 1
    assert f"no port of 127.0.0.1:{port} to {port} can be used" in done.stderr


@pytest.mark.parametrize(
    ("text", "address"),
    [("pi:9000", ("pi", 9000)), ("10.0.0.5", ("10.0.0.5", 9190)), ("[::1]:80", ("::1", 80))],
)
def test_addresses(text: str, address: tuple[str, int]) -> None:
    assert parse_address(text) == address


@pytest.mark.parametrize("text", ["", ":9000", "host:", "host:x", "host:99999"])
def test_what_is_no_address_is_refused(text: str) -> None:
    with pytest.raises(UsageError):
        parse_address(text)


def test_other_machines_are_warned_of() -> None:
    assert is_loopback("127.0.0.1")
    assert is_loopback("::1")
    assert not is_loopback("0.0.0.0")
    assert not is_loopback("my-laptop")


def test_a_server_that_nobody_could_reach_is_refused() -> None:
    ports = Ports(first=9090, last=9099)
    with pytest.raises(UsageError, match="give --host"):
        run_server(ports, print, address=("10.0.0.5", 9190), key="board")


def test_ctrl_c_ends_the_farm_and_leaves_no_process(farm: Farm) -> None:
    """The last one here: it ends the farm that the others use."""
    running = [process for process in farm.processes if process.poll() is None]
    family = [c for p in running for c in psutil.Process(p.pid).children(recursive=True)]
    assert len(family) >= len(running) > 1
    farm.close()
    assert [process.returncode for process in running] == [0] * len(running)
    _, alive = psutil.wait_procs(family, timeout=5)
    assert not alive
