"""Generates machine code for a module's kernels on all cores: each share is a separate module.

LLVM works on one module in one thread. TVM releases Python's lock while it calls LLVM, so threads
suffice. All shares become one library: the first goes with the virtual machine's program, the
others are object files that are linked to it.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import tvm
from tvm import relax, tirx
from tvm.relax import vm_build

from tvmscope.measure import child_progress
from tvmscope.messages import msg

if TYPE_CHECKING:
    from tvm.runtime import Executable

LEAST_KERNELS = 4
"""A share of fewer kernels costs more than it saves: each sets up LLVM anew."""
SHARES_PER_CORE = 4
"""Kernels differ in compile time; small shares balance it."""

ASYNCHRONOUS = {"tirx.use_async_copy": True}
"""Schedules of GPU kernels ask for asynchronous copies; without this they become plain ones."""
UNCHECKED = {"tirx.disable_assert": True, **ASYNCHRONOUS}
"""Kernels do not check their arguments: the virtual machine creates them from checked inputs. A
concatenation of seventy tensors would spend 2 % of its time copying and 98 % checking."""


@dataclass(frozen=True)
class Generated:
    """A program for the virtual machine, and the object files to link it with."""

    executable: Executable
    objects: tuple[Path, ...] = ()


def generate(
    module: tvm.IRModule, target: tvm.target.Target, exec_mode: str, folder: Path, cores: int
) -> Generated:
    """Generate the code of a module; for a CPU, write object files into `folder`."""
    with tvm.transform.PassContext(opt_level=3, config=UNCHECKED):
        return _generate(module, target, exec_mode, folder, cores)


def _generate(
    module: tvm.IRModule, target: tvm.target.Target, exec_mode: str, folder: Path, cores: int
) -> Generated:
    kernels = {v: f for v, f in module.functions_items() if isinstance(f, tirx.PrimFunc)}
    shares = split(list(kernels), cores)
    # an object file holds the host's code alone: a GPU's kernels would be lost
    whole = exec_mode != "bytecode" or target.kind.name != "llvm"
    if whole or len(shares) < 2:
        built = relax.build(module, target, relax_pipeline=None, exec_mode=exec_mode)
        return Generated(built)
    first, *others = (
        tvm.IRModule({v: kernels[v] for v in share}, attrs=module.attrs) for share in shares
    )
    with ThreadPoolExecutor(cores) as pool:
        files = [folder / f"share{number}.o" for number in range(len(others))]
        jobs = [
            pool.submit(_object, share, target, file, _Place(number, len(others)))
            for number, (share, file) in enumerate(zip(others, files, strict=True))
        ]
        attrs = dict(module.attrs) if module.attrs else {}
        builder = relax.ExecBuilder()
        vm_build._vmcodegen(builder, module, exec_mode)  # of the whole module: it calls all kernels
        built = vm_build._vmlink(
            builder,
            target,
            tir_mod=first,
            ext_libs=attrs.get("external_mods", []),
            params=dict(attrs.get("const_name_to_constant", {})),
        )
        return Generated(built, tuple(job.result() for job in jobs))


def split(kernels: Sequence[Any], cores: int) -> list[list[Any]]:
    """Split kernels into shares of about equal size; similar neighbours go to different shares."""
    count = max(1, min(len(kernels) // LEAST_KERNELS, cores * SHARES_PER_CORE))
    return [list(kernels[number::count]) for number in range(count)]


@dataclass(frozen=True)
class _Place:
    """The position of a share among all shares."""

    number: int
    total: int


def _object(module: tvm.IRModule, target: tvm.target.Target, file: Path, place: _Place) -> Path:
    names = [var.name_hint for var, _ in module.functions_items()]
    more = msg("{kernel} and {count} more", kernel=names[0], count=len(names) - 1)
    child_progress.tell(place.number, place.total, more if len(names) > 1 else names[0])
    # both are local to a thread
    with target, tvm.transform.PassContext(opt_level=3, config=UNCHECKED):
        tvm.tirx.build(module, target=target).write_to_file(str(file), "o")
    return file
