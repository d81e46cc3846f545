"""Runs in a worker: applies a lesson's primitives, compiles, checks against numpy.

One process has all steps of a lesson, so that they share threads and memory; the step to be timed
is selected by its number.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from tvmscope.core.profile import Loop
from tvmscope.core.target import Target
from tvmscope.errors import BuildError, one_line
from tvmscope.learn import catalog
from tvmscope.learn.explain.broken_rule import broken_rule
from tvmscope.learn.explain.machine_code import hot_loop
from tvmscope.learn.facts import Built
from tvmscope.learn.lesson import Lesson, Params, Workload, relative_error
from tvmscope.learn.play.game import Position
from tvmscope.learn.play.moves import Move, loop_names, play
from tvmscope.machine import counters
from tvmscope.machine.caches import Cache
from tvmscope.machine.counters import Counted
from tvmscope.measure.remote import here
from tvmscope.messages import msg
from tvmscope.runtime import tvm_compat

if TYPE_CHECKING:
    from tvm import s_tir, tirx

_SEED = 0
_COUNT_S = 0.05
"""The least total duration of counted runs; at least one run."""


@dataclass(frozen=True, kw_only=True)
class Request:
    """The data about a lesson, or the reader's own file, that a worker needs."""

    lesson: str | None = None
    file: Path | None = None
    size: int
    threads: int
    target: Target
    caches: tuple[Cache, ...]


@dataclass(frozen=True)
class _Ready:
    module: Any
    tensors: list[Any]


class StepBuilder:
    """The runner of a worker; the worker times `run`."""

    def __init__(self, request: Request) -> None:
        tvm = tvm_compat.import_tvm(torch=False)
        tvm_compat.set_thread_count(tvm, request.threads)
        self.settings = {"threads": str(request.threads)}
        self.lesson = _lesson(request)
        self._request = request
        self.target = request.target
        self._ready: list[_Ready] = []
        self._arrays: dict[str, list[np.ndarray[Any, Any]]] = {}
        self._expected: dict[str, np.ndarray[Any, Any]] = {}
        self._current = 0

    def build(
        self, step: str, params: Mapping[str, int], chosen: Mapping[str, int]
    ) -> tuple[int, Built]:
        """Compile and check a step; its number selects it later.

        `params` are the lesson's, which a step may set differently; `chosen` are the reader's.
        """
        place = [s.name for s in self.lesson.steps].index(step)
        workload = self.lesson.workload_of(place)
        plain = workload.make(self._request.size)
        sch = self._scheduled(place, plain, params, chosen)
        module = self._compiled(sch)
        found = self._checked(workload, module, plain)
        built = self._described(workload, plain, sch, module, found)
        return len(self._ready) - 1, built

    def _scheduled(
        self,
        place: int,
        plain: tirx.PrimFunc,
        params: Mapping[str, int],
        chosen: Mapping[str, int],
    ) -> s_tir.Schedule:
        from tvm import s_tir

        sch = s_tir.Schedule(plain)
        target = self._request.target
        last = self.lesson.steps[place].numbers(target)
        for step in self.lesson.chain(place):
            if step.apply is None:
                continue
            try:
                numbers = {**params, **step.numbers(target), **last, **chosen}
                step.apply(sch, Params(numbers, target))
            except s_tir.ScheduleError as e:
                raise BuildError(broken_rule(e)) from e
        return sch

    def _compiled(self, sch: s_tir.Schedule) -> Any:
        import tvm

        from tvmscope.compiler.targets import to_tvm

        try:
            target = tvm.target.Target(to_tvm(self._request.target))
            return tvm.compile(sch.mod, target=target).mod
        except Exception as e:  # the reader is told of any compiler error
            raise BuildError(msg("TVM cannot compile it: {reason}", reason=one_line(e))) from e

    def _checked(self, workload: Workload, module: Any, plain: tirx.PrimFunc) -> tuple[float, bool]:
        import tvm

        arrays = self._inputs(workload, plain)
        tensors = [tvm.runtime.tensor(array) for array in arrays]
        module["main"](*tensors)
        self._ready.append(_Ready(module, tensors))
        error = relative_error(tensors[-1].numpy(), self._expected[workload.name])
        return error, error <= workload.tolerance

    def _inputs(self, workload: Workload, plain: tirx.PrimFunc) -> list[np.ndarray[Any, Any]]:
        if workload.name not in self._arrays:
            rng = np.random.default_rng(_SEED)
            arrays = [_filled(rng, p) for p in plain.params]
            if workload.inputs is not None:
                arrays[:-1] = workload.inputs(self._request.size)
            arrays[-1][...] = 0
            self._arrays[workload.name] = arrays
            self._expected[workload.name] = workload.reference(arrays[:-1])
        return self._arrays[workload.name]

    def _described(
        self,
        workload: Workload,
        plain: tirx.PrimFunc,
        sch: s_tir.Schedule,
        module: Any,
        found: tuple[float, bool],
    ) -> Built:
        from tvmscope.compiler.describe import kernel_ir, kernel_work
        from tvmscope.learn.explain import locality

        func = sch.mod["main"]
        work = kernel_work.count(plain)
        assembly = str(module.inspect_source("asm"))
        tree = kernel_ir.loop_tree(func)
        return Built(
            tree=tree,
            script=func.script(show_meta=False),
            assembly=assembly,
            hot=hot_loop(assembly),
            memory=locality.memory_of(func, self._request.caches),
            flops=work.flops if workload.flops is None else workload.flops(self._request.size),
            bytes=work.bytes,
            parallel=max((_parallel(node) for node in tree), default=1),
            launches=sum(_launches(node) for node in tree),
            guards=locality.conditions(func) - locality.conditions(plain),
            error=found[0],
            right=found[1],
        )

    def play(self, moves: Sequence[Move]) -> Position:
        """Build the lesson's plain loops with a player's moves."""
        from tvm import s_tir

        assert self.lesson.workload is not None
        plain = self.lesson.workload.make(self._request.size)
        sch = s_tir.Schedule(plain)
        try:
            play(sch, moves)
        except s_tir.ScheduleError as e:
            raise BuildError(broken_rule(e)) from e
        module = self._compiled(sch)
        found = self._checked(self.lesson.workload, module, plain)
        return Position(
            number=len(self._ready) - 1,
            built=self._described(self.lesson.workload, plain, sch, module, found),
            loops=loop_names(sch),
        )

    def matrices(self) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
        """Return the operands of a matrix product; they exist once something was built."""
        a, b, *_ = self._arrays[self.lesson.workload_of(0).name]
        return a, b

    def blas(self, values: int) -> list[float]:
        """Return the seconds of numpy's own matrix product."""
        a, b = self.matrices()
        found = []
        for _ in range(values + 1):
            start = time.perf_counter()
            np.matmul(a, b)
            found.append(time.perf_counter() - start)
        return found[1:]

    def select(self, number: int) -> None:
        self._current = number

    def run(self) -> None:
        ready = self._ready[self._current]
        ready.module["main"](*ready.tensors)

    def count(self, number: int) -> Counted:
        """Return the processor's counts of one run."""
        self.select(number)
        start = time.perf_counter()
        self.run()
        taken_s = max(time.perf_counter() - start, 1e-9)
        return counters.count(self.run, max(1, int(_COUNT_S / taken_s)))


