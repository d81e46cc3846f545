"""The scripts that check a GPU machine, as far as a machine without one can run them."""

from __future__ import annotations

import ctypes
import json
import shlex
import sys
import tarfile
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from support.profiles import kernel, profile
from tvmscope.cli.main import main
from tvmscope.core.profile import DeviceTimes
from tvmscope.cuda.binding import bind
from tvmscope.cuda.candidates import read_candidates
from tvmscope.cuda.config import Config
from tvmscope.cuda.cubins.compile_pool import Failure
from tvmscope.cuda.cubins.compiled_kernel import CompiledKernel
from tvmscope.cuda.library import convolution
from tvmscope.cuda.library.call import LibraryCall
from tvmscope.cuda.library.convolution import ConvolutionCall
from tvmscope.cuda.packing import pack_weight
from tvmscope.cuda.reference import norm_sum, output_values, reference
from tvmscope.cuda.units import Conv2d, Epilogue, Matmul, Norm, Unit, View
from tvmscope.errors import RunError

SCRIPTS = Path(__file__).resolve().parents[2] / "scripts"
CONV = Conv2d(
    dtype="bfloat16", n=1, h=5, w=4, c=3, oc=5, r=2, s=3, padding=(1, 1, 1, 1),
    epilogue=Epilogue(bias=True, activation="relu"), output=View(pitch=9, offset=2),
)  # fmt: skip


@pytest.fixture
def odd(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(SCRIPTS))
    import cuda_odd

    return cuda_odd


@pytest.fixture
def gpu_check(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(SCRIPTS))
    import gpu_check

    return gpu_check


class Device:
    """A driver whose memory is this process's, and whose kernels compute the reference."""

    def __init__(
        self, odd: ModuleType, unit: Unit, kernel: CompiledKernel | LibraryCall, fault: str = ""
    ) -> None:
        self.odd, self.unit, self.kernel, self.fault = odd, unit, kernel, fault
        self.arguments = bind(unit, kernel.config).arguments
        self.held: dict[int, Any] = {}
        self.launches = 0
        self.recorded: list[str] = []

    def call(self, name: str, *args: Any) -> None:
        getattr(self, name)(*args)

    def cuMemAlloc_v2(self, out: Any, size: Any) -> None:  # noqa: N802 - the driver's names
        memory = ctypes.create_string_buffer(size.value)
        out._obj.value = ctypes.addressof(memory)
        self.held[ctypes.addressof(memory)] = memory

    def cuMemFree_v2(self, pointer: Any) -> None:  # noqa: N802
        del self.held[pointer.value]

    def cuMemsetD8_v2(self, pointer: Any, value: Any, size: Any) -> None:  # noqa: N802
        ctypes.memset(pointer.value, value.value, size.value)

    def cuMemcpyHtoD_v2(self, pointer: Any, data: bytes, size: Any) -> None:  # noqa: N802
        ctypes.memmove(pointer.value, data, size.value)

    def cuMemcpyDtoH_v2(self, data: Any, pointer: Any, size: Any) -> None:  # noqa: N802
        ctypes.memmove(data, pointer.value, size.value)

    def cuCtxSynchronize(self) -> None:  # noqa: N802
        pass

    def __getattr__(self, name: str) -> Any:
        if not name.startswith(("cuStream", "cuGraph")):
            raise AttributeError(name)
        return lambda *_: self.recorded.append(name)

    def close(self) -> None:
        pass

    def launch(self, pointers: list[int], stream: int = 0) -> None:
        self.launches += 1
        if self.fault == "nothing":
            return
        places = dict(zip((t.role for t in self.arguments), pointers, strict=False))
        given = self._given(places)
        (out,) = (t for t in self.arguments if t.role == "output")
        memory = (ctypes.c_char * out.size_bytes).from_address(places["output"])
        buffer = self.odd.from_bytes(bytes(memory), out.dtype).reshape(out.shape)
        values = output_values(self.unit, buffer)
        values[...] = reference(self.unit, given).reshape(values.shape)
        if self.fault == "around":
            buffer.reshape(-1)[0] = 1.0
        if self.fault == "wrong":
            values[(-1,) * values.ndim] += 1.0
        if self.fault == "bits":
            values[(-1,) * values.ndim] += self.launches
        raw = self.odd.to_bytes(buffer, out.dtype)
        ctypes.memmove(places["output"], raw, len(raw))

    def _given(self, places: dict[str, int]) -> dict[str, Any]:
        given = {}
        for tensor in self.arguments:
            if tensor.role in self.odd.OWN:
                continue
            data = (ctypes.c_char * tensor.size_bytes).from_address(places[tensor.role])
            values = self.odd.from_bytes(bytes(data), tensor.dtype)
            if tensor.role == "weight":
                rows = self.unit.tensor("weight").shape  # type: ignore[union-attr]
                packed = pack_weight(
                    self.unit, self.kernel.config, np.arange(values.size).reshape(rows)
                )
                plain = np.empty_like(values)
                plain[packed.reshape(-1).astype(int)] = values
                values = plain.reshape(rows)
            given[tensor.role] = values.reshape(
                self.unit.tensor(tensor.role).shape  # type: ignore[union-attr]
            )
        return given


