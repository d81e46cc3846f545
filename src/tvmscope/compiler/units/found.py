"""A unit that was found in a graph: what it computes, from what, and what it replaces."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from tvm import relax

from tvmscope.compiler.units.graph import Array, Graph
from tvmscope.cuda.units import Unit

Operand = relax.Expr | Array
"""A value of the program, or a constant that was worked out here."""


@dataclass(frozen=True, kw_only=True)
class Found:
    """`unit` in place of `replaced`; `last` is the variable whose value it gives."""

    unit: Unit
    operands: dict[str, Operand] = field(default_factory=dict)
    """By the role of the unit's tensors; the output is not among them."""
    last: relax.Var
    replaced: tuple[relax.Var, ...]
    written: tuple[int, ...] | None = None
    """The shape in which the kernel leaves its output, where it is not that of `last`."""
    permuted: tuple[int, ...] | None = None
    """Axes that bring `written` into the order of `last`, up to a reshape."""


@dataclass(frozen=True, kw_only=True)
class Chain:
    """Values that follow one another, each read by the next one alone."""

    graph: Graph
    taken: frozenset[relax.Var]
    """What other units have replaced already."""
    vars: tuple[relax.Var, ...]

    @property
    def last(self) -> relax.Var:
        return self.vars[-1]

    def next(self) -> relax.Var | None:
        """The only reader of the last value, where it is free."""
        if self.last in self.graph.needed:
            return None
        reader = self.graph.only_reader(self.last)
        return None if reader is None or reader in self.taken else reader

    def then(self, *more: relax.Var) -> Chain:
        """The chain with more values at its end."""
        return replace(self, vars=(*self.vars, *more))
