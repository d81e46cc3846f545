"""A Python without some libraries, simulated: they are neither found nor listed as installed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import tvmscope
from tvmscope.extras import EXTRAS

SOURCE = str(Path(tvmscope.__file__).parents[1])
ALL = tuple(module for packages in EXTRAS.values() for module in packages.values())
"""The modules that a bare installation lacks."""

# Python imports a module of this name at its start; worker processes do so too.
_SITE = """
import json, os, sys
from importlib.machinery import PathFinder

modules, packages = (set(names) for names in json.loads(os.environ["ABSENT"]))

class Without(PathFinder):
    @classmethod
    def find_spec(cls, name, path=None, target=None):
        return None if name.split(".")[0] in modules else PathFinder.find_spec(name, path, target)

    @classmethod
    def find_distributions(cls, *args, **kw):
        for found in PathFinder.find_distributions(*args, **kw):
            if found.name.lower() not in packages:
                yield found

sys.meta_path[sys.meta_path.index(PathFinder)] = Without
"""
_SCRIPT = """
import contextlib, io, json, sys
from tvmscope.cli.main import main

done = []
for args in json.loads(sys.argv[1]):
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = main(args)
    done.append([code, out.getvalue(), err.getvalue()])
print(json.dumps([done, sorted({name.split(".")[0] for name in sys.modules})]))
"""


@dataclass(frozen=True)
class Done:
    """What a command left."""

    code: int
    stdout: str
    stderr: str


def environment(folder: Path, absent: Iterable[str]) -> dict[str, str]:
    """Environment variables of a Python without the modules `absent`; `folder` is for its use."""
    absent = set(absent)
    packages = [
        package
        for found in EXTRAS.values()
        for package, module in found.items()
        if module in absent
    ]
    (folder / "sitecustomize.py").write_text(_SITE)
    return {
        **os.environ,
        "PYTHONPATH": os.pathsep.join((str(folder), SOURCE)),
        "ABSENT": json.dumps([sorted(absent), packages]),
        "COLUMNS": "200",
        "NO_COLOR": "1",
    }


def run_all(
    commands: Sequence[Sequence[str]], folder: Path, absent: Iterable[str] = ALL
) -> tuple[list[Done], set[str]]:
    """Run commands one after the other in one such process; also what it has imported by then."""
    finished = subprocess.run(
        [sys.executable, "-c", _SCRIPT, json.dumps([list(args) for args in commands])],
        capture_output=True, text=True, env=environment(folder, absent), cwd=folder, check=False,
    )  # fmt: skip
    assert finished.returncode == 0, finished.stderr
    done, modules = json.loads(finished.stdout)
    return [Done(*each) for each in done], set(modules)
