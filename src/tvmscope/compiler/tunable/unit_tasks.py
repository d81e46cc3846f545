"""Tuning tasks of generated CUDA kernels: a unit, and the configurations that may compute it."""

from __future__ import annotations

import hashlib
import json
from functools import partial
from pathlib import Path

from tvm import tirx

from tvmscope.compiler.units import emit
from tvmscope.compiler.units.choose import gpu_for
from tvmscope.core.target import Target
from tvmscope.core.tuning import Candidate, Lowering, TuningTask
from tvmscope.cuda import config as configs
from tvmscope.cuda import shortlist, units
from tvmscope.cuda.config import Config
from tvmscope.cuda.cubins import kernel_file
from tvmscope.cuda.cubins.kernel_compiler import compile_kernel
from tvmscope.cuda.library.call import call_of
from tvmscope.cuda.library.call import configs as library_configs
from tvmscope.cuda.units import Unit

MOST_CANDIDATES = 80
"""The most candidates per task, ranked by the cost model: lower-ranked ones have not won so far."""
_BEFORE_LIBRARY = 3
"""Generated candidates that are tried before a library's: searches often end early."""
_TOLERANCES = {"float16": 3e-3, "bfloat16": 2e-2, "tf32": 3e-3}
"""Tolerances relative to the largest value; sums are always in single precision."""


def task_of(
    func: tirx.PrimFunc,
    name: str,
    calls: int,
    ops: tuple[str, ...],
    target: Target,
    folder: Path,
    *,
    library: bool | tuple[str, ...] = False,
) -> TuningTask | None:
    """Return the task of a function that launches a unit's kernel; None for any other function.
    `library` says whose calls are candidates, too: of all libraries, of none, or of these."""
    placed = emit.read(func)
    if placed is None:
        return None
    unit, own = placed
    file = folder / f"{hashlib.sha256(unit.key.encode()).hexdigest()[:12]}-unit.json"
    file.write_text(json.dumps({"unit": unit.to_json(), "config": configs.to_json(own)}))
    ranked = shortlist.best(unit, gpu_for(target), MOST_CANDIDATES)
    others = [e.config for e in ranked if e.config != own]
    tried = [c for c in library_configs(unit) if c != own and c.is_allowed(library)]
    others = [*others[:_BEFORE_LIBRARY], *tried, *others[_BEFORE_LIBRARY:]]
    lowering = Lowering(
        params={},
        function=str(file),
        rule=configs.RULE,
        own=configs.to_json(own),
        flops=float(unit.flops),
        bytes=float(unit.moved_bytes),
    )
    return TuningTask(
        key=unit.key,
        rule=configs.RULE,
        kernel=name,
        calls=calls,
        flops=lowering.flops,
        bytes=lowering.bytes,
        lowerings=(lowering,),
        candidates=(Candidate(), *(Candidate(params=configs.to_json(c)) for c in others)),
        source_ops=ops,
        loops=False,
        tolerance=_tolerance(unit),
    )


def _tolerance(unit: Unit) -> float | None:
    """Return the tolerance; None means that of any kernel of the type."""
    products = getattr(unit, "math", "ieee")
    return _TOLERANCES.get(unit.dtype if products == "tensor" else products)


def read(function: Path) -> tuple[Unit, Config] | None:
    """Return the unit of a file and the configuration that is compiled without records."""
    if not function.name.endswith("-unit.json"):
        return None
    data = json.loads(function.read_text(encoding="utf-8"))
    return units.from_json(data["unit"]), configs.from_json(data["config"])


def build(unit: Unit, own: Config, candidate: Candidate, target: Target, output: Path) -> None:
    """Compile a candidate's kernel into the file `output`."""
    config = configs.from_json(dict(candidate.params)) if candidate.params else own
    output.parent.mkdir(parents=True, exist_ok=True)
    made = call_of if config.of_library else partial(compile_kernel, arch=target.arch)
    kernel_file.write(output, unit, made(unit, config))
