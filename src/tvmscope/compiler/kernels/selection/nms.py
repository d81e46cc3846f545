"""Non-maximum suppression in parallel loops: a CPU's core, or a block of CUDA threads, per class.

TVM 0.27 has it for CPUs only: for CUDA it would make loops without threads, and sort the device's
memory with a host function.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tvm import te, tirx
from tvm.script.ir_builder import tirx as T

from tvmscope.compiler.kernels.loops import BLOCK, Cells, blocks, extern, held, phases, variable

Expr = tirx.Expr


@dataclass(frozen=True)
class Limits:
    """Boxes per class; the overlap above which a box is removed; the score that it must exceed."""

    most: int
    overlap: float
    score: float


def suppress(
    boxes: te.Tensor, scores: te.Tensor, ranked: te.Tensor, *, limits: Limits, gpu: bool
) -> list[te.Tensor]:
    """Return by row of `scores` (batch x classes) the boxes that stay, best first, and their count.

    `ranked` holds the indices of a row's boxes by score. The third result is a GPU's work space: it
    marks the suppressed ranks.
    """
    rows, length = (int(size) for size in scores.shape)
    classes = rows // int(boxes.shape[0])

    def build(ins: Sequence[tirx.Buffer], outs: Sequence[tirx.Buffer]) -> tirx.Stmt:
        buffers = [T.buffer_proxy(b) for b in (*ins, *outs)]
        loop = _Suppression(limits, length, classes, gpu, *buffers)
        if gpu:
            return blocks(rows, loop.together)
        return phases([(rows, loop.alone, False)], gpu=False)

    shapes = [(rows, limits.most), (rows,), (rows, length if gpu else 1)]
    return extern(shapes, [boxes, scores, ranked], build, ["int32"] * 3, "nms_suppress")


@dataclass(frozen=True)
class _Suppression:
    limits: Limits
    length: int
    classes: int
    gpu: bool
    boxes: Cells
    scores: Cells
    ranked: Cells
    chosen: Cells
    counts: Cells
    gone: Cells

    def alone(self, row: Expr) -> None:
        """Compare on one core each candidate with the boxes that stay so far."""
        rank, count, stays = variable(), variable(), variable()
        rank[0] = count[0] = tirx.const(0, "int32")
        with T.While(tirx.all(rank[0] < self.length, count[0] < self.limits.most)):
            box = held(self.ranked[row * self.length + rank[0]])
            score = self._score(row, box)
            stays[0] = tirx.Cast("int32", self._enough(score))
            with T.If(stays[0] == 1), T.Then():
                mine, better = self._sides(row, box), variable()
                better[0] = tirx.const(0, "int32")
                with T.While(tirx.all(better[0] < count[0], stays[0] == 1)):
                    other = held(self.chosen[row * self.limits.most + better[0]])
                    with T.If(self._overlap(mine, self._sides(row, other))), T.Then():
                        stays[0] = tirx.const(0, "int32")
                    better[0] = better[0] + 1
            with T.If(stays[0] == 1), T.Then():
                self.chosen[row * self.limits.most + count[0]] = box
                count[0] = count[0] + 1
            rank[0] = self._next(score, rank[0], 1)
        self.counts[row] = count[0]

    def together(self, row: Expr, thread: Expr) -> None:
        """In a block of threads, let each box that stays mark all boxes that it suppresses.

        All threads go through the same ranks. While one of them marks, the others read marks of
        earlier ranks only: after a box that stays they synchronise.
        """
        rank, count = variable(), variable()
        rank[0] = count[0] = tirx.const(0, "int32")
        with T.serial(0, -(-self.length // BLOCK)) as n:
            at = n * BLOCK + thread
            with T.If(at < self.length), T.Then():
                self.gone[row * self.length + at] = tirx.const(0, "int32")
        _wait()
        with T.While(tirx.all(rank[0] < self.length, count[0] < self.limits.most)):
            box = held(self.ranked[row * self.length + rank[0]])
            gone, score = held(self.gone[row * self.length + rank[0]]), self._score(row, box)
            with T.If(tirx.all(gone == 0, self._enough(score))), T.Then():
                with T.If(thread == 0), T.Then():
                    self.chosen[row * self.limits.most + count[0]] = box
                self._mark(row, box, rank[0] + 1 + thread)
                count[0] = count[0] + 1
                _wait()
            rank[0] = self._next(score, rank[0], 1)
        with T.If(thread == 0), T.Then():
            self.counts[row] = count[0]

    def _mark(self, row: Expr, box: Expr, first: Expr) -> None:
        """Mark every BLOCK-th rank from `first` that `box` suppresses."""
        mine, at = self._sides(row, box), variable()
        at[0] = tirx.Cast("int32", first)
        with T.While(at[0] < self.length):
            other = held(self.ranked[row * self.length + at[0]])
            score = self._score(row, other)
            with T.If(self._enough(score)), T.Then():
                taken = self._overlap(self._sides(row, other), mine)
                with T.If(taken), T.Then():
                    self.gone[row * self.length + at[0]] = tirx.const(1, "int32")
            at[0] = self._next(score, at[0], BLOCK)

    def _next(self, score: Expr, rank: Expr, step: int) -> Expr:
        """Return the next rank, or the end if none scores more. NaN comes first, ends nothing."""
        ends = score <= tirx.const(self.limits.score, "float32")
        return tirx.Select(ends, self.length, rank + step)

    def _enough(self, score: Expr) -> Expr:
        return score > tirx.const(self.limits.score, "float32")

    def _score(self, row: Expr, box: Expr) -> Expr:
        return held(self.scores[row * self.length + box], "float32")

    def _sides(self, row: Expr, box: Expr) -> list[Expr]:
        """Return the lower ends on both axes, then the upper ends; corners may be in any order."""
        first = held((row // self.classes * self.length + box) * 4, "int32")
        ends = [held(self.boxes[first + n], "float32") for n in range(4)]
        return [held(pick(ends[n], ends[n + 2])) for pick in (tirx.min, tirx.max) for n in (0, 1)]

    def _overlap(self, a: list[Expr], b: list[Expr]) -> Expr:
        shared = tirx.const(1.0, "float32")
        for n in (0, 1):
            side = held(tirx.min(a[n + 2], b[n + 2]) - tirx.max(a[n], b[n]))
            shared = held(self._times(shared, tirx.max(0.0, side)))
        areas = [self._times(box[2] - box[0], box[3] - box[1]) for box in (a, b)]
        joint = held(areas[0] + areas[1] - shared)
        limit = tirx.const(self.limits.overlap, "float32")
        share = self._rounded("__fdiv_rn", shared, joint) if self.gpu else shared / joint
        return tirx.all(joint > 0.0, share > limit)

    def _times(self, a: Expr, b: Expr) -> Expr:
        return self._rounded("__fmul_rn", a, b) if self.gpu else a * b

    def _rounded(self, function: str, a: Expr, b: Expr) -> Expr:
        """Round as the standard does: CUDA's compiler may divide faster and less exactly, or fuse a
        product and a sum, and boxes that overlap by exactly the limit would be removed."""
        return tirx.call_pure_extern("float32", function, a, b)


def collect(chosen: te.Tensor, counts: te.Tensor, *, classes: int, gpu: bool) -> list[te.Tensor]:
    """Return batch, class and box of all that stayed, one after the other, and their number."""
    rows, most = (int(size) for size in chosen.shape)

    def build(ins: Sequence[tirx.Buffer], outs: Sequence[tirx.Buffer]) -> tirx.Stmt:
        box, count, out, total = (T.buffer_proxy(b) for b in (*ins, *outs))

        def write(i: Expr) -> None:
            row, slot, before = i // most, i % most, variable()
            with T.If(slot < count[row]), T.Then():
                before[0] = tirx.const(0, "int32")
                with T.serial(0, row) as earlier:
                    before[0] = before[0] + count[earlier]
                for n, value in enumerate((row // classes, row % classes, box[i])):
                    out[(before[0] + slot) * 3 + n] = tirx.Cast("int64", value)

        def add(_: Expr) -> None:
            total[0] = tirx.const(0, "int64")
            with T.serial(0, rows) as row:
                total[0] = total[0] + tirx.Cast("int64", count[row])

        return phases([(rows * most, write, False), (1, add, True)], gpu=gpu)

    shapes = [(rows * most, 3), (1,)]
    return extern(shapes, [chosen, counts], build, ["int64"] * 2, "nms_collect")


def _wait() -> None:
    T.evaluate(tirx.call_intrin("void", "tirx.tvm_storage_sync", "shared"))
