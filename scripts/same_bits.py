"""Compare two artifacts of one model: the same kernels, and the same bits of every output.

python scripts/same_bits.py FIRST SECOND [-o OUT.json]

Each is run by its own loader in a process of its own, twice on each of two inputs. Meant for an
artifact that was built without a GPU and one that was built beside it, with the same versions.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from repeat_runs import digest, draw, loader

FILES = ("cubins.bin", "cubins.json", "kernels.json", "model.so")
SEEDS = (0, 1)


def main() -> int:
    """Parse, compare, write, and say what differs."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("artifacts", nargs="+", type=Path)
    parser.add_argument("-o", "--output", type=Path)
    parser.add_argument("--digests", action="store_true", help="of the first one's outputs only")
    arguments = parser.parse_args()
    if arguments.digests:
        print(json.dumps(digests(arguments.artifacts[0])))
        return 0
    if len(arguments.artifacts) != 2:
        parser.error("give two artifacts")
    result = compare(*arguments.artifacts)
    if arguments.output:
        arguments.output.write_text(json.dumps(result, indent=1))
    print(json.dumps(result))
    return 1 if result["problems"] else 0


def compare(first: Path, second: Path) -> dict[str, Any]:
    """What is the same; `problems` is empty where the outputs are."""
    folders = (first, second)
    metas = [json.loads((f / "meta.json").read_text("utf-8")) for f in folders]
    result: dict[str, Any] = {
        "files": {name: len({file_digest(f / name) for f in folders}) == 1 for name in FILES},
        "versions": [m["versions"] for m in metas],
        "targets": [m["target"]["arch"] for m in metas],
    }
    found = [outputs(f) for f in folders]
    return result | {"outputs": found, "problems": problems(found)}


def problems(found: list[Any]) -> list[str]:
    """What is wrong with the outputs of the two, in words."""
    failed = [f"{which}: {f}" for which, f in zip(("first", "second"), found, strict=True)
              if isinstance(f, str)]  # fmt: skip
    if failed:
        return failed
    said = [
        f"{which}: one input gave several results"
        for which, each in zip(("first", "second"), found, strict=True)
        if any(len(set(runs)) > 1 for runs in each)
    ]
    if found[0][0][0] == found[0][1][0]:
        said.append("two inputs gave the same result: a run computed nothing")
    if found[0] != found[1]:
        said.append("the outputs differ")
    return said


def outputs(folder: Path) -> Any:
    """Digests by input and run; a text says why there are none."""
    command = [sys.executable, __file__, str(folder), "--digests"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        lines = (done.stderr or done.stdout).strip().splitlines()
        return lines[-1] if lines else f"exit code {done.returncode}"
    return json.loads(done.stdout.splitlines()[-1])


def digests(folder: Path) -> list[list[str]]:
    """Of all outputs, for each input as often as it is run; later runs use the CUDA graph."""
    model = loader(folder).Model(folder)
    inputs = [draw(model.inputs, seed) for seed in SEEDS]
    return [[digest(model(**given)) for _ in range(3)] for given in inputs]


def file_digest(file: Path) -> str | None:
    """None where it is missing."""
    return hashlib.sha256(file.read_bytes()).hexdigest() if file.is_file() else None


if __name__ == "__main__":
    sys.exit(main())
