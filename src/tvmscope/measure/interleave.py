"""Times several subjects in turns, so that a slow minute of the machine affects all of them."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import count
from math import ceil
from statistics import median
from typing import Protocol

from tvmscope.core.options import MeasureOptions
from tvmscope.core.stats import settled
from tvmscope.errors import TvmscopeError
from tvmscope.measure import stop
from tvmscope.messages import Text, msg, msgn

Clock = Callable[[], float]

WARMUP_S = 0.2
BLOCK_S = 0.05
BLOCK_VALUES = 20
VALUE_S = 20e-6
"""A value covers at least this duration: the timer and the call cost some 0.1 us."""
TARGET_ROUNDS = 20
"""With more, shorter rounds than the minimum, paired values are closer in time."""
MAX_ROUNDS = 40
MAX_VALUES = 256
REWARM_S = (0.02, 0.05)
LONG_RUN_S = 1.0
"""For longer runs, a switch (some ms to refill caches) is below 1 %: no re-warming."""
SLOW_FACTOR = 10.0
SLOW_RUN_S = 0.1
"""For shorter runs there is little time to save, and three runs would be mostly noise."""
SLOW_ROUNDS = 3
MAX_DEVICE_VALUES = 64
_SLOW_NOTE = msg(
    "over {factor:g} times slower than the fastest: measured in {rounds} rounds of one run",
    factor=SLOW_FACTOR,
    rounds=SLOW_ROUNDS,
)


class Subject(Protocol):
    """An object that can be timed: a worker, or a fake in the tests."""

    def time(self, n: int, loops: int = 1, cold: bool = False) -> list[float]: ...

    def time_device(self, n: int) -> list[float]: ...

    def pause(self) -> None: ...

    def resume(self) -> None: ...


@dataclass(frozen=True, kw_only=True)
class Pace:
    """How one subject is timed in each round."""

    loops: int = 1
    values: tuple[int, ...]
    """Values per round; the number of entries is the largest number of rounds."""
    rewarm_runs: int = 0
    slow: bool = False


@dataclass
class Lane:
    """One subject and its measurements; a failure removes it, the others continue."""

    name: str
    subject: Subject
    has_device_timer: bool = False
    pace: Pace | None = None
    run_s: float | None = None
    cost_s: float | None = None
    """Wall time per run including everything around it, such as emptying the caches."""
    used_s: float = 0.0
    warmups_s: tuple[float, ...] = ()
    rounds_s: list[tuple[float, ...]] = field(default_factory=list)
    device_rounds_s: list[tuple[float, ...]] = field(default_factory=list)
    failure: TvmscopeError | None = None
    notes: tuple[Text, ...] = ()
    watch: Callable[[], object] | None = None
    """Called directly after each round, while the machine is still in the same state."""


def interleave(
    lanes: Sequence[Lane], options: MeasureOptions, clock: Clock = time.monotonic
) -> Iterator[None]:
    """Warm up and time all lanes in place; yield after each warm-up and each round."""
    order = random.Random(options.seed)
    for lane in lanes:
        _guarded(lane, partial(warm_up, lane, options, clock))
        yield
    _plan(lanes, options)
    for number in count():
        alive = [lane for lane in lanes if lane.failure is None]
        active = [lane for lane in alive if lane.pace and number < len(lane.pace.values)]
        if not active or (options.iterations is None and _enough(alive, options)):
            break
        order.shuffle(active)
        for lane in active:
            _guarded(lane, partial(_round, lane, number, options, clock))
        if number == 0:
            _plan(lanes, options)  # without a warm-up, the first round gives the first estimate
        yield
    _note_few_rounds(lanes, options)


def _guarded(lane: Lane, work: Callable[[], None]) -> None:
    if lane.failure is not None:
        return
    try:
        lane.subject.resume()
        work()
    except TvmscopeError as e:
        lane.failure = e
    finally:
        lane.subject.pause()


def warm_up(lane: Lane, options: MeasureOptions, clock: Clock) -> None:
    """Run until the times stop drifting, or as often as the user says; keep samples separate."""
    cold = options.cache == "cold"
    if options.warmup is not None:
        if options.warmup:
            lane.warmups_s = tuple(_timed(lane, options.warmup, 1, cold, clock))
            lane.run_s = median(lane.warmups_s[-BLOCK_VALUES:])
        return
    cap_s = max(1.0, options.duration_s / 4)
    start = clock()
    samples = _timed(lane, 1, 1, cold, clock)
    blocks: list[float] = []
    costs_s = [lane.cost_s or BLOCK_S]
    while (spent := clock() - start) < cap_s and not (spent >= WARMUP_S and settled(blocks)):
        runs = max(1, round(BLOCK_S / costs_s[-1]))
        loops = 1 if cold else ceil(runs / BLOCK_VALUES)
        block = _timed(lane, max(1, runs // loops), loops, cold, clock)
        blocks.append(median(block))
        costs_s.append(lane.cost_s or BLOCK_S)
        samples += block
    lane.warmups_s = tuple(samples)
    lane.run_s = median(blocks[-4:] or samples)
    lane.cost_s = median(costs_s[-4:])


def _timed(lane: Lane, n: int, loops: int, cold: bool, clock: Clock) -> list[float]:
    start = clock()
    values = lane.subject.time(n, loops, cold)
    lane.cost_s = max(clock() - start, 1e-9) / (n * loops)
    return values


def _plan(lanes: Sequence[Lane], options: MeasureOptions) -> None:
    """Set every lane's pace, once the run times of all are known."""
    known = [lane.run_s for lane in lanes if lane.failure is None and lane.run_s is not None]
    for lane in lanes:
        if lane.failure is None and (lane.pace is None or not lane.warmups_s):
            lane.pace = plan(lane.run_s, lane.cost_s, min(known, default=None), options)
            if lane.pace.slow and not lane.notes:
                lane.notes = (_SLOW_NOTE,)


