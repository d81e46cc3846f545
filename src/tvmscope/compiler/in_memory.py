"""Compiles an imported module for this machine and runs it in this process, without any file."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

import numpy as np
import tvm
from tvm import relax

from tvmscope.compiler import pipeline, targets
from tvmscope.compiler.describe.sources import Imported
from tvmscope.core.options import CompileOptions
from tvmscope.core.target import Target
from tvmscope.errors import BuildError, one_line
from tvmscope.messages import msg
from tvmscope.runtime import fallback

Array = np.ndarray[Any, Any]
Run = Callable[[Sequence[Array]], list[Array]]


@lru_cache(maxsize=1)
def this_machine() -> Target:
    """Return the target of this machine."""
    return targets.host_target()


def compile_here(imported: Imported, options: CompileOptions) -> Run:
    """Return a function from a list of arrays to a list of arrays."""
    target = this_machine()
    described = targets.to_tvm(target)
    tvm_target = tvm.target.Target(described, host=described)
    lowered = pipeline.run(imported.module, target, tvm_target, options)
    try:
        executable = relax.build(
            lowered.module, tvm_target, relax_pipeline=None, exec_mode=options.exec_mode
        )
    except Exception as e:  # TVM raises many types here, from InternalError to RuntimeError
        raise BuildError(msg("code generation failed: {reason}", reason=one_line(e))) from e
    fallback.register(imported.fallbacks, options.threads)
    main = relax.VirtualMachine(executable, tvm.cpu())["main"]

    def run(arrays: Sequence[Array]) -> list[Array]:
        # not ascontiguousarray, which turns a scalar into a vector
        placed = [tvm.runtime.tensor(np.asarray(a, order="C")) for a in arrays]
        result = main(*placed)
        values = [result] if hasattr(result, "numpy") else list(result)
        return [value.numpy() for value in values]

    return run
