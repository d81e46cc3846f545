"""`tvmscope report` and the reports of `analyze`, as users get them."""

from __future__ import annotations

import json
import platform
import re
import subprocess
import sys
from pathlib import Path

import pytest
from onnx import helper

import tvmscope
from support import report_samples
from support.command import ENV, refuses, run, save_onnx
from tvmscope.core.session import save

SOURCE = str(Path(tvmscope.__file__).parents[1])
REPLACED = """
import sys
from importlib.abc import MetaPathFinder

REFUSED = {"tvm", "tvm_ffi", "torch", "torchvision", "transformers", "onnx", "onnxruntime",
           "onnxscript", "onnxslim", "openvino", "xgboost", "psutil", "cloudpickle", "tornado",
           "cpuinfo", "platformdirs", "jsonschema", "safetensors"}

class Refuse(MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in REFUSED:
            raise ModuleNotFoundError(name)

sys.meta_path.insert(0, Refuse())
from tvmscope.cli.main import main
code = main(sys.argv[1:])
assert not REFUSED & sys.modules.keys()
sys.exit(code)
"""


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    save(report_samples.profiled(), tmp_path / "session")
    return tmp_path / "session"


def test_a_file_beside_the_report_is_not_overwritten(saved: Path, tmp_path: Path) -> None:
    (tmp_path / "out-kernels.csv").write_text("mine")
    done = run("report", str(saved), "--format", "csv", "-o", "out.csv", cwd=tmp_path)
    refuses(done, 2, "out-kernels.csv", "--force")
    assert (tmp_path / "out-kernels.csv").read_text() == "mine"
    assert not (tmp_path / "out.csv").exists()
    run("report", str(saved), "--format", "csv", "-o", "out.csv", "--force", cwd=tmp_path)
    assert (tmp_path / "out-kernels.csv").read_text() != "mine"


@pytest.mark.parametrize(
    ("form", "start"),
    [
        ("html", "<!doctype html>"), ("markdown", "## resnet50"), ("json", "{"), ("svg", "<svg"),
        ("csv", "model,backend"), ("trace", "{"), ("google-benchmark", "{"),
        ("model-explorer", "{"), ("console", "resnet50"),
    ],
)  # fmt: skip
def test_every_format_needs_only_the_libraries_of_reports(
    saved: Path, form: str, start: str
) -> None:
    done = subprocess.run(
        [sys.executable, "-c", REPLACED, "report", str(saved), "--format", form],
        capture_output=True, text=True, check=False, env=ENV | {"PYTHONPATH": SOURCE},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(start)


def test_files_are_written_and_named(saved: Path) -> None:
    done = run("report", "session", "-o", "out/x.md", cwd=saved.parent)
    assert done.returncode == 0
    assert done.stdout == ""
    assert "beside it: out/figures/x-roofline.svg" in done.stderr
    assert (saved.parent / "out/figures/x-roofline.svg").exists()
    again = run("report", "session", "-o", "out/x.md", cwd=saved.parent)
    refuses(again, 2, "out/x.md exists", "--force")


def test_format_wins_over_the_file_name(saved: Path) -> None:
    done = run("report", "session", "-f", "trace", "-o", "x.json", cwd=saved.parent)
    assert done.returncode == 0
    assert "traceEvents" in json.loads((saved.parent / "x.json").read_text())


def test_an_unknown_format_lists_those_there_are(saved: Path) -> None:
    refuses(run("report", str(saved), "--format", "pdf"), 2, "html", "model-explorer", "trace")


def test_an_older_schema_is_refused_clearly(saved: Path) -> None:
    file = saved / "session.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | {"schema_version": 0}))
    refuses(run("report", str(saved), "--format", "html"), 1, "session schema 0 is none of 1 and 2")


@pytest.mark.parametrize("redact", [False, True])
def test_analyze_writes_its_reports_and_says_where(tmp_path: Path, redact: bool) -> None:
    save_onnx(tmp_path / "relu.onnx", helper.make_node("Relu", ["x"], ["y"], name="n0"))
    flags = ["--backends", "onnxruntime", "--target", "cpu", "--iterations", "1", "--warmup", "0"]
    model = str(tmp_path / "relu.onnx")
    more = ["--redact"] if redact else []
    done = run("analyze", model, *flags, *more, "-o", "out", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "report: out/report.html" in done.stderr
    assert "report: out/report.md" in done.stderr
    files = [tmp_path / "out" / n for n in ("report.html", "report.md")]
    files += sorted((tmp_path / "out/figures").iterdir())
    assert "report-backends.svg" in [f.name for f in files]
    texts = [f.read_text(encoding="utf-8") for f in files]
    host = re.compile(rf"(?<![\w-]){re.escape(platform.node())}(?![\w-])")  # it may be `vm`
    assert bool([t for t in texts if host.search(t)]) != redact
    assert bool([t for t in texts if str(tmp_path) in t]) != redact
