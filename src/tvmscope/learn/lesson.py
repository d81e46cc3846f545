"""The manifest of a lesson: an idea, measured steps, parameters to vary, an exercise."""

from __future__ import annotations

import ast
import inspect
import textwrap
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from tvmscope.core.target import Target
from tvmscope.learn.facts import Exhibit, StepRun, Study
from tvmscope.measure.remote import Remote
from tvmscope.messages import Message, Text

if TYPE_CHECKING:
    from tvm import s_tir, tirx

Array = npt.NDArray[Any]


class Params(dict[str, int]):
    """The numbers of a step by name, and the machine that they are for."""

    def __init__(self, values: Mapping[str, int], target: Target) -> None:
        super().__init__(values)
        self.target = target


Number = int | Callable[[Target], int]
"""A number, or a function of the machine that gives it."""
Apply = Callable[["s_tir.Schedule", Params], None]


@dataclass(frozen=True, kw_only=True)
class Workload:
    """A computation: its loops as TVM writes them, and its reference in numpy."""

    name: str
    words: Message
    make: Callable[[int], tirx.PrimFunc]
    """Makes the function for a size; its last argument is the result. Called in a worker."""
    reference: Callable[[Sequence[Array]], Array]
    """Computes the result from the other arguments."""
    flops: Callable[[int], float] | None = None
    """The flops by the computation's definition, if the loops do a different amount of work."""
    inputs: Callable[[int], list[Array]] | None = None
    """Makes arguments that cannot be random numbers, without the result."""
    tolerance: float = 1e-4


@dataclass(frozen=True, kw_only=True)
class Parameter:
    """A number that `--set` may change."""

    name: str
    words: Message
    default: Number

    def value(self, target: Target) -> int:
        """Return its value on this machine, unless the reader sets another."""
        return on(self.default, target)


Says = Callable[[StepRun, StepRun, Study], Text | None]
"""Makes a sentence about a step from its own measurement, the previous one, and the machine."""


@dataclass(frozen=True, kw_only=True)
class Step:
    """One change of the schedule, on top of the steps before it."""

    name: str
    title: Message
    apply: Apply | None = None
    """The primitives; None leaves the loops as TVM wrote them."""
    note: Message | None = None
    """What the primitive does, in a sentence."""
    says: Says | None = None
    workload: Workload | None = None
    """A computation other than the previous step's; its loops begin as TVM writes them."""
    anew: bool = False
    """Start from the plain loops again, not from the end of the previous step."""
    params: Mapping[str, Number] = field(default_factory=dict)
    """Numbers that differ from the lesson's here, in this step and in those it builds on.

    They are what the step is about, so that `--set` does not change them.
    """
    against: str | None = None
    """The step that this one is compared with; None is the one before it."""
    source: str | None = None
    """The text that is shown as its primitives, if it is not the body of `apply`."""
    refused: bool = False
    """An example that TIR does not allow: the lesson shows the rule that it breaks."""

    @property
    def restarts(self) -> bool:
        """Whether it starts from plain loops; a step that only sets numbers continues."""
        plain = self.apply is None and not self.params
        return self.anew or self.workload is not None or plain

    def numbers(self, target: Target) -> dict[str, int]:
        """Return its own numbers on this machine."""
        return {name: on(value, target) for name, value in self.params.items()}

    @property
    def code(self) -> str:
        """The primitives as Python, without the function around them."""
        if self.source is not None:
            return self.source
        return "" if self.apply is None else body_of(self.apply)


@dataclass(frozen=True, kw_only=True)
class Checked:
    """The judgement of an answer."""

    right: bool
    words: Text


@dataclass(frozen=True, kw_only=True)
class Exercise:
    """A question whose answer is computed on this machine, never stored here."""

    question: Message
    solution: Callable[[Study], str]
    check: Callable[[str, Study], Checked]


@dataclass(frozen=True, kw_only=True)
class Lesson:
    """A lesson's manifest; its file has its name, with dashes as underscores."""

    name: str
    title: Message
    idea: Message
    steps: tuple[Step, ...] = ()
    workload: Workload | None = None
    """The computation of the steps; None for a lesson that only shows things."""
    size: int = 0
    smallest: int = 1
    """A size that is quick to compile and run, and still has every loop of the lesson."""
    parameters: tuple[Parameter, ...] = ()
    exhibits: Remote[[int, Target, bool], tuple[Exhibit, ...]] | None = None
    """Makes the illustrations before the steps, in a worker, from size, target and `--run`."""
    exercise: Exercise
    closing: Message | None = None

    def workload_of(self, place: int) -> Workload:
        """Return the computation that a step belongs to."""
        own = [s.workload for s in self.steps[: place + 1] if s.workload is not None]
        found = own[-1] if own else self.workload
        assert found is not None, f"{self.name}: steps need a workload"
        return found

    def chain(self, place: int) -> tuple[Step, ...]:
        """Return the steps whose primitives lead to this one, itself included."""
        start = place
        while start > 0 and not self.steps[start].restarts:
            start -= 1
        own = self.steps[place]
        return tuple(s for s in self.steps[start : place + 1] if s is own or not s.refused)


def body_of(function: Callable[..., Any]) -> str:
    """Return the statements of a function as they are written, without its docstring."""
    text = textwrap.dedent(inspect.getsource(function))
    (node,) = ast.parse(text).body
    assert isinstance(node, ast.FunctionDef)
    statements = node.body[1:] if ast.get_docstring(node) else node.body
    lines = text.splitlines()[statements[0].lineno - 1 : node.end_lineno]
    return textwrap.dedent("\n".join(lines))


def on(value: Number, target: Target) -> int:
    """Return a number's value on a machine."""
    return value if isinstance(value, int) else value(target)


def lanes(target: Target) -> int:
    """Return how many float32 values a vector register of the target holds."""
    return target.vector_bits // 32


def relative_error(found: Array, expected: Array) -> float:
    """Return max|a-b| / max|b|; infinite if a value is not finite, or all expected ones are 0."""
    scale = float(np.abs(expected).max(initial=0.0))
    if found.shape != expected.shape or not np.isfinite(found).all() or scale == 0:
        return float("inf")
    return float(np.abs(found.astype(np.float64) - expected).max()) / scale
