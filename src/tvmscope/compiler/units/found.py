"""A unit that was found in a graph: its computation, its operands, and the values it replaces."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from tvm import relax

from tvmscope.compiler.units.graph import Array, Graph
from tvmscope.cuda.units import Unit

Operand = relax.Expr | Array
"""A value of the program, or a constant that was computed here."""


@dataclass(frozen=True, kw_only=True)
class Found:
    """`unit` replaces `replaced`; `last` is the variable of its result, `kept` that of a sum which
    it stores too."""

    unit: Unit
    operands: dict[str, Operand] = field(default_factory=dict)
    """Operands by the role of the unit's tensors, without the output."""
    last: relax.Var
    replaced: tuple[relax.Var, ...]
    kept: relax.Var | None = None
    written: tuple[int, ...] | None = None
    """The shape of the kernel's output, if it differs from that of `last`."""
    permuted: tuple[int, ...] | None = None
    """Axes that bring `written` into the order of `last`, up to a reshape."""

    @property
    def first(self) -> relax.Var:
        """The first variable that the kernel computes."""
        return self.last if self.kept is None else self.kept

    @property
    def hidden(self) -> tuple[relax.Var, ...]:
        """The values inside the unit, which are never stored."""
        return tuple(v for v in self.replaced if v not in (self.last, self.kept))


@dataclass(frozen=True, kw_only=True)
class Chain:
    """Consecutive values, each of which is read only by the next one."""

    graph: Graph
    taken: frozenset[relax.Var]
    """Values that other units have already replaced."""
    vars: tuple[relax.Var, ...]

    @property
    def last(self) -> relax.Var:
        return self.vars[-1]

    def next(self) -> relax.Var | None:
        """Return the only reader of the last value, if it is free."""
        if self.last in self.graph.needed:
            return None
        reader = self.graph.only_reader(self.last)
        return None if reader is None or reader in self.taken else reader

    def then(self, *more: relax.Var) -> Chain:
        """Return the chain with more values at its end."""
        return replace(self, vars=(*self.vars, *more))
