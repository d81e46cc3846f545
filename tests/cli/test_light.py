"""A bare installation shows, compares and keeps; every other command says what to install."""

from __future__ import annotations

from pathlib import Path

import pytest

from support import samples
from support.command import save_onnx
from support.light import ALL, run_all
from tvmscope.cli.command import Family
from tvmscope.core.session import save
from tvmscope.plugins import discover
from tvmscope.report.renderers import renderers

FORBIDDEN = set(ALL)
NEEDS_TVM = {
    "ablate": ("ablate", "resnet50"),
    "analyze": ("analyze", "resnet50"),
    "bench": ("bench", "resnet50"),
    "bisect": ("bisect", "m.onnx"),
    "compile": ("compile", "resnet50", "-o", "a"),
    "export": ("export", "resnet50", "-o", "x.onnx"),
    "lab": ("lab", "mine.py"),
    "learn": ("learn", "split"),
    "profile": ("profile", "resnet50"),
    "run": ("run", "artifact"),
    "suite": ("suite", "resnet50"),
    "tune": ("tune", "resnet50"),
}
SOMETIMES = [
    ("doctor", "--smoke"),
    ("doctor", "--roofs"),
    ("db", "export", "--metaschedule", "folder"),
    ("farm", "tracker"),
    ("farm", "server", "--key", "here"),
    ("compare", "old", "new"),
]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name in ("first", "second"):
        save(samples.complete(), tmp_path / name)
    for name in ("old", "new"):  # as far as a reader without TVM can tell, artifacts
        (tmp_path / name).mkdir()
        (tmp_path / name / "meta.json").write_text("{}")
    return tmp_path


def test_results_are_shown_without_any_extra(folder: Path) -> None:
    light = [
        ("--help",),
        ("doctor",),
        ("models",),
        ("db", "list"),
        ("db", "verify"),
        ("db", "export", "-o", "records.jsonl"),
        ("db", "merge", "records.jsonl", "-o", "merged.jsonl"),
        ("compare", "first", "second"),
        ("explain", "first"),
        *(("report", "first", "--format", name, "-o", f"r-{name}") for name in sorted(renderers())),
    ]
    done, modules = run_all(light, folder)
    assert [(args, d.code, d.stderr) for args, d in zip(light, done, strict=True) if d.code] == []
    assert not modules & FORBIDDEN
    assert "pip install 'tvmscope[tvm]'" in done[1].stderr


def test_commands_that_need_an_extra_say_so_in_one_line(folder: Path) -> None:
    commands, _ = discover("tvmscope.cli.commands", "COMMAND")
    needing = {n for n, c in commands.items() if not isinstance(c, Family) and c.needs}
    assert needing == set(NEEDS_TVM)
    asked = [*NEEDS_TVM.values(), *SOMETIMES]
    done, modules = run_all(asked, folder)
    for args, each in zip(asked, done, strict=True):
        assert (each.code, each.stdout) == (5, ""), args
        assert each.stderr.startswith("error: "), args
        assert each.stderr.count("\n") == 1, args
        assert "pip install 'tvmscope[tvm]'" in each.stderr, args
    assert not modules & FORBIDDEN


def test_models_and_backends_name_their_own_extra(folder: Path, net: Path) -> None:
    from onnx import helper

    shape = helper.make_node("Shape", ["x"], ["s"])  # such arithmetic is what onnxslim is for
    reshape = helper.make_node("Reshape", ["x", "s"], ["y"])
    model = str(save_onnx(folder / "m.onnx", shape, reshape))
    quick = ("--target", "cpu", "--iterations", "2", "--warmup", "0")
    asked = {
        ("compile", str(net), "--target", "cpu", "-o", "a"): "torch",
        ("compile", model, "--target", "cpu", "-o", "b"): "tvm",
        ("bench", model, "--backends", "openvino", "-o", "s", *quick): "openvino",
        ("bench", model, "--backends", "tvmscope", "-o", "t", *quick): "tvm",
    }
    done, _ = run_all(list(asked), folder, {"torch", "onnxslim", "openvino"})
    for (args, extra), each in zip(asked.items(), done, strict=True):
        assert (each.code, each.stdout) == (5, ""), (args, each.stderr)
        assert f"pip install 'tvmscope[{extra}]'" in each.stderr
