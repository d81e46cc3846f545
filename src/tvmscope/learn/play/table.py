"""Where a game is played: one worker that builds and times a lesson's plain loops with moves."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median

from tvmscope.learn import workshop
from tvmscope.learn.lesson import Lesson
from tvmscope.learn.play.game import VALUES, Game, Position, Rival
from tvmscope.learn.play.moves import Move
from tvmscope.learn.run import Bench
from tvmscope.measure.worker import Worker
from tvmscope.messages import msg


class WorkerTable:
    """A worker's workshop."""

    def __init__(self, worker: Worker) -> None:
        self._worker = worker

    def build(self, moves: Sequence[Move]) -> Position:
        return self._worker.apply(workshop.PLAY, tuple(moves))

    def time(self, number: int, values: int) -> list[float]:
        self._worker.apply(workshop.SELECT, number)
        self._worker.time(1)
        return self._worker.time(values)


def opened(bench: Bench, lesson: Lesson) -> Game:
    """A game of a lesson's loops, with those to beat already measured."""
    worker = bench.worker(bench.study.threads)
    game = Game(WorkerTable(worker))
    game.start(_rivals(worker, bench, lesson))
    return game


def _rivals(worker: Worker, bench: Bench, lesson: Lesson) -> list[Rival]:
    table = WorkerTable(worker)
    own = {p.name: p.value(bench.study.target) for p in lesson.parameters}

    def plain() -> tuple[float, float | None]:
        position = table.build(())
        return _speed(median(table.time(position.number, 3)), position.built.flops)

    def best() -> tuple[float, float | None]:
        number, built = worker.apply(workshop.BUILD, lesson.steps[-1].name, own, {})
        return _speed(median(table.time(number, VALUES)), built.flops)

    def blas() -> tuple[float, float | None]:
        flops = table.build(()).built.flops
        return _speed(median(worker.apply(workshop.BLAS, VALUES)), flops)

    return [
        (msg("plain loops: TVM as it comes"), plain),
        (msg("the lesson's last step"), best),
        (msg("numpy's BLAS"), blas),
    ]


def _speed(seconds: float, flops: float | None) -> tuple[float, float | None]:
    return seconds, None if flops is None else flops / seconds * 1e-9