def load(request: Request) -> StepBuilder:
    """Return the runner of a worker."""
    return StepBuilder(request)


def build(
    builder: StepBuilder, step: str, params: dict[str, int], chosen: dict[str, int]
) -> tuple[int, Built]:
    """Compile and check a step."""
    return builder.build(step, params, chosen)


def select(builder: StepBuilder, number: int) -> None:
    """Select the step to be timed next."""
    builder.select(number)


def count(builder: StepBuilder, number: int) -> Counted:
    """Count one run."""
    return builder.count(number)


def play_moves(builder: StepBuilder, moves: Sequence[Move]) -> Position:
    """Build a player's position."""
    return builder.play(moves)


def blas(builder: StepBuilder, values: int) -> list[float]:
    """Return numpy's time for the same computation."""
    return builder.blas(values)


def outline(builder: StepBuilder) -> tuple[str, dict[str, int], str]:
    """Return the name, the parameters with values, and the schedule of the reader's file."""
    step = builder.lesson.steps[-1]
    return builder.lesson.name, step.numbers(builder.target), step.code


LOAD, BUILD, SELECT, COUNT = here(load), here(build), here(select), here(count)
OUTLINE, PLAY, BLAS = here(outline), here(play_moves), here(blas)


def _lesson(request: Request) -> Lesson:
    if request.file is not None:
        from tvmscope.learn import user_file

        return user_file.read(request.file)
    assert request.lesson is not None
    return catalog.find(request.lesson)


def _filled(rng: np.random.Generator, buffer: tirx.Buffer) -> np.ndarray[Any, Any]:
    shape = tuple(int(d) for d in buffer.shape)
    dtype = str(buffer.dtype)
    if dtype.startswith("float"):
        return (2 * rng.random(shape, dtype=np.float32) - 1).astype(dtype)
    return rng.integers(-4 if dtype.startswith("int") else 0, 5, shape).astype(dtype)


def _parallel(node: Loop) -> int:
    own = node.extent or 1 if node.mode == "parallel" else 1
    return own * max((_parallel(inner) for inner in node.body), default=1)


def _launches(node: Loop) -> int:
    if node.mode == "parallel":
        return 1
    return (node.extent or 1) * sum(_launches(inner) for inner in node.body)
