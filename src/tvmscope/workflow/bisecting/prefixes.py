"""Verifies a model after each of its passes: the tests of a bisection."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, ParamSpec, TypeVar

from tvmscope.benchmark.verify import verify
from tvmscope.core.diagnosis.bisection import Probe
from tvmscope.core.measurement import Accuracy
from tvmscope.core.model import Prepared
from tvmscope.core.target import Target
from tvmscope.errors import TvmscopeError, one_line
from tvmscope.measure.remote import Remote, remote
from tvmscope.measure.worker import Worker, WorkerDied
from tvmscope.messages import Text, msg
from tvmscope.progress import Progress
from tvmscope.stages.builder import IMPORT_WITHOUT_TORCH
from tvmscope.stages.measure_rows import REFERENCES
from tvmscope.stages.options import Options
from tvmscope.stages.targets import threads_of

if TYPE_CHECKING:
    import tvmscope.compiler.bisect.prefixes

P = ParamSpec("P")
R = TypeVar("R")

_START = remote(lambda: tvmscope.compiler.bisect.prefixes.start)
_RUN_PREFIX = remote(lambda: tvmscope.compiler.bisect.prefixes.run_prefix)
_RUN_MIXED = remote(lambda: tvmscope.compiler.bisect.prefixes.run_mixed)
VALUES = remote(lambda: tvmscope.compiler.bisect.prefixes.values)
TIMEOUT_S = 3600.0


class Prefixes:
    """Lowers a model in a worker, which restarts when the code that it runs crashes it."""

    def __init__(
        self, ready: Prepared, target: Target, options: Options, scratch: Path, progress: Progress
    ) -> None:
        self.ready, self.target, self.options = ready, target, options
        self.scratch, self.progress = scratch, progress
        self.precision = options.precisions[0]
        known = self.precision.tolerance
        self.tolerance = known if options.tolerance is None else options.tolerance
        self.tested: list[Probe] = []
        self.names: tuple[str, ...] = ()
        """The passes in order."""
        self.changed: tuple[bool, ...] = ()
        """Which of them changed the module."""
        self.sources: tuple[tuple[str, ...], ...] = ()
        self._worker: Worker | None = None

    def start(self) -> Worker:
        """Return the worker with the lowered model."""
        if self._worker is None:
            threads = threads_of(self.options)
            env = {"TVM_NUM_THREADS": str(threads)}
            self._worker = Worker("bisect", env=env, timeout_s=TIMEOUT_S)
            if self.ready.model.format != "torch":
                self._worker.call(IMPORT_WITHOUT_TORCH)
            config = replace(self.options.compile, precision=self.precision, threads=threads)
            self.progress.stage(msg("lower"), self.ready.model.name)
            self.names, self.changed, self.sources = self._worker.call(
                _START, self.ready, self.target, config, threads
            )
        return self._worker

    def call(self, function: Remote[P, R], *args: P.args, **kw: P.kwargs) -> R:
        """Run a function of the compiler on the lowered model."""
        try:
            return self.start().call(function, *args, **kw)
        except WorkerDied:
            self._worker = None
            raise

    def close(self) -> None:
        """End the process."""
        if self._worker is not None:
            self._worker.kill()

    def after(self, count: int) -> Accuracy | None:
        """Verify the model after `count` passes and plain lowering; None if it cannot be run."""
        name = msg("as imported")
        if count:
            name = msg("after {name}", name=self.names[count - 1])
        return self._test(name, lambda outputs: self.call(_RUN_PREFIX, count, outputs))

    def mixed(self, low: int, high: int, kernels: Sequence[str], name: Text) -> Accuracy | None:
        """Verify the model after `low` passes, with some kernels as they are after `high`."""
        some = tuple(kernels)
        return self._test(name, lambda outputs: self.call(_RUN_MIXED, low, high, some, outputs))

    def _test(self, name: Text, run: Callable[[str], None]) -> Accuracy | None:
        self.progress.stage(msg("test"), name)
        outputs = self.scratch / "outputs.npz"
        try:
            run(str(outputs))
            found = self.check(outputs)
        except WorkerDied as e:  # code that crashes counts as wrong
            found = Accuracy(
                reference=REFERENCES[self.ready.model.format], passed=False, max_abs=None,
                error=None, cosine=None, tolerance=self.tolerance, detail=e.reason,
            )  # fmt: skip
        except TvmscopeError as e:
            self.tested.append(Probe(name=name, passed=None, detail=one_line(e)))
            return None
        self.tested.append(Probe(name=name, passed=found.passed, detail=found.detail))
        return found

    def check(self, outputs: Path) -> Accuracy:
        """Compare outputs with the framework's, like `verify` everywhere."""
        return verify(
            outputs,
            self.ready.reference_path,
            self.tolerance,
            REFERENCES[self.ready.model.format],
            atol=self.options.atol,
        )

    def between(self, low: int, high: int) -> tuple[str, ...]:
        """Return the passes from `low` to `high` that changed something; all if none did."""
        pairs = list(zip(self.names, self.changed, strict=True))[low:high]
        return tuple(name for name, changed in pairs if changed) or self.names[low:high]

    def operators(self, labels: Sequence[int]) -> tuple[str, ...]:
        """Return the model's operators of some sources."""
        return tuple(dict.fromkeys(op for i in labels for op in self.sources[i]))


def first_bad(
    count: int, judge: Callable[[int], Accuracy | None], tell: Callable[[int], None]
) -> tuple[int, int]:
    """Bisect positions, the first good and the last bad; return the last good and the first bad.

    If the judge has no answer for a position, the two may not be adjacent.
    """
    low, high, unknown = 0, count - 1, set()
    while between := [i for i in range(low + 1, high) if i not in unknown]:
        tell(len(between))
        middle = between[len(between) // 2]
        answer = judge(middle)
        if answer is None:
            unknown.add(middle)
        elif answer.passed:
            low = middle
        else:
            high = middle
    return low, high