def kernel_of(unit: Unit, config: Config) -> CompiledKernel:
    binding = bind(unit, config)
    return CompiledKernel(
        unit_key=unit.key, config=config, arch="sm_90", name="k", cubin=b"", grid=binding.grid,
        threads=128, shared_bytes=0, registers=1, local_bytes=0, arguments=binding.arguments,
        hidden_pointers=2, triton="3.6",
    )  # fmt: skip


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        ("", ""),
        ("nothing", "not written"),
        ("wrong", "error"),
        ("around", "around the view"),
        ("bits", "different bits"),
    ],
)
@pytest.mark.parametrize("layout", ["kn", "nk"])
def test_what_a_kernel_does_wrong_is_seen(
    fault: str, words: str, layout: Any, odd: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    kernel = kernel_of(CONV, Config(template="conv2d", m=16, n=16, k=16, split=1, layout=layout))
    device = Device(odd, CONV, kernel, fault)
    monkeypatch.setattr(odd, "driver", device)
    monkeypatch.setattr(odd, "load_kernel", lambda _: device)
    found = odd.check(CONV, kernel, seed=1)
    assert words in found
    assert bool(words) == bool(found)
    assert device.launches == 3
    assert not device.held, "memory was not given back"


@pytest.mark.parametrize("fault", ["", "bits"])
def test_calls_of_libraries_are_checked_and_recorded_in_a_graph(
    fault: str, odd: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    unit = replace(CONV, output=View())
    call = convolution.call_of(unit, convolution.config(1))
    device = Device(odd, unit, call, fault)
    monkeypatch.setattr(odd, "driver", device)
    monkeypatch.setattr(odd, "load_kernel", lambda _: device)
    assert odd.check(unit, call, seed=1) == ("runs gave different bits" if fault else "")
    assert device.launches == 3
    assert device.recorded.index("cuStreamBeginCapture_v2") < device.recorded.index("cuGraphLaunch")


def test_a_library_that_proposes_fewer_is_no_problem_and_one_that_refuses_is(
    odd: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    unit = replace(CONV, output=View())
    calls = [convolution.call_of(unit, convolution.config(i)) for i in range(4)]
    fewer, larger = "cuDNN proposes 1 engines, not 2", "engine 2: its plan needs 9 bytes"
    words = ["cuDNN proposes 0 engines, not 1", fewer, larger, "says 5000"]

    def refuse(unit: Unit, call: ConvolutionCall, seed: int) -> str:
        raise RunError(words[call.algorithm])

    monkeypatch.setattr(odd, "check", refuse)
    monkeypatch.setattr(odd, "current_context", lambda: None)
    assert odd.check_all([(unit, call) for call in calls], tmp_path / "out.json", 60) == 1
    problems = json.loads((tmp_path / "out.json").read_text())["problems"]
    assert [p["reason"] for p in problems] == [words[0], words[3]]


def test_a_sum_that_a_norm_keeps_is_judged(odd: ModuleType) -> None:
    unit = Norm(dtype="float32", rows=3, columns=7, residual=True, keep_sum=True)
    given = odd.draw(unit, 0)
    (tensor,) = (t for t in unit.tensors if t.role == "sum")
    right = {"sum": odd.to_bytes(norm_sum(unit, given), tensor.dtype)}
    assert odd.judge_sums(unit, [tensor], right, given) == ""
    wrong = {"sum": b"\xff" * tensor.size_bytes}
    assert "error" in odd.judge_sums(unit, [tensor], wrong, given)


def test_bfloat16_is_rounded_to_even(odd: ModuleType) -> None:
    import torch

    values = np.random.default_rng(0).standard_normal(1000).astype(np.float32)
    wanted = torch.from_numpy(values).to(torch.bfloat16).float().numpy()
    found = odd.from_bytes(odd.to_bytes(values, "bfloat16"), "bfloat16")
    np.testing.assert_array_equal(found, wanted)
    assert np.isnan(odd.from_bytes(b"\xff" * 4, "bfloat16")).all()
    assert np.isnan(odd.from_bytes(b"\xff" * 4, "float16")).all()


@pytest.mark.parametrize("arch", ["sm_80", "sm_90"])
def test_every_template_type_and_launch_is_drawn(odd: ModuleType, arch: str) -> None:
    pairs = list(odd.drawn(6, arch))
    templates = {config.template for _, config in pairs}
    wanted = {"conv2d", "matmul", "matvec", "depthwise", "pool", "attention", "norm", "softmax"}
    assert wanted <= templates
    assert ("persistent" in templates) == (arch == "sm_90")
    assert {c.pdl for _, c in pairs} == ({0, 1, 2} if arch == "sm_90" else {0})
    kinds = {odd.tolerance_key(unit) for unit, _ in pairs}
    assert kinds == set(odd.TOLERANCE)


def test_a_folder_of_kernels_is_prepared(
    odd: ModuleType, triton: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    unit = Matmul(dtype="float16", m=7, n=18, k=33)
    config = Config(template="matmul", m=16, n=16, k=16)
    monkeypatch.setattr(odd, "drawn", lambda count, arch: iter([(unit, config), (unit, config)]))
    assert odd.prepare(tmp_path / "plan", 1, "sm_90") == 0
    (candidate,) = read_candidates(tmp_path / "plan")
    assert not isinstance(candidate.kernel, Failure)
    assert candidate.unit == unit


def test_parts_end_in_time_and_leave_a_summary(
    gpu_check: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    work = gpu_check.work_in(tmp_path, tmp_path)
    python = sys.executable

    def part(code: str) -> Any:
        return lambda _work: [python, "-c", code]

    parts = {
        "good": (30, part("print('RACECHECK SUMMARY: 0 hazards displayed')")),
        "bad": (30, part("print('3 failed, 2 passed'); raise SystemExit(2)")),
        "slow": (0.5, part("import time; time.sleep(60)")),
        "absent": (30, lambda _work: "no tool here"),
    }
    monkeypatch.setattr(gpu_check, "PARTS", parts)
    assert gpu_check.check(list(gpu_check.PARTS), work, {"good": 20.0}) == 1
    found = {o["part"]: o for o in json.loads((tmp_path / "summary.json").read_text())}
    assert {p: o["status"] for p, o in found.items()} == {
        "good": "ok", "bad": "failed", "slow": "timeout", "absent": "unavailable",
    }  # fmt: skip
    assert found["good"]["said"] == "RACECHECK SUMMARY: 0 hazards displayed"
    assert found["bad"]["said"].startswith("3 failed")
    assert found["slow"]["seconds"] < 20
    assert (tmp_path / "bad.log").is_file()


def test_the_commands_name_what_is_there(gpu_check: ModuleType, tmp_path: Path) -> None:
    work = gpu_check.work_in(tmp_path, tmp_path)
    (tmp_path / "session").mkdir()
    (tmp_path / "session" / "session.json").touch()
    for name in gpu_check.PARTS.keys() - {"memcheck", "synccheck", "racecheck"}:
        command = gpu_check.PARTS[name][1](work)
        scripts = [Path(word) for word in command if word.endswith((".py", ".sh"))]
        assert all(script.is_file() for script in scripts)
    assert str(SCRIPTS / "gpu_tests.py") in gpu_check.PARTS["tests"][1](work)


def test_files_of_gpu_tests_run_side_by_side_and_what_is_cut_off_is_said(
    gpu_check: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    import gpu_tests

    marked = "import pytest, time\npytestmark = pytest.mark.gpu\n"
    bodies = {
        "good": "def test_one(): pass\ndef test_two(): pass\n",
        "bad": "def test_one(): assert 'wrong' == 'right'\n",
        "slow": "def test_one(): pass\ndef test_two(): time.sleep(60)\n",
    }
    for name, body in bodies.items():
        (tmp_path / f"test_{name}.py").write_text(marked + body)
    monkeypatch.setattr(gpu_tests, "FOLDER", tmp_path)
    monkeypatch.setattr(gpu_tests, "ROOT", tmp_path)
    monkeypatch.setattr(sys, "argv", ["gpu_tests.py", "-o", str(tmp_path), "--limit-s", "12"])
    assert gpu_tests.main() == 1
    said = capsys.readouterr().out
    assert "test_slow: 1 passed, 1 cut off" in said
    assert "'wrong' == 'right'" in said
    assert said.splitlines()[-1] == "3 passed, 1 failed, 0 skipped, 1 cut off"
    monkeypatch.setattr(sys, "argv", [*sys.argv, "--only", "good"])
    assert gpu_tests.main() == 0
    monkeypatch.setattr(gpu_tests, "ALONE", ("good",))
    for which, there in (("alone", True), ("shared", False)):
        monkeypatch.setattr(sys, "argv", [*sys.argv[:-2], "--only", "good", "--which", which])
        assert gpu_tests.main() == 0
        assert ("test_good: 2 passed" in capsys.readouterr().out) == there
    (tmp_path / "test_crash.py").write_text(f"{marked}import os\nos._exit(4)\n")
    monkeypatch.setattr(sys, "argv", [*sys.argv[:3], "--only", "crash"])
    assert gpu_tests.main() == 1


def test_each_command_of_tvmscope_is_understood(
    gpu_check: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """An unknown option would be seen on the GPU machine only, where minutes are counted."""
    work = gpu_check.work_in(tmp_path, tmp_path)
    commands = [gpu_check.PARTS[name][1](work) for name in ("tune", "ablate", "session")]
    commands.append(gpu_check.artifact("resnet50", tmp_path / "a", "cuda"))
    for command in commands:
        words = command[command.index("tvmscope") + 1 :]
        assert main([*words, "--help"]) == 0, capsys.readouterr().err
        assert main([*words, "--no-such-option", "--help"]) == 2


def test_four_calls_of_nine_minutes_have_every_part_once(
    gpu_check: ModuleType, tmp_path: Path
) -> None:
    work = gpu_check.work_in(tmp_path, tmp_path)
    commands = {name: part(work) for name, (_, part) in gpu_check.PARTS.items()}
    named = [part for parts in gpu_check.CALLS.values() for part in parts]
    for command in [commands[name] for name in named]:
        for option, given in pairwise(command):
            if option == "--beside":
                words = shlex.split(given)
                named += words[words.index("--only") + 1].split(",")
    assert sorted(named) == sorted(gpu_check.PARTS.keys() - {"doctor", "models", "tests"})
    for parts in gpu_check.CALLS.values():
        assert sum(gpu_check.PARTS[part][0] for part in parts) <= 540


def test_without_a_device_each_part_says_so(
    gpu_check: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    def missing(_name: str) -> Any:
        raise OSError("libcuda.so.1: cannot open shared object file")

    monkeypatch.setattr(gpu_check.ctypes, "CDLL", missing)
    monkeypatch.setattr(sys, "argv", ["gpu_check.py", "--call", "3", "-o", str(tmp_path)])
    assert gpu_check.main() == 0
    said = capsys.readouterr().out.splitlines()
    assert len(said) == len(gpu_check.CALLS["3"])
    assert all("unavailable" in line and "no CUDA device" in line for line in said)


@pytest.mark.parametrize("part", ["models-tests", "models-checks"])
def test_what_runs_beside_models_is_understood(
    part: str, gpu_check: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    monkeypatch.setattr(gpu_check, "gpu_problem", lambda: "no GPU today")
    command = gpu_check.PARTS[part][1](gpu_check.work_in(tmp_path, tmp_path))
    monkeypatch.setattr(sys, "argv", shlex.split(command[command.index("--beside") + 1])[1:])
    assert gpu_check.main() == 0
    assert "no GPU today" in capsys.readouterr().out


def test_the_budget_ends_parts_and_leaves_out_the_rest(
    gpu_check: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    command = [sys.executable, "-c", "import time; time.sleep(60)"]
    parts = {"slow": (30, lambda _: command), "late": (30, lambda _: command)}
    monkeypatch.setattr(gpu_check, "PARTS", parts)
    monkeypatch.setattr(gpu_check, "LEAST_S", 0.5)
    assert gpu_check.check(["slow", "late"], gpu_check.work_in(tmp_path, tmp_path), {}, 1.0) == 1
    found = {o["part"]: o["status"] for o in json.loads((tmp_path / "summary.json").read_text())}
    assert found == {"slow": "timeout", "late": "skipped"}


def test_the_last_part_has_all_the_time_that_is_left_and_small_results_are_packed(
    gpu_check: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    command = [sys.executable, "-c", "import time; time.sleep(1.5); print('done')"]
    monkeypatch.setattr(gpu_check, "PARTS", {"last": (0.5, lambda _: command)})
    out, archive = tmp_path / "out", tmp_path / "results.tar.xz"
    out.mkdir()
    (out / "large.bin").write_bytes(bytes(gpu_check.PACKED_BYTES + 1))
    work = gpu_check.work_in(out, out)
    assert gpu_check.check(["last"], work, {}, 60.0, archive=archive) == 0
    with tarfile.open(archive) as tar:
        assert sorted(tar.getnames()) == ["last.log", "summary.json"]


def test_kernels_that_there_was_no_time_for_are_no_failure(
    gpu_check: ModuleType, tmp_path: Path
) -> None:
    script = tmp_path / "cuda_odd.py"
    script.write_text(f"raise SystemExit({gpu_check.OUT_OF_TIME})")
    work = gpu_check.work_in(tmp_path, tmp_path)
    command = [sys.executable, str(script)]
    assert gpu_check.attempt("odd", command, 30, work).status == "partly"
    command = [sys.executable, "-c", f"raise SystemExit({gpu_check.OUT_OF_TIME})"]
    assert gpu_check.attempt("tune", command, 30, work).status == "failed"


def test_what_was_not_brought_is_made(gpu_check: ModuleType, tmp_path: Path) -> None:
    work = gpu_check.work_in(tmp_path / "out", tmp_path / "brought")
    assert "--prepare" in gpu_check.PARTS["same-bits"][1](work)
    assert gpu_check.missing("same-bits", work) == []
    assert [name for name, _ in gpu_check.missing("repeat", work)] == ["compile"]
    assert [name for name, _ in gpu_check.missing("racecheck", work)] == ["odd-kernels"]
    for folder in (work.plan, work.artifact, work.file_artifact):
        folder.mkdir(parents=True)
    assert [name for name, _ in gpu_check.missing("same-bits", work)] == ["build"]
    assert gpu_check.missing("racecheck", work) == gpu_check.missing("repeat", work) == []


@pytest.mark.parametrize(
    ("second", "words"),
    [
        ([["a", "a"], ["b", "b"]], ""),
        ([["a", "a"], ["b", "c"]], "second: one input gave several results; the outputs differ"),
        ([["a", "a"], ["c", "c"]], "the outputs differ"),
        ("error: no GPU", "second: error: no GPU"),
    ],
)
def test_outputs_of_two_artifacts_are_compared(
    second: Any, words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(SCRIPTS))
    import same_bits

    assert "; ".join(same_bits.problems([[["a", "a"], ["b", "b"]], second])) == words
    assert same_bits.problems([[["a"], ["a"]]] * 2) == [
        "two inputs gave the same result: a run computed nothing"
    ]


def test_sums_that_are_not_the_run_are_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(SCRIPTS))
    import session_sums

    times = DeviceTimes(launches=2, gap_s=2e-3, edge_s=1e-3, overlap_s=1e-3)
    good = replace(
        profile("tvmscope", kernel("a", 4e-3, "a"), kernel("b", 4e-3, "b")),
        device=times, profiled_s=10e-3, end_to_end_s=8e-3,
    )  # fmt: skip
    row = session_sums.row(good)
    assert row["ratio"] == pytest.approx(1.0)
    assert row["tracing"] == pytest.approx(1.25)
    assert session_sums.problems([row], 0.03) == []
    off = session_sums.row(replace(good, profiled_s=10.5e-3))
    assert session_sums.problems([row, off], 0.03) == [f"{off['row']} is off by -4.8%"]
    assert session_sums.problems([], 0.03)
