"""A stable merge sort in parallel loops, which sorts only as many elements as are needed.

On a CPU, few elements of a long row are found in one pass instead, which keeps those in order that
are best so far.

TVM 0.27 sorts for a CPU in its runtime, one row after the other and each completely. On CUDA it
also sorts everything, with Thrust or, without it as in the wheel, with its own merge sort.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import log

from tvm import te, tirx
from tvm.script.ir_builder import tirx as T

from tvmscope.compiler.kernels.loops import Cells, extern, held, phases, variable

Expr = tirx.Expr
_CHUNK = 16
"""Elements that are ordered by counting, before runs of them are merged."""
_SORTED_STEPS = 10
"""What sorting takes for an element, in moves of a pass that keeps the best."""


def order(data: te.Tensor, most: int, *, descending: bool, gpu: bool) -> list[te.Tensor]:
    """Return the indices that sort each row stably; the first `most` of them are in order.

    NaN is larger than all numbers. The second result is the other half of the work space.
    """
    rows, length = (int(size) for size in data.shape)
    widths = [_CHUNK]
    while widths[-1] < length:
        widths.append(widths[-1] * 2)
    levels = len(widths) - 1

    def build(ins: Sequence[tirx.Buffer], outs: Sequence[tirx.Buffer]) -> tirx.Stmt:
        keys = T.buffer_proxy(ins[0])
        turns = [T.buffer_proxy(out) for out in outs]  # merged alternately from one to the other

        def rank(row: Expr, at: Expr) -> Expr:
            return _key(keys[row * length + at])

        def goes_first(a: Expr, b: Expr) -> Expr:
            return a > b if descending else a < b

        run = _Runs(rows, length, most, rank, goes_first)
        loops = [(rows * length, run.count(turns[levels % 2]), False)]
        for level, width in enumerate(widths[:-1]):
            source, goal = turns[(levels - level) % 2], turns[(levels - level - 1) % 2]
            loops.append(run.merge(source, goal, width, each=gpu))
        return phases(loops, gpu=gpu)

    shapes, kinds = [(rows, length)] * 2, ["int32"] * 2
    return extern(shapes, [data], build, kinds, "sort_order")


def is_few(most: int, length: int) -> bool:
    """Whether one pass finds the first `most` elements of a row sooner than sorting does.

    In a row without order, the n-th element belongs to the best so far with a chance of `most` / n,
    and half of those make room for it.
    """
    moved = most * (1 + log(length / most)) * most / 2
    return most < length and moved < _SORTED_STEPS * length


def first_few(data: te.Tensor, most: int, *, descending: bool) -> te.Tensor:
    """Return the indices of the first `most` elements of each row, as `order` does, on a CPU."""
    rows, length = (int(size) for size in data.shape)

    def build(ins: Sequence[tirx.Buffer], outs: Sequence[tirx.Buffer]) -> tirx.Stmt:
        keys, found = T.buffer_proxy(ins[0]), T.buffer_proxy(outs[0])

        def row(i: Expr) -> None:
            base, start = held(i * length, "int32"), held(i * most, "int32")

            def precedes(mine: Expr, place: Expr | int) -> Expr:
                theirs = _key(keys[base + found[start + place]])
                return mine > theirs if descending else mine < theirs

            with T.serial(0, length) as n:
                at, mine = held(n, "int32"), _key(keys[base + n])
                free, open_ = variable(), variable()
                free[0] = tirx.min(at, most)
                open_[0] = tirx.Cast("int32", at < most)
                with T.If(open_[0] == 0), T.Then():
                    open_[0] = tirx.Cast("int32", precedes(mine, most - 1))
                    free[0] = most - 1
                with T.If(open_[0] == 1), T.Then():
                    with T.While(open_[0] == 1):
                        open_[0] = tirx.const(0, "int32")
                        inside = T.If(free[0] > 0)
                        with inside, T.Then(), T.If(precedes(mine, free[0] - 1)), T.Then():
                            found[start + free[0]] = found[start + free[0] - 1]
                            free[0] = free[0] - 1
                            open_[0] = tirx.const(1, "int32")
                    found[start + free[0]] = at

        return phases([(rows, row, False)], gpu=False)

    (found,) = extern([(rows, most)], [data], build, ["int32"], "first_few")
    return found


@dataclass(frozen=True)
class _Runs:
    """Rows in ordered runs, of which only the first `most` elements matter."""

    rows: int
    length: int
    most: int
    rank: Callable[[Expr, Expr], Expr]
    """The sort key of the element at an index of a row."""
    first: Callable[[Expr, Expr], Expr]
    """Whether a number precedes another."""

    def _split(self, i: Expr, size: int) -> tuple[Expr, Expr]:
        return held(i // size, "int32"), held(i % size, "int32")

    def count(self, goal: Cells) -> Callable[[Expr], None]:
        """Write each element at its index in its chunk: the number of elements that precede it."""

        def place(i: Expr) -> None:
            row, at = self._split(i, self.length)
            start, mine = held(at // _CHUNK * _CHUNK), self.rank(row, at)
            before = variable()
            before[0] = tirx.const(0, "int32")
            with T.serial(0, tirx.min(_CHUNK, self.length - start)) as j:
                other = held(start + j, "int32")
                theirs = self.rank(row, other)
                earlier = tirx.all(other < at, tirx.Not(self.first(mine, theirs)))
                with T.If(tirx.any(self.first(theirs, mine), earlier)), T.Then():
                    before[0] = before[0] + 1
            goal[row * self.length + start + before[0]] = at

        return place

    def merge(
        self, source: Cells, goal: Cells, width: int, *, each: bool
    ) -> tuple[int, Callable[[Expr], None], bool]:
        """Return the loop that merges runs of `width` elements, by element or by pair of runs."""
        if each:
            place = self._find(source, goal, width)
            return self.rows * self.length, place, False
        pairs = -(-self.length // (2 * width))
        return self.rows * pairs, self._join(source, goal, width, pairs), False

    def _valid(self, start: Expr, width: int) -> Expr:
        return held(tirx.max(0, tirx.min(min(width, self.most), self.length - start)))

    def _find(self, source: Cells, goal: Cells, width: int) -> Callable[[Expr], None]:
        """Find by bisection how many elements of the other run precede this one."""

        def place(i: Expr) -> None:
            row, at = self._split(i, self.length)
            base, pair = held(row * self.length), held(at // (2 * width) * (2 * width))
            right = held(at - pair >= width, "int32")
            mine, others = held(pair + right * width), held(pair + (1 - right) * width)
            low, high = variable(), variable()
            low[0], high[0] = tirx.const(0, "int32"), self._valid(others, width)
            with T.If(at - mine < self._valid(mine, width)), T.Then():
                me = held(source[base + at])
                ours = self.rank(row, me)
                with T.While(low[0] < high[0]):
                    middle = held((low[0] + high[0]) // 2)
                    theirs = self.rank(row, source[base + others + middle])
                    equal = tirx.all(right == 1, tirx.Not(self.first(ours, theirs)))
                    with T.If(tirx.any(equal, self.first(theirs, ours))):
                        with T.Then():
                            low[0] = middle + 1
                        with T.Else():
                            high[0] = middle
                goal[base + pair + at - mine + low[0]] = me

        return place

    def _join(self, source: Cells, goal: Cells, width: int, pairs: int) -> Callable[[Expr], None]:
        """Take the better one of both runs' heads until there are enough."""

        def join(i: Expr) -> None:
            row, at = self._split(i, pairs)
            start = held(row * self.length + at * (2 * width))
            ends = [self._valid((2 * at + n) * width, width) for n in (0, 1)]
            a, b, second = variable(), variable(), variable()
            a[0] = b[0] = tirx.const(0, "int32")
            with T.serial(0, tirx.min(self.most, ends[0] + ends[1])) as n:
                second[0] = tirx.Cast("int32", a[0] >= ends[0])
                with T.If(tirx.all(a[0] < ends[0], b[0] < ends[1])), T.Then():
                    ranks = [self.rank(row, source[start + h]) for h in (a[0], width + b[0])]
                    second[0] = tirx.Cast("int32", self.first(ranks[1], ranks[0]))
                with T.If(second[0] == 1):
                    with T.Then():
                        goal[start + n] = source[start + width + b[0]]
                        b[0] = b[0] + 1
                    with T.Else():
                        goal[start + n] = source[start + a[0]]
                        a[0] = a[0] + 1

        return join


def _key(value: Expr) -> Expr:
    """Return an integer key that replaces a float: merging runs needs a total order.

    It is made from the bits, because LLVM may assume that there is no NaN.
    """
    kind = str(value.ty.dtype)
    if not kind.startswith(("float", "bfloat")):
        return held(value)
    width = 64 if kind == "float64" else 32
    whole, exponent = f"int{width}", {64: 0x7FF << 52, 32: 0xFF << 23}[width]
    most = tirx.const(2 ** (width - 1) - 1, whole)
    bits = held(tirx.reinterpret(whole, tirx.Cast(f"float{width}", value)))
    size = held(tirx.bitwise_and(bits, most))
    number = tirx.Select(bits < 0, tirx.const(0, whole) - size, size)  # both zeros become 0
    return held(tirx.Select(size > tirx.const(exponent, whole), most, number))
