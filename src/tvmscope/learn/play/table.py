"""The worker of a game: it builds and times a lesson's plain loops with moves."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median

from tvmscope.learn import step_builder
from tvmscope.learn.lesson import Lesson
from tvmscope.learn.play import rivals
from tvmscope.learn.play.game import VALUES, Entry, Game, Position, Rival
from tvmscope.learn.play.moves import Move
from tvmscope.learn.step_bench import Bench
from tvmscope.measure.worker import Worker, run_isolated
from tvmscope.messages import Text, msg


class WorkerTable:
    """A worker that builds steps."""

    def __init__(self, worker: Worker) -> None:
        self._worker = worker

    def build(self, moves: Sequence[Move]) -> Position:
        return self._worker.apply(step_builder.PLAY, tuple(moves))

    def time(self, number: int, values: int) -> list[float]:
        self._worker.apply(step_builder.SELECT, number)
        self._worker.time(1)
        return self._worker.time(values)


def opened(bench: Bench, lesson: Lesson) -> Game:
    """Return a game of a lesson's loops, with the opponents already measured."""
    worker = bench.worker(bench.study.threads)
    game = Game(WorkerTable(worker))
    game.start(_rivals(worker, bench, lesson))
    return game


def _rivals(worker: Worker, bench: Bench, lesson: Lesson) -> list[Rival]:
    """Return TVM's default, the lesson's end, our rule, MetaSchedule, and the libraries."""
    table, study = WorkerTable(worker), bench.study
    own = {p.name: p.value(study.target) for p in lesson.parameters}
    flops = table.build(()).built.flops

    def entry(name: Text, seconds: float) -> Entry:
        return Entry(
            name=name, seconds=seconds, gflops=None if flops is None else flops / seconds * 1e-9
        )

    def default() -> Entry:
        times = table.time(table.build(()).number, 3)
        return entry(msg("plain loops: TVM's default"), median(times))

    def last() -> Entry:
        number, _ = worker.apply(step_builder.BUILD, lesson.steps[-1].name, own, {})
        return entry(msg("the lesson's last step"), median(table.time(number, VALUES)))

    def ours() -> Entry:
        times = worker.apply(rivals.OURS, VALUES)
        return entry(msg("tvmscope's rule, B packed"), median(times))

    def searched() -> Entry:
        seconds, tried = worker.apply(rivals.SEARCHED, rivals.BUDGET_S)
        return entry(msg("MetaSchedule, {tried} tried", tried=tried), seconds)

    def blas() -> Entry:
        return entry(msg("numpy's BLAS"), median(worker.apply(step_builder.BLAS, VALUES)))

    def pytorch() -> Entry:
        library, times = run_isolated(rivals.PYTORCH, study.size, study.threads, VALUES)
        return entry(msg("PyTorch's {library}", library=library), median(times))

    return [
        (msg("TVM's default"), default),
        (msg("the lesson's last step"), last),
        (msg("tvmscope's rule"), ours),
        (msg("MetaSchedule"), searched),
        (msg("numpy's BLAS"), blas),
        (msg("PyTorch"), pytorch),
    ]
