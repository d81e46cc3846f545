"""The distinct units that the compiler places in models, as JSON for cuda_kernels.py.

python scripts/cuda_units.py -o units.json [--models resnet50,minilm,a.onnx] [--batches 1,8,32]
python scripts/cuda_units.py -o odd.json --odd 20

Each model is prepared at each batch size and goes through the CUDA pipeline up to its kernels. The
file grows as it goes, so that an interrupted run keeps what it has.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "src"))

from tvmscope.compiler import targets  # noqa: E402
from tvmscope.core.options import CompileOptions, LoadOptions  # noqa: E402
from tvmscope.core.precision import Precision  # noqa: E402
from tvmscope.measure.remote import remote  # noqa: E402
from tvmscope.measure.worker import Worker  # noqa: E402
from tvmscope.models.catalog import built_ins  # noqa: E402
from tvmscope.models.folder import read_prepared  # noqa: E402
from tvmscope.storage.codec import encode  # noqa: E402

if TYPE_CHECKING:
    import tvmscope.compiler.tunable.extract
    import tvmscope.models.prepare


def main() -> None:
    """Prepare, lower, collect, write."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("-o", "--output", type=Path, required=True)
    parser.add_argument("--models", default=",".join(sorted(built_ins())))
    parser.add_argument("--batches", default="1,8,32")
    parser.add_argument("--types", default="float16,float32", help="float32 has batch 1 only")
    parser.add_argument("--target", default="cuda:sm_90")
    parser.add_argument(
        "--pools", action="store_true", help="every pool that a convolution can compute is in one"
    )
    parser.add_argument("--odd", type=int, help="so many drawn odd shapes per template instead")
    arguments = parser.parse_args()
    if arguments.odd:
        entries = list(odd_units(arguments.odd))
        arguments.output.write_text(json.dumps(entries, indent=1))
        print(f"{len(entries)} drawn units in {arguments.output}")
        return
    found: dict[str, dict[str, Any]] = {}
    for batch in (int(b) for b in arguments.batches.split(",")):
        types = [t for t in arguments.types.split(",") if batch == 1 or t != "float32"]
        for name in arguments.models.split(","):
            every = {"pools": True} if arguments.pools else {}
            for dtype, placed in placed_units(name, batch, types, arguments.target, every):
                for key, unit in placed:
                    entry = found.setdefault(key, {"unit": unit, "models": []})
                    entry["models"].append(f"{name} {dtype} batch {batch}")
                print(f"{name} {dtype} batch {batch}: {len(placed)} distinct units", flush=True)
            arguments.output.write_text(json.dumps(list(found.values()), indent=1))
    kinds = Counter(e["unit"]["kind"] for e in found.values())
    print(f"{len(found)} units in {arguments.output}: {dict(kinds)}")


def placed_units(
    name: str, batch: int, types: list[str], target: str, overrides: dict[str, bool]
) -> Iterator[tuple[str, list[tuple[str, dict[str, Any]]]]]:
    """A model's units by type; torch, which prepares it, stays in a process of its own."""
    with tempfile.TemporaryDirectory() as folder:
        options = LoadOptions(batch_size=batch, need_onnx=False, offline=True)
        with Worker("prepare", timeout_s=600) as worker:
            worker.call(remote(lambda: tvmscope.models.prepare.prepare), name, folder, options)
        for dtype in types:
            yield dtype, lower(folder, dtype, target, overrides)


def lower(
    folder: str, dtype: str, target: str, overrides: dict[str, bool]
) -> list[tuple[str, dict[str, Any]]]:
    """The distinct units of a prepared model, with their keys."""
    options = CompileOptions(precision=Precision.parse(dtype), graph=True, overrides=overrides)
    functions = Path(folder) / dtype
    with Worker("lower", timeout_s=1200) as worker:
        tasks = worker.call(
            remote(lambda: tvmscope.compiler.tunable.extract.extract),
            read_prepared(folder),
            targets.resolve(target),
            options,
            functions,
        )
    files = {t.key: Path(t.lowerings[0].function) for t in tasks if not t.loops}
    return [(key, json.loads(file.read_text())["unit"]) for key, file in files.items()]


def odd_units(count: int) -> Iterator[dict[str, Any]]:
    """The units that the interpreted tests draw, with their configurations, for a GPU: every other
    float16 one in bfloat16, and every launch of sm_90."""
    sys.path.insert(0, str(ROOT / "tests" / "cuda"))
    import draws

    for make in draws.MAKERS:
        for seed in range(count):
            unit, config = make(seed)
            if unit.dtype == "float16" and seed % 2:
                unit = replace(unit, dtype="bfloat16")
            config = replace(config, pdl=seed % 3)
            yield {"unit": unit.to_json(), "config": encode(config)}


if __name__ == "__main__":
    main()