def plan(
    run_s: float | None, cost_s: float | None, fastest_s: float | None, options: MeasureOptions
) -> Pace:
    """Return the pace of a subject whose run takes `run_s` and costs `cost_s` of wall time.

    Without an estimate (no warm-up was requested), rounds begin with one run each.
    """
    limit = max(MAX_ROUNDS, options.min_rounds)
    if options.iterations is not None:
        rounds = min(options.iterations, options.min_rounds)
        sizes = tuple(options.iterations * (i + 1) // rounds for i in range(rounds))
        values = tuple(b - a for a, b in zip((0, *sizes), sizes, strict=False))
        return Pace(values=values, rewarm_runs=_rewarm_runs(run_s, cost_s, options))
    if run_s is None or cost_s is None or fastest_s is None:
        return Pace(values=(1,) * limit)
    rewarm_runs = _rewarm_runs(run_s, cost_s, options)
    if run_s > SLOW_FACTOR * fastest_s and run_s >= SLOW_RUN_S:
        return Pace(values=(1,) * SLOW_ROUNDS, rewarm_runs=rewarm_runs, slow=True)
    single = options.cache == "cold" or options.warmup == 0
    loops = 1 if single else max(1, ceil(VALUE_S / run_s))
    round_s = options.duration_s / max(TARGET_ROUNDS, options.min_rounds)
    fitting = int((round_s - rewarm_runs * cost_s) / (cost_s * loops))
    values = (max(1, min(fitting, MAX_VALUES)),) * limit
    return Pace(loops=loops, values=values, rewarm_runs=rewarm_runs)


def _rewarm_runs(run_s: float | None, cost_s: float | None, options: MeasureOptions) -> int:
    """Return the unrecorded runs after a switch; never more than the user's warm-up."""
    if options.warmup == 0 or run_s is None or cost_s is None or run_s >= LONG_RUN_S:
        return 0
    low, high = REWARM_S
    span_s = min(high, max(low, 0.15 * options.duration_s / TARGET_ROUNDS))
    runs = max(1, ceil(span_s / cost_s))
    return runs if options.warmup is None else min(runs, options.warmup)


def _round(lane: Lane, number: int, options: MeasureOptions, clock: Clock) -> None:
    assert lane.pace is not None
    pace, cold, start = lane.pace, options.cache == "cold", clock()
    if pace.rewarm_runs:
        n, loops = (pace.rewarm_runs, 1) if cold else (1, pace.rewarm_runs)
        lane.subject.time(n, loops, cold)
    n = pace.values[number]
    values = _timed(lane, n, pace.loops, cold, clock)
    if lane.has_device_timer:
        shown = n if options.iterations is not None else min(n, MAX_DEVICE_VALUES)
        lane.device_rounds_s.append(tuple(lane.subject.time_device(shown)))
    if lane.watch is not None:
        lane.watch()
    lane.rounds_s.append(tuple(values))
    lane.run_s = median(values) if lane.run_s is None else lane.run_s
    lane.used_s += clock() - start


def _enough(lanes: Sequence[Lane], options: MeasureOptions) -> bool:
    usual = [lane for lane in lanes if lane.pace and not lane.pace.slow]
    if not usual:  # the fastest is gone; the slow ones end after their own number of rounds
        return False
    return stop.enough(
        [lane.rounds_s for lane in usual],
        [lane.used_s for lane in usual],
        duration_s=options.duration_s,
        min_rounds=options.min_rounds,
    )


def _note_few_rounds(lanes: Sequence[Lane], options: MeasureOptions) -> None:
    for lane in lanes:
        taken = len(lane.rounds_s)
        if lane.failure or options.iterations is not None or (lane.pace and lane.pace.slow):
            continue
        if taken < options.min_rounds:
            limit_s = stop.OVERTIME * options.duration_s
            note = msgn(
                "only {count} round fitted into {limit:g} s; give more time",
                "only {count} rounds fitted into {limit:g} s; give more time",
                count=taken,
                limit=limit_s,
            )
            lane.notes += (note,)
