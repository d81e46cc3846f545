"""A model that was compiled before is copied, and nothing heavy is imported for it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import tvmscope
from support.onnx_nets import two_convolutions
from tvmscope.core.model import Prepared
from tvmscope.core.options import CompileOptions, LoadOptions
from tvmscope.core.target import Target
from tvmscope.models.fingerprint import fingerprint
from tvmscope.runtime import artifact_cache
from tvmscope.stages import places

COMPILE = """
import json, sys
from pathlib import Path
from tvmscope.stages.options import Options
from tvmscope.workflow.compile import compile_model
made = compile_model({model!r}, Path({output!r}), Options.of(target="cpu", threads=1))
print(json.dumps([made.build_s, [n for n in ("tvm", "torch", "onnx") if n in sys.modules]]))
"""


def test_the_second_time_it_is_copied(tmp_path: Path) -> None:
    cache = tmp_path / "cache" / "tvmscope"
    cache.mkdir(parents=True)
    for file in places.cache_folder().glob("host-*.json"):  # proving the host takes seconds
        (cache / file.name).write_bytes(file.read_bytes())
    env = {**os.environ, "XDG_CACHE_HOME": str(tmp_path / "cache"), artifact_cache.VARIABLE: "on"}
    model = two_convolutions(tmp_path / "net.onnx")
    said = []
    for name in ("first", "again"):
        words = COMPILE.format(model=str(model), output=str(tmp_path / name))
        done = subprocess.run(
            [sys.executable, "-c", words], env=env, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr
        said.append(json.loads(done.stdout))
    (first_s, _), (again_s, heavy) = said
    assert again_s == first_s  # the one that was made then
    assert heavy == []
    given = np.random.default_rng(0).standard_normal((1, 3, 24, 24), dtype=np.float32)
    results = [tvmscope.load_artifact(tmp_path / name)(given) for name in ("first", "again")]
    for one, other in zip(results[0].values(), results[1].values(), strict=True):
        np.testing.assert_array_equal(one, other)
    (kept,) = (cache / "artifacts").iterdir()
    assert artifact_cache.fetch(cache, kept.name, tmp_path / "copy") is not None
    (kept / "model.so").write_bytes(b"damaged")
    assert artifact_cache.fetch(cache, kept.name, tmp_path / "copy") is None


def test_everything_that_matters_is_in_the_key(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(artifact_cache.VARIABLE, "on")
    target = Target(kind="llvm", arch="x86-64")
    ready = Prepared(tmp_path, None)  # type: ignore[arg-type]

    def key(text: str = "{}", options: CompileOptions | None = None, where: Target = target) -> str:
        (tmp_path / "model.json").write_text(text)
        around = artifact_cache.surroundings(where, target, options or CompileOptions())
        assert around is not None
        return artifact_cache.key(ready, around)

    keys = [
        key(),
        key('{"digest": "other"}'),
        key(options=CompileOptions(disabled_passes=("fold-pads",))),
        key(options=CompileOptions(threads=2)),
        key(where=replace(target, cores=2)),
    ]
    assert len(set(keys)) == len(keys)
    assert key() == keys[0]


@pytest.mark.parametrize(
    "options",
    [CompileOptions(pipeline="mine.py:passes"), CompileOptions(dump_ir="folder")],
    ids=["own-pipeline", "dump"],
)
def test_some_are_never_kept(options: CompileOptions, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(artifact_cache.VARIABLE, "on")
    target = Target(kind="llvm", arch="x86-64")
    assert artifact_cache.surroundings(target, target, options) is None


def test_the_oldest_entries_go(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(artifact_cache, "MOST_BYTES", 25)
    for number, name in enumerate(("a", "b", "c")):
        made = tmp_path / name
        made.mkdir()
        (made / "model.so").write_bytes(b"0123456789")
        artifact_cache.keep(tmp_path, name, made)
        os.utime(tmp_path / "artifacts" / name, (number, number))
    artifact_cache.keep(tmp_path, "d", made)
    assert sorted(p.name for p in (tmp_path / "artifacts").iterdir()) == ["c", "d"]


def test_only_sources_that_determine_the_model_have_a_fingerprint(tmp_path: Path) -> None:
    options = LoadOptions()
    model = two_convolutions(tmp_path / "net.onnx")
    (tmp_path / "net.py").write_text("")
    first = fingerprint(str(model), options)
    assert first is not None
    assert fingerprint(str(model), replace(options, batch_size=2)) != first
    model.write_bytes(model.read_bytes() + b" ")
    assert fingerprint(str(model), options) != first
    for source in ("no-such-model", str(tmp_path / "net.py"), "https://example.org/net.onnx"):
        assert fingerprint(source, options) is None
    assert fingerprint("resnet18", options) not in (None, fingerprint("resnet50", options))
