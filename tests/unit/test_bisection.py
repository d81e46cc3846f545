"""The search and the words of a bisection, without a compiler."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from support import samples
from support.rows import key
from tvmscope.benchmark.verify import mismatch
from tvmscope.core.diagnosis.bisection import Bisection, Probe
from tvmscope.core.session import Session
from tvmscope.errors import BuildError
from tvmscope.progress import Silent
from tvmscope.report.terminal.bisection import headline, render
from tvmscope.stages.options import Options
from tvmscope.workflow.bisecting import bisect as job
from tvmscope.workflow.bisecting.prefixes import first_bad

WRONG = samples.accuracy(0.5, passed=False, detail="output 'y': far off")


def judged(bad: int, unknown: tuple[int, ...] = ()):
    asked: list[int] = []

    def judge(place: int):
        asked.append(place)
        return None if place in unknown else samples.accuracy(passed=place < bad)

    return judge, asked


@pytest.mark.parametrize("bad", range(1, 33))
def test_the_first_bad_place_is_found_in_few_steps(bad: int) -> None:
    judge, asked = judged(bad)
    assert first_bad(33, judge, lambda left: None) == (bad - 1, bad)
    assert len(asked) <= 5


def test_places_that_cannot_be_judged_widen_the_answer() -> None:
    judge, _ = judged(10, unknown=(9, 10))
    assert first_bad(20, judge, lambda left: None) == (8, 11)


def test_two_places_need_no_test() -> None:
    judge, asked = judged(1)
    assert first_bad(2, judge, lambda left: None) == (0, 1)
    assert asked == []


def test_inner_values_may_be_infinite_in_the_same_places() -> None:
    mask = np.array([0.0, -np.inf, np.nan], np.float32)
    assert mismatch(mask.copy(), mask, 1e-4) is None
    assert "reference" in (mismatch(np.zeros(3, np.float32), mask, 1e-4) or "")
    assert "in this output only" in (mismatch(mask, np.zeros(3, np.float32), 1e-4) or "")
    assert mismatch(np.zeros(3, np.float32), np.zeros(3, np.float32), 1e-4) is None
    assert "over the tolerance" in (mismatch(np.ones(3), np.ones(3) * 2, 1e-4) or "")
    assert "shape" in (mismatch(np.ones(3), np.ones(4), 1e-4) or "")
    assert "integers differ" in (mismatch(np.arange(3), np.arange(3) + 1, 1e-4) or "")


def found(**more) -> Bisection:
    return Bisection(
        **{"model": "net", "target": "cpu:x", "outcome": "pass", "accuracy": WRONG, **more}
    )  # fmt: skip


def test_every_outcome_has_its_sentence() -> None:
    ops = ("conv1/Conv",)
    assert "nothing diverges" in headline(found(outcome="nothing"))
    assert "from conv1/Conv on" in headline(found(outcome="reference", source_ops=ops))
    assert "as soon as it is imported" in headline(found(outcome="importer", source_ops=ops))
    text = headline(found(passes=("fuse-ops", "fuse-tir"), source_ops=ops))
    assert text == "pass fuse-ops, fuse-tir makes it wrong, first at conv1/Conv"
    text = headline(found(outcome="schedule", kernel="k", rule="rows", source_ops=ops))
    assert "kernel k is wrong (rule rows)" in text


def test_a_reproducer_that_shows_nothing_is_not_called_a_proof() -> None:
    shown = "\n".join(render(found(reproducer=Path("out"), reproduced=False)))
    assert "does NOT reproduce it" in shown
    shown = "\n".join(render(found(reproducer=Path("out"), reproduced=True, alone=True)))
    assert "reproduces it with that operator alone" in shown
    test = Probe(name="after legalize", passed=None, detail="no")
    assert "after legalize: cannot be run: no" in "\n".join(
        render(found(tested=(test,)), verbose=True)
    )


def wrong(build_s: float) -> Session:
    ours = key("tvmscope", pipeline="tvmscope")
    row = samples.result(ours, 0.05, status="wrong", accuracy=WRONG, build_s=build_s)
    return samples.session(row)


def suspected(session: Session, **more) -> tuple[str, ...]:
    options = Options.of(target="cpu", shapes={"x": (1, 3)}, **more)
    return job.explain_wrong_rows(session, None, options, Path("out"), Silent())  # type: ignore[arg-type]


def test_a_model_that_compiles_slowly_is_not_bisected_unasked(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(job, "bisect_prepared", lambda *_: pytest.fail("it takes minutes"))
    (line,) = suspected(wrong(100.0))
    assert "tvmscope bisect" in line
    assert "--target cpu --shapes x:1x3" in line


def test_a_search_that_fails_leaves_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_):
        raise BuildError("no")

    monkeypatch.setattr(job, "bisect_prepared", fail)
    (line,) = suspected(wrong(1.0))
    assert "tvmscope bisect" in line


def test_right_rows_raise_no_suspicion() -> None:
    assert suspected(samples.session(samples.result("tvmscope", 0.05))) == ()
