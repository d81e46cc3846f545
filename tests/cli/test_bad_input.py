"""Bad files and artifacts that cannot run here: one line that says what to do, nothing lost."""

from __future__ import annotations

import json
import platform
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import helper, numpy_helper

from support import onnx_nets
from support.command import TORCH_NET, refuses, run, save_onnx
from tvmscope.storage.files import digest_file

UNSUPPORTED = """
import torch

class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.first = torch.nn.Linear(8, 8)

    def forward(self, x):
        return torch.special.i0(torch.special.i0(self.first(x))) + torch.igamma(x.abs(), x.abs())

def get_inputs():
    return [torch.randn(2, 8)]
"""


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An artifact of a small network for this machine."""
    folder = tmp_path_factory.mktemp("built")
    onnx_nets.classifier(folder / "net.onnx")
    done = run("compile", "net.onnx", "-o", "net.artifact", "--target", "cpu", "-q", cwd=folder)
    assert done.returncode == 0, done.stderr
    return folder / "net.artifact"


@pytest.fixture
def artifact(built: Path, tmp_path: Path) -> Path:
    """A copy that a test may damage."""
    return Path(shutil.copytree(built, tmp_path / "a.artifact"))


def change_meta(artifact: Path, change: Callable[[dict[str, Any]], None]) -> None:
    file = artifact / "meta.json"
    meta = json.loads(file.read_text())
    change(meta)
    file.write_text(json.dumps(meta))


def test_the_artifact_runs_when_nothing_is_wrong(artifact: Path, tmp_path: Path) -> None:
    outputs = tmp_path / "out.npz"
    done = run(
        "run", str(artifact), "--iterations", "2", "--save-outputs", str(outputs), "--json", "-q"
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert json.loads(done.stdout)["results"][0]["status"] == "ok"
    with np.load(outputs) as arrays:
        assert arrays["output_0"].shape == (1, 5)


# ---- models -------------------------------------------------------------------------------------


@pytest.fixture
def relu(tmp_path: Path) -> Path:
    return save_onnx(tmp_path / "relu.onnx", helper.make_node("Relu", ["x"], ["y"]))


@pytest.mark.parametrize("command", ["compile", "bench", "analyze"])
def test_truncated_onnx(command: str, relu: Path, tmp_path: Path) -> None:
    relu.write_bytes(relu.read_bytes()[:-20])
    done = run(command, str(relu), "-q", "-o", "out", cwd=tmp_path)
    refuses(done, 1, "relu.onnx", "truncated", "export or download it again")
    assert not (tmp_path / "out").exists()


def test_the_error_is_the_last_line_after_the_progress(relu: Path) -> None:
    relu.write_bytes(relu.read_bytes()[:-20])
    *before, last = run("compile", str(relu)).stderr.splitlines()
    assert before == [f"[0 s] load: {relu}"]
    assert last.startswith("error: ")


@pytest.mark.parametrize(
    ("shape", "words"),
    [
        ("x:1x9", ("'x' is 1x8", "1x9 does not fit", "this node forbids it", "MatMul")),
        ("x:8", ("'x' is 1x8", "8 does not fit", "give 2 dimensions")),
        ("y:1x8", ("no input 'y'", "inputs: x")),
    ],
)
def test_wrong_shape_of_an_onnx_model(shape: str, words: tuple[str, ...], tmp_path: Path) -> None:
    weights = numpy_helper.from_array(np.ones((8, 8), np.float32))
    file = save_onnx(
        tmp_path / "dense.onnx",
        helper.make_node("Constant", [], ["w"], value=weights),
        helper.make_node("MatMul", ["x", "w"], ["y"], name="first"),
    )
    refuses(run("compile", str(file), "-q", "--shapes", shape, cwd=tmp_path), 2, *words)
    assert not (tmp_path / "dense.artifact").exists()


def test_a_static_input_takes_another_shape_where_the_graph_allows_it(
    relu: Path, tmp_path: Path
) -> None:
    done = run("compile", str(relu), "-q", "--shapes", "x:1x9", cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    meta = json.loads((tmp_path / "relu.artifact" / "meta.json").read_text())
    assert meta["inputs"][0]["shape"] == [1, 9]


def test_wrong_shape_of_a_torch_model(tmp_path: Path) -> None:
    (tmp_path / "net.py").write_text(TORCH_NET)
    done = run("compile", "net.py", "-q", "--shapes", "x:1x4x12x10", cwd=tmp_path)
    refuses(done, 2, "fails in PyTorch on x (1, 4, 12, 10)", "check --shapes")


def test_every_operator_of_an_unknown_domain_is_named(tmp_path: Path) -> None:
    file = save_onnx(
        tmp_path / "custom.onnx",
        helper.make_node("Twist", ["x"], ["a"], name="t1", domain="my.ops"),
        helper.make_node("Twist", ["a"], ["b"], name="t2", domain="my.ops"),
        helper.make_node("Fold", ["b"], ["y"], name="f1", domain="my.ops"),
    )
    done = run("compile", str(file), "-q", cwd=tmp_path)
    words = ("my.ops.Twist x2 (first at node 't1')", "my.ops.Fold x1 (first at node 'f1')")
    refuses(done, 1, *words, "export it with standard operators")


def test_operators_that_only_onnx_runtime_has_are_named(tmp_path: Path) -> None:
    file = save_onnx(
        tmp_path / "gelu.onnx",
        helper.make_node("Gelu", ["x"], ["a"], name="g1", domain="com.microsoft"),
        helper.make_node("Gelu", ["a"], ["y"], name="g2", domain="com.microsoft"),
    )
    done = run("compile", str(file), "--no-fallback", "-q", cwd=tmp_path)
    refuses(done, 1, "com.microsoft.Gelu x2 (first at node 'g1')", "--backends")


def test_unsupported_torch_operators_are_named(tmp_path: Path) -> None:
    (tmp_path / "strange.py").write_text(UNSUPPORTED)
    done = run("compile", "strange.py", "-q", "--no-fallback", cwd=tmp_path)
    refuses(done, 1, "i0.default x2 (first at ", "igamma.default x1 (first at ", "--backends")
    assert not (tmp_path / "strange.artifact").exists()


def test_missing_input_of_a_model(relu: Path, tmp_path: Path) -> None:
    np.savez(tmp_path / "in.npz", z=np.zeros((1, 8), np.float32))
    done = run("compile", str(relu), "--inputs", "in.npz", "-q", cwd=tmp_path)
    refuses(done, 2, "no input 'z'", "inputs: x")
    np.savez(tmp_path / "empty.npz")
    done = run("compile", str(relu), "--inputs", "empty.npz", "-q", cwd=tmp_path)
    refuses(done, 2, "lacks the input 'x'")


# ---- artifacts ----------------------------------------------------------------------------------


def test_missing_input_of_an_artifact(artifact: Path, tmp_path: Path) -> None:
    np.savez(tmp_path / "in.npz", z=np.zeros((1, 3, 12, 10), np.float32))
    done = run("run", str(artifact), "--inputs", str(tmp_path / "in.npz"), "-q")
    refuses(done, 2, "missing x", "the model takes: x")


def test_input_of_another_shape(artifact: Path, tmp_path: Path) -> None:
    np.savez(tmp_path / "in.npz", x=np.zeros((1, 3, 12, 11), np.float32))
    done = run("run", str(artifact), "--inputs", str(tmp_path / "in.npz"), "-q")
    refuses(done, 2, "must be float32[1, 3, 12, 10]", "got float32[1, 3, 12, 11]")


def test_corrupted_library(artifact: Path) -> None:
    library = artifact / "model.so"
    data = bytearray(library.read_bytes())
    for place in range(len(data) // 2, len(data) // 2 + 64):
        data[place] ^= 0xFF
    library.write_bytes(data)
    refuses(run("run", str(artifact), "-q"), 1, "model.so is corrupted", "compile the model again")


def test_truncated_library(artifact: Path) -> None:
    library = artifact / "model.so"
    library.write_bytes(library.read_bytes()[:1000])
    refuses(run("run", str(artifact), "-q"), 1, "model.so is corrupted", "compile the model again")


def test_library_that_does_not_load_although_its_digest_fits(artifact: Path) -> None:
    library = artifact / "model.so"
    library.write_bytes(library.read_bytes()[:40])
    change_meta(artifact, lambda meta: meta.update(library_digest=digest_file(library)))
    done = run("run", str(artifact), "-q")
    refuses(done, 1, "model.so cannot be loaded", "compile the model again")


def test_missing_library(artifact: Path) -> None:
    (artifact / "model.so").unlink()
    refuses(run("run", str(artifact), "-q"), 1, "has no model.so", "compile the model again")


def test_meta_of_another_schema(artifact: Path) -> None:
    change_meta(artifact, lambda meta: meta.update(schema_version=99))
    done = run("run", str(artifact), "-q")
    refuses(done, 1, "artifact schema 99", "this tvmscope reads 2", "compile the model again")


@pytest.mark.parametrize(
    "text", ["{", "", "[1]", "null", '{"schema_version": 2}', '{"schema_version": 2, "model": 3}']
)
def test_meta_that_is_not_one(text: str, artifact: Path) -> None:
    (artifact / "meta.json").write_text(text)
    refuses(run("run", str(artifact), "-q"), 1, "meta.json", "compile the model again")


@pytest.mark.parametrize(
    ("field", "value"),
    [("inputs", 3), ("inputs", [{"name": "x"}]), ("kernels", [1]), ("versions", [])],
)
def test_meta_with_a_field_of_another_type(field: str, value: object, artifact: Path) -> None:
    change_meta(artifact, lambda meta: meta.update({field: value}))
    refuses(run("run", str(artifact), "-q"), 1, "meta.json is damaged", "compile the model again")


def test_meta_with_an_unknown_kind_of_target(artifact: Path) -> None:
    change_meta(artifact, lambda meta: meta["target"].update(kind="quantum"))
    refuses(run("run", str(artifact), "-q"), 1, "quantum", "llvm, cuda", "compile the model again")


def test_folder_that_is_no_artifact(tmp_path: Path) -> None:
    refuses(run("run", str(tmp_path), "-q"), 2, "not an artifact", "tvmscope compile")


def test_artifact_of_another_tvm(artifact: Path) -> None:
    change_meta(artifact, lambda meta: meta["versions"].update(tvm="0.19.0"))
    done = run("run", str(artifact), "-q")
    refuses(done, 1, "built with TVM 0.19.0", "this is TVM 0.2", "compile the model again")


def test_artifact_for_cpu_features_that_are_not_here(artifact: Path) -> None:
    absent = ["amx-tile", "avx512fp16", "sve2"]
    change_meta(artifact, lambda meta: meta["target"]["features"].extend(absent))
    done = run("run", str(artifact), "-q")
    refuses(done, 1, "this CPU lacks", "sve2", "compile with --target cpu")


@pytest.mark.skipif(platform.machine() != "x86_64", reason="the cap is for x86")
@pytest.mark.parametrize("command", [("doctor",), ("bench", "resnet18")])
def test_an_unknown_cap_of_the_host(command: tuple[str, ...]) -> None:
    done = run(*command, "-q", TVMSCOPE_ISA="avx3")
    refuses(done, 2, "TVMSCOPE_ISA=avx3", "known: avx2")


def test_artifact_for_another_machine(artifact: Path) -> None:
    other = "x86_64" if platform.machine() == "aarch64" else "aarch64"
    change_meta(artifact, lambda meta: meta["target"].update(triple=f"{other}-linux-gnu"))
    done = run("run", str(artifact), "-q")
    refuses(done, 1, f"built for {other}", f"this machine is {platform.machine()}", "--target cpu")


def test_cuda_artifact_without_a_gpu(artifact: Path) -> None:
    change_meta(artifact, lambda meta: meta.update(target={"kind": "cuda", "arch": "sm_90"}))
    done = run("run", str(artifact), "-q", CUDA_VISIBLE_DEVICES="")
    refuses(done, 1, "built for cuda:sm_90", "no CUDA device", "compile with --target cpu")


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (["--device", "cuda:7"], "cuda:7: there is no"),
        (["--device", "cuda:x"], "cuda:x"),
        (["--target", "cuda:1"], "use --device cuda:1"),
        (["--device", "cpu", "--target", "cuda:sm_90"], "--device cpu does not run"),
    ],
)
@pytest.mark.parametrize("command", ["bench", "profile", "tune", "ablate", "suite", "compile"])
def test_a_device_that_is_not_there(
    command: str, flags: list[str], words: str, built: Path, tmp_path: Path
) -> None:
    net = str(built.parent / "net.onnx")
    done = run(command, net, *flags, "-q", cwd=tmp_path, CUDA_VISIBLE_DEVICES="")
    refuses(done, 2, words)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("command", ["run", "compare"])
def test_an_artifact_on_another_device(command: str, artifact: Path) -> None:
    given = [str(artifact)] * (2 if command == "compare" else 1)
    refuses(run(command, *given, "--device", "cuda"), 2, "is compiled for cpu, not cuda")
    done = run(command, *given, "--device", "cuda:7", CUDA_VISIBLE_DEVICES="")
    refuses(done, 2, "cuda:7: there is no")


# ---- nothing is overwritten ---------------------------------------------------------------------


def contents(folder: Path) -> dict[str, bytes]:
    return {str(f.relative_to(folder)): f.read_bytes() for f in folder.rglob("*") if f.is_file()}


def test_existing_artifact_is_kept_without_force(artifact: Path, relu: Path) -> None:
    before = contents(artifact)
    refuses(run("compile", str(relu), "-q", "-o", str(artifact)), 2, "--force")
    assert contents(artifact) == before


def test_existing_artifact_is_kept_when_the_new_one_fails(artifact: Path, relu: Path) -> None:
    before = contents(artifact)
    relu.write_bytes(relu.read_bytes()[:-20])
    refuses(run("compile", str(relu), "-q", "--force", "-o", str(artifact)), 1, "truncated")
    assert contents(artifact) == before


@pytest.mark.parametrize("command", ["bench", "analyze"])
def test_existing_session_is_kept_without_force(command: str, relu: Path, tmp_path: Path) -> None:
    folder = tmp_path / "old"
    folder.mkdir()
    (folder / "session.json").write_text("{}")
    refuses(run(command, str(relu), "-q", "-o", str(folder)), 2, "session.json", "--force")
    (folder / "session.json").rename(folder / "notes.txt")
    refuses(run(command, str(relu), "-q", "-o", str(folder)), 2, "not empty", "--force")
    assert contents(folder) == {"notes.txt": b"{}"}


def test_existing_file_is_kept_by_flags_that_write_one(artifact: Path, tmp_path: Path) -> None:
    file = tmp_path / "mine"
    file.write_text("mine")
    for flag in ("--export-times", "--save-outputs"):
        refuses(run("run", str(artifact), "-q", flag, str(file)), 2, "--force")
    refuses(run("run", str(artifact), "-q", "-o", str(file)), 2, "is a file")
    assert file.read_text() == "mine"


def test_a_batch_that_contradicts_a_shape(relu: Path, tmp_path: Path) -> None:
    done = run("compile", str(relu), "--batch-size", "4", "--shapes", "x:1x8", "-q", cwd=tmp_path)
    refuses(done, 2, "--batch-size 4", "--shapes", "give one")


def test_a_model_file_that_crashes_is_named(tmp_path: Path) -> None:
    (tmp_path / "bad.py").write_text("import os\nos.kill(os.getpid(), 11)\n")
    done = run("compile", "bad.py", "-q", cwd=tmp_path)
    refuses(done, 1, "bad.py", "segmentation fault")


@pytest.mark.parametrize(
    "code", ["def fn(target): return lambda m: m", "def fn(): return []", "fn = 3"]
)
def test_a_pipeline_of_another_form_is_refused(code: str, relu: Path, tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(code)
    done = run("compile", str(relu), "--pipeline", "mine.py:fn", "-q", cwd=tmp_path)
    refuses(done, 2, "mine.py:fn", "list of passes")


def test_a_run_alone_claims_no_more_than_it_proves(artifact: Path, tmp_path: Path) -> None:
    done = run("run", str(artifact), "--iterations", "3", cwd=tmp_path, COLUMNS="140")
    assert "repeats" in done.stderr
    assert "pass" not in done.stderr
