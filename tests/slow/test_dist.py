"""What `pip install` gives: the built wheel, bare and with `[tvm]`, each in a new environment."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from support import samples
from tvmscope.core.session import save
from tvmscope.report.renderers import renderers

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]


def call(*args: str | Path, cwd: Path, code: int = 0) -> subprocess.CompletedProcess[str]:
    """Run a program that must see nothing of this checkout."""
    env = {k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "VIRTUAL_ENV")}
    done = subprocess.run(
        [str(a) for a in args], cwd=cwd, env=env, capture_output=True, text=True, check=False
    )
    assert done.returncode == code, f"{args}: {done.stdout}{done.stderr}"
    return done


@pytest.fixture(scope="module")
def dist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A wheel and an sdist, built from a copy of what git tracks, as `make dist` builds them."""
    folder = tmp_path_factory.mktemp("dist")
    listed = call("git", "ls-files", "--cached", "--others", "--exclude-standard", cwd=ROOT)
    for name in listed.stdout.splitlines():
        if (ROOT / name).is_file():
            (folder / "copy" / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(ROOT / name, folder / "copy" / name)
    call(sys.executable, "scripts/catalogues.py", "compile", cwd=folder / "copy")
    call(sys.executable, "-m", "build", "--outdir", folder / "dist", cwd=folder / "copy")
    return folder / "dist"


def environment(folder: Path, wheel: Path, extra: str) -> Path:
    """The `tvmscope` of a new environment with the wheel and an extra of it."""
    call(sys.executable, "-m", "venv", folder / "venv", cwd=folder)
    python = folder / "venv" / "bin" / "python"
    call(python, "-m", "pip", "install", "--quiet", f"{wheel}{extra}", cwd=folder)
    return folder / "venv" / "bin" / "tvmscope"


def wheel_of(dist: Path) -> Path:
    (wheel,) = dist.glob("*.whl")
    return wheel


def test_the_wheel_speaks_chinese(dist: Path) -> None:
    with zipfile.ZipFile(wheel_of(dist)) as wheel:
        names = set(wheel.namelist())
    assert "tvmscope/locale/zh/LC_MESSAGES/tvmscope.mo" in names
    assert "tvmscope/learn/pages/lesson.html.j2" in names


def test_both_files_pass_the_check(dist: Path) -> None:
    files = sorted(dist.iterdir())
    assert [file.suffix for file in files] == [".whl", ".gz"]
    call(sys.executable, "-m", "twine", "check", "--strict", *files, cwd=dist)


def test_the_bare_wheel_shows_and_compares(dist: Path, tmp_path: Path) -> None:
    command = environment(tmp_path, wheel_of(dist), "")
    listed = call(tmp_path / "venv/bin/python", "-m", "pip", "list", "--format=json", cwd=tmp_path)
    names = {package["name"].lower() for package in json.loads(listed.stdout)}
    assert not names & {"apache-tvm", "torch", "onnx", "onnxruntime", "openvino"}
    for name in ("first", "second"):
        save(samples.complete(), tmp_path / name)
    for name, renderer in renderers().items():
        output = f"report-{name}{renderer.suffix}"
        call(command, "report", "first", "--format", name, "-o", output, cwd=tmp_path)
        assert (tmp_path / output).exists()
    call(command, "compare", "first", "second", cwd=tmp_path)
    call(command, "explain", "first", cwd=tmp_path)
    call(command, "db", "verify", cwd=tmp_path)
    call(command, "doctor", cwd=tmp_path)
    refused = call(command, "doctor", "--smoke", cwd=tmp_path, code=5)
    assert "pip install 'tvmscope[tvm]'" in refused.stderr


def test_the_wheel_with_tvm_compiles_and_runs(dist: Path, tmp_path: Path) -> None:
    command = environment(tmp_path, wheel_of(dist), "[tvm]")
    done = call(command, "doctor", "--smoke", "--json", cwd=tmp_path)
    assert json.loads(done.stdout)["ok"] is True
    done = call(command, "doctor", "--json", cwd=tmp_path)
    checks = {check["name"]: check["status"] for check in json.loads(done.stdout)["checks"]}
    assert (checks["tvm"], checks["torch"]) == ("ok", "info")
    refused = call(command, "compile", "resnet50", "-o", "a", cwd=tmp_path, code=5)
    assert "pip install 'tvmscope[torch]'" in refused.stderr
