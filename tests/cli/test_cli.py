"""The command, run as users run it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import tvmscope
from support import samples
from support.command import refuses, run
from tvmscope.core.session import save

SOURCE = str(Path(tvmscope.__file__).parents[1])
COMMANDS = (
    "doctor",
    "models",
    "compile",
    "run",
    "bench",
    "analyze",
    "report",
    "explain",
    "compare",
    "export",
    "db",
    "farm",
)


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    save(samples.complete(), tmp_path / "first")
    return tmp_path / "first"


def test_help_lists_the_commands() -> None:
    done = run("--help")
    assert done.returncode == 0
    assert all(name in done.stdout for name in COMMANDS)


def test_no_arguments_shows_help() -> None:
    assert run().stdout == run("--help").stdout


@pytest.mark.parametrize("command", COMMANDS)
def test_help_of_each_command(command: str) -> None:
    done = run(command, "--help")
    assert done.returncode == 0
    assert f"tvmscope {command}" in done.stdout


def test_flags_mean_the_same_for_all_that_measure() -> None:
    flags = ("--target", "--precision", "--threads", "--shapes", "--iterations", "--json", "--seed")
    for command in ("bench", "analyze"):
        shown = run(command, "--help").stdout
        assert all(f in shown for f in flags)


def test_version() -> None:
    assert run("--version").stdout == f"tvmscope {tvmscope.__version__}\n"


def test_help_imports_nothing_heavy() -> None:
    script = (
        "import sys\nfrom tvmscope.cli.main import main\n"
        "main(['--help']); main(['bench', '--help'])\n"
        "print('HEAVY', {'tvm', 'torch', 'numpy', 'onnx', 'jinja2'} & set(sys.modules))"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True,
        env={**os.environ, "PYTHONPATH": SOURCE},
    )  # fmt: skip
    assert "HEAVY set()" in done.stdout


def test_unknown_command() -> None:
    refuses(run("bnech"), 2, "bnech", "--help")


def test_unknown_flag() -> None:
    refuses(run("bench", "x.onnx", "--tread", "2"), 2, "--tread", "tvmscope bench --help")


@pytest.mark.parametrize(
    "args",
    [
        ("--shapes", "x:1x3xq"),
        ("--duration", "soon"),
        ("--duration", "0"),
        ("--precision", "int3"),
        ("--threads", "0"),
        ("--mode", "fast"),
        ("--percentile", "101"),
        ("--inputs", "nowhere.npz"),
    ],
)
def test_bad_value_is_a_usage_error(args: tuple[str, str]) -> None:
    refuses(run("bench", "resnet50", *args), 2)


def test_missing_model_argument() -> None:
    refuses(run("bench"), 2, "MODEL")


def test_report_of_a_missing_session(tmp_path: Path) -> None:
    refuses(run("report", str(tmp_path / "none")), 1, "no session at")


def test_report_of_a_broken_session(tmp_path: Path) -> None:
    (tmp_path / "session.json").write_text('{"schema_version": 1, "context": ')
    refuses(run("report", str(tmp_path)), 1, "cannot be read as a session")


def test_traceback_only_when_asked_for(tmp_path: Path) -> None:
    assert "Traceback" in run("report", str(tmp_path / "none"), "-v").stderr


def test_report_prints_the_table(saved: Path) -> None:
    done = run("report", str(saved))
    assert done.returncode == 0
    assert "tvmscope and openvino" in done.stdout


def test_report_round_trip(saved: Path, tmp_path: Path) -> None:
    assert (
        run("report", str(saved), "--format", "json", "-o", str(tmp_path / "b.json")).stderr == ""
    )
    again = run("report", str(tmp_path / "b.json"), "--json")
    assert json.loads(again.stdout) == json.loads((saved / "session.json").read_text())


def test_report_chooses_the_format_by_suffix_and_does_not_overwrite(
    saved: Path, tmp_path: Path
) -> None:
    file = str(tmp_path / "out.md")
    assert run("report", str(saved), "-o", file).returncode == 0
    assert Path(file).read_text().startswith("## resnet50")
    refuses(run("report", str(saved), "-o", file), 2, "--force")
    assert run("report", str(saved), "-o", file, "--force").returncode == 0


def test_report_redacts(saved: Path) -> None:
    assert "lab-7" in run("report", str(saved), "--json").stdout
    assert "lab-7" not in run("report", str(saved), "--json", "--redact").stdout


def test_report_of_several_sessions_has_a_summary(saved: Path, tmp_path: Path) -> None:
    save(samples.failed_model(), tmp_path / "second")
    done = run("report", str(saved), str(tmp_path / "second"))
    assert "against the best peer" in done.stdout


def test_report_works_without_tvm_and_torch(saved: Path) -> None:
    script = (
        "import sys\nfor m in ('tvm', 'torch', 'onnx', 'onnxruntime'): sys.modules[m] = None\n"
        "from tvmscope.cli.main import main\nsys.exit(main(sys.argv[1:]))"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, "report", str(saved)], capture_output=True, text=True,
        env={**os.environ, "PYTHONPATH": SOURCE}, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr


def test_models_can_be_piped() -> None:
    done = run("models")
    assert done.returncode == 0
    assert any(line.startswith("resnet50\t") for line in done.stdout.splitlines())
    assert {"name", "weights"} <= set(json.loads(run("models", "--json").stdout)[0])


def test_doctor_is_well_here() -> None:
    done = run("doctor", "--json", "--quiet")
    assert done.returncode == 0
    assert done.stderr == ""
    checks = {c["name"]: c["status"] for c in json.loads(done.stdout)["checks"]}
    assert checks["tvm"] == "ok"
    assert checks["host target"] == "ok"
