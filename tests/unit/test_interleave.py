"""Warm-up, pace, rounds and stopping, on a fake clock."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from itertools import pairwise

import pytest

from tvmscope.core.measurement import Measurement
from tvmscope.core.options import MeasureOptions
from tvmscope.core.stats import median_s
from tvmscope.errors import RunError
from tvmscope.measure import stop
from tvmscope.measure.interleave import MAX_VALUES, WARMUP_S, Lane, interleave, plan


@dataclass
class FakeClock:
    now_s: float = 0.0
    turns: list[str] = field(default_factory=list)

    def __call__(self) -> float:
        return self.now_s


@dataclass
class FakeSubject:
    """A run takes `run_s`, more while it is fresh; time passes only here."""

    name: str
    clock: FakeClock
    run_s: float
    fresh_runs: int = 0
    noise: float = 0.0
    dies_at: int | None = None
    runs: int = 0
    calls: list[tuple[int, int, bool]] = field(default_factory=list)
    running: bool = False
    rng: random.Random = field(default_factory=lambda: random.Random(1))

    def time(self, n: int, loops: int = 1, cold: bool = False) -> list[float]:
        assert self.running
        self.calls.append((n, loops, cold))
        self.clock.turns.append(self.name)
        return [sum(self._run() for _ in range(loops)) / loops for _ in range(n)]

    def _run(self) -> float:
        self.runs += 1
        if self.runs == self.dies_at:
            raise RunError("dead")
        fresh = 1 + max(0, self.fresh_runs - self.runs) / 10
        taken = self.run_s * fresh * self.rng.uniform(1 - self.noise, 1 + self.noise)
        self.clock.now_s += taken
        return taken

    def time_device(self, n: int) -> list[float]:
        return [self.run_s / 2] * n

    def pause(self) -> None:
        self.running = False

    def resume(self) -> None:
        self.running = True


def measure(
    options: MeasureOptions, *run_s: float, clock: FakeClock | None = None, **how: float
) -> tuple[list[Lane], FakeClock]:
    clock = clock or FakeClock()
    subjects = [FakeSubject(f"s{i}", clock, t, **how) for i, t in enumerate(run_s)]  # type: ignore[arg-type]
    lanes = [Lane(s.name, s) for s in subjects]
    for _ in interleave(lanes, options, clock):
        assert not any(s.running for s in subjects)
    return lanes, clock


def subject(lane: Lane) -> FakeSubject:
    assert isinstance(lane.subject, FakeSubject)
    return lane.subject


def test_warm_up_goes_on_until_the_drift_ends_and_is_kept_apart() -> None:
    (short,), _ = measure(MeasureOptions(), 0.005)
    (long,), _ = measure(MeasureOptions(), 0.005, fresh_runs=80)
    assert sum(short.warmups_s) >= WARMUP_S
    assert len(long.warmups_s) > 80 > len(short.warmups_s)
    assert max(long.warmups_s) > 2 * max(v for r in long.rounds_s for v in r)


def test_warm_up_is_capped_when_the_drift_never_ends() -> None:
    (lane,), _ = measure(MeasureOptions(duration_s=8), 0.005, fresh_runs=10**6)
    assert sum(lane.warmups_s) < 4000


@pytest.mark.parametrize("run_s", [1e-5, 1e-4, 1e-2, 0.1, 0.5, 5.0])
def test_every_speed_gets_a_sensible_number_of_runs(run_s: float) -> None:
    options = MeasureOptions(duration_s=8)
    (lane,), clock = measure(options, run_s, noise=0.05)
    assert lane.pace is not None
    assert lane.pace.loops * run_s >= 19e-6
    assert lane.pace.loops == 1 or run_s < 20e-6
    values = sum(len(r) for r in lane.rounds_s)
    assert len(lane.rounds_s) >= (6 if run_s > 2 else 9)
    assert values <= 40 * MAX_VALUES
    assert clock.now_s <= max(15.0, stop.OVERTIME * 8 + 2 * run_s)
    if run_s <= 0.01:
        assert values >= 300
    assert median_s(Measurement(rounds_s=tuple(lane.rounds_s))) == pytest.approx(run_s, rel=0.05)


def test_fewer_rounds_than_asked_are_marked() -> None:
    (lane,), _ = measure(MeasureOptions(duration_s=1), 5.0)
    assert len(lane.rounds_s) == 3
    assert "only 3 rounds" in lane.notes[0]


def test_rounds_alternate_in_an_order_shuffled_from_the_seed() -> None:
    orders = {}
    for seed in (1, 1, 2):
        _, clock = measure(MeasureOptions(seed=seed, warmup=0), 0.02, 0.02, 0.02)
        previous = orders.setdefault(seed, clock.turns)
        assert previous == clock.turns
    assert orders[1] != orders[2]
    rounds = [tuple(orders[1][i : i + 3]) for i in range(0, 27, 3)]
    assert all(sorted(r) == ["s0", "s1", "s2"] for r in rounds)
    assert len(set(rounds)) > 2


def test_each_switch_is_re_warmed_outside_the_record() -> None:
    (a, _), _ = measure(MeasureOptions(), 0.004, 0.004)
    assert a.pace is not None
    assert a.pace.rewarm_runs * 0.004 >= 0.02
    rounds = subject(a).calls[-2 * len(a.rounds_s) :]
    assert set(rounds[::2]) == {(1, a.pace.rewarm_runs, False)}
    assert [n for n, _, _ in rounds[1::2]] == [len(r) for r in a.rounds_s]


def test_a_backend_over_ten_times_slower_gets_three_runs_and_a_note() -> None:
    (fast, slow, near), _ = measure(MeasureOptions(), 0.01, 0.11, 0.09)
    assert [len(r) for r in slow.rounds_s] == [1, 1, 1]
    assert "3 rounds of one run" in slow.notes[0]
    assert len(fast.rounds_s) >= 9
    assert len(near.rounds_s) >= 9
    assert not fast.notes
    assert not near.notes


def test_micro_runs_are_never_too_slow_to_measure() -> None:
    (_, slow), _ = measure(MeasureOptions(), 1e-5, 5e-4)
    assert len(slow.rounds_s) >= 9


@pytest.mark.parametrize(("iterations", "rounds"), [(1, 1), (5, 5), (9, 9), (100, 9)])
def test_iterations_of_the_user_are_exact(iterations: int, rounds: int) -> None:
    lanes, _ = measure(MeasureOptions(iterations=iterations, warmup=0), 0.01, 0.5)
    for lane in lanes:
        assert len(lane.rounds_s) == rounds
        assert sum(len(r) for r in lane.rounds_s) == iterations == subject(lane).runs
        assert max(map(len, lane.rounds_s)) - min(map(len, lane.rounds_s)) <= 1
        assert lane.warmups_s == ()


def test_warmups_of_the_user_are_exact_and_bound_the_re_warming() -> None:
    (lane, _), _ = measure(MeasureOptions(iterations=3, warmup=2), 0.001, 0.001)
    assert len(lane.warmups_s) == 2
    assert subject(lane).runs == 2 + 3 * (2 + 1)


def test_no_warm_up_learns_the_pace_from_the_first_round() -> None:
    (lane, slow), _ = measure(MeasureOptions(warmup=0), 0.002, 0.1)
    assert len(lane.rounds_s[0]) == 1
    assert len(lane.rounds_s[1]) > 100
    assert [len(r) for r in slow.rounds_s] == [1, 1, 1]


def test_cold_runs_are_single_and_asked_for_everywhere() -> None:
    (lane,), _ = measure(MeasureOptions(cache="cold", duration_s=1), 1e-5)
    assert lane.pace is not None
    assert lane.pace.loops == 1
    assert all(loops == 1 and cold for _, loops, cold in subject(lane).calls)


def test_stops_early_on_precision_but_not_before_half_the_time() -> None:
    (a, b), clock = measure(MeasureOptions(duration_s=20), 0.05, 0.06)
    assert 0.5 <= (a.used_s + b.used_s) / 2 / 20 < 0.7
    (a, b), clock = measure(MeasureOptions(duration_s=20), 0.05, 0.06, noise=0.5)
    assert 0.95 <= (a.used_s + b.used_s) / 2 / 20 < 1.2
    assert clock.now_s < 60


def test_stopping_does_not_look_at_the_difference() -> None:
    options = {"used_s": [6.0, 6.0], "duration_s": 10.0, "min_rounds": 9}
    wide = [[(1.0,), (1.5,)] * 5, [(4.0,), (4.9,)] * 5]
    narrow = [[(1.0,)] * 10, [(1.0,)] * 10]
    assert not stop.enough(wide, **options)  # surely different, yet imprecise
    assert stop.enough(narrow, **options)  # surely equal and precise


def test_a_failing_lane_leaves_and_the_others_go_on() -> None:
    clock = FakeClock()
    bad = FakeSubject("bad", clock, 0.001, dies_at=400)
    slow = FakeSubject("slow", clock, 0.1)
    lanes = [Lane("bad", bad), Lane("slow", slow)]
    for _ in interleave(lanes, MeasureOptions(), clock):
        pass
    assert str(lanes[0].failure) == "dead"
    assert len(lanes[1].rounds_s) == 3
    assert lanes[1].failure is None


def test_device_rounds_stand_beside_the_wall_clock() -> None:
    clock = FakeClock()
    lane = Lane("gpu", FakeSubject("gpu", clock, 0.002), has_device_timer=True)
    for _ in interleave([lane], MeasureOptions(), clock):
        pass
    assert len(lane.device_rounds_s) == len(lane.rounds_s)
    assert all(0 < len(r) <= 64 for r in lane.device_rounds_s)


def test_pace_fits_the_round_into_the_duration() -> None:
    options = MeasureOptions(duration_s=8)
    counts = [plan(t, t, t, options).values[0] for t in (0.001, 0.01, 0.1, 1.0)]
    assert all(a >= b >= 1 for a, b in pairwise(counts))
