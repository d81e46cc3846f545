"""The values that a pass may depend on."""

from __future__ import annotations

from dataclasses import dataclass, field

from tvmscope.compiler.tunable.knobs import Knobs
from tvmscope.core.options import CompileOptions
from tvmscope.core.target import Target
from tvmscope.cuda.cubins.compiled_kernel import CompiledKernel
from tvmscope.cuda.library.call import LibraryCall


@dataclass
class Context:
    """The values that a pass may depend on, and the list of its remarks."""

    target: Target
    options: CompileOptions
    remarks: list[str] = field(default_factory=list)
    kernels: dict[str, CompiledKernel] = field(default_factory=dict)
    """Generated CUDA kernels, by the packed function that launches each."""
    library_calls: dict[str, LibraryCall] = field(default_factory=dict)
    """Units that a library computes, likewise."""

    @property
    def knobs(self) -> Knobs:
        """Return the parameters of kernels: those of records, or one set for all."""
        return Knobs(self.options.choices, self.options.overrides.get("params", {}))


def always(_: CompileOptions) -> bool:
    """Run the pass with any options."""
    return True


def in_reduced_precision(options: CompileOptions) -> bool:
    """Run the pass if the model is computed in another precision than its own."""
    return options.precision.is_half
