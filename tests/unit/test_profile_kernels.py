"""Profiles of a row: what the parts are, how runs are chosen, and what a failure becomes."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from support import fakes, samples
from support.rows import key
from tvmscope.backends.api import Span, Trace, idle_s
from tvmscope.core.profile import Profile
from tvmscope.core.session import Session, load
from tvmscope.errors import RunError
from tvmscope.measure.remote import here
from tvmscope.measure.worker import WorkerDied
from tvmscope.profiling.kernels import merge, profile_row, summarize
from tvmscope.progress import Silent
from tvmscope.stages import profile
from tvmscope.stages.job import Job
from tvmscope.stages.measure_rows import MeasuredRows
from tvmscope.stages.options import Options
from tvmscope.workflow import analyze


def _profile(**request: Any) -> Profile:
    return profile_row(
        fakes.task("fake").key,
        here(fakes.load_profiled),
        request,
        fakes.ENV,
        timeout_s=20,
        budget_s=0.1,
    )


def test_a_row_is_profiled_in_its_own_worker_beside_plain_runs() -> None:
    found = _profile()
    assert (found.key, found.how) == (key("fake", "cpu"), "a fake")
    assert found.runs >= 5
    assert found.end_to_end_s >= 1e-3
    assert found.profiled_s >= 1e-3
    assert found.host_s == pytest.approx(3e-4)
    conv, copy = found.kernels
    assert (conv.name, conv.source_ops, conv.calls) == ("conv", ("a/conv", "a/relu"), 1)
    assert conv.total_s == pytest.approx(6e-4)
    assert (conv.flops, conv.bytes) == (1e6, 2e3)
    assert (copy.kind, copy.flops, copy.bytes) == ("layout", None, None)


def test_a_slow_model_runs_once_each_way() -> None:
    assert _profile(run_s=0.05).runs == 1


def test_a_single_trace_is_the_mean_of_all_runs() -> None:
    assert _profile(whole=True).kernels[0].total_s == pytest.approx(6e-4)


def test_a_crash_under_the_instrument_is_an_error_that_says_so() -> None:
    with pytest.raises(WorkerDied, match="signal"):
        _profile(fault="segfault", at=2)


def test_a_disturbed_run_does_not_count() -> None:
    traces = [Trace((Span("k", ("a",), s),), s / 10) for s in (1.0, 1.0, 9.0, 1.0)]
    found = summarize(key("b"), "x", [1, 1, 1, 9], [1.1, 1.1, 9.1, 1.1], traces)
    assert found.kernels[0].total_s == pytest.approx(1.0)
    assert found.end_to_end_s == pytest.approx(1.0)
    assert found.profiled_s == pytest.approx(1.1)
    assert found.host_s == pytest.approx(0.1)


def test_the_first_run_of_every_turn_does_not_count() -> None:
    traces = [Trace((Span("k", ("a",), s),)) for s in (5.0, 1.0, 5.0, 1.0)]
    found = summarize(key("b"), "x", [5, 1, 5, 1], [5, 1, 5, 1], traces, stride=2)
    assert (found.runs, found.end_to_end_s, found.profiled_s) == (2, 1.0, 1.0)
    assert found.kernels[0].total_s == 1.0
    assert found.host_s is None


def test_a_lost_trace_is_an_error() -> None:
    with pytest.raises(RunError, match="2 traces of 3"):
        summarize(key("b"), "x", [1], [1, 1, 1], [Trace(())] * 2)


def test_calls_of_one_kernel_are_kept_apart_by_their_source() -> None:
    spans = (
        Span("k", ("a",), 1.0, flops=3.0),
        Span("k", ("b",), 2.0),
        Span("k", ("a",), 3.0, flops=1),
    )
    first, second = merge([Trace(spans)])
    assert (first.source_ops, first.calls, first.total_s, first.flops) == (("a",), 2, 4.0, 4.0)
    assert (second.source_ops, second.calls, second.flops) == (("b",), 1, None)


def test_idle_time_counts_overlaps_once() -> None:
    assert idle_s([(1, 3), (2, 4), (6, 7)], 0, 10) == 1 + 2 + 3


def _after(session: Session, *entries: Any) -> Session:
    *_, last = profile.profile_entries(session, list(entries), Options(), Silent())
    return last


def _entry(**request: Any) -> Any:
    made = fakes.entry("fake", load=fakes.load_profiled, **request)
    return replace(made, request=_Request(request))


class _Request(dict[str, Any]):
    artifact = None


def test_a_failed_profile_is_a_warning_and_the_others_go_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(profile, "_with_roofs", lambda session, progress: session)
    session = replace(samples.complete(), profiles=(), warnings=())
    found = _after(session, _entry(fault="error"), _entry())
    assert [p.key for p in found.profiles] == [key("fake", "cpu")]
    (warning,) = found.warnings
    assert "not profiled" in warning
    assert "ValueError" in warning
    assert found.results == session.results


def test_an_interrupted_profile_keeps_the_measured_rows(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    session = replace(samples.complete(), profiles=(), complete=False)

    def interrupted(*_: Any) -> Any:
        raise KeyboardInterrupt

    measured = MeasuredRows(session.results, session.comparisons)
    monkeypatch.setattr(analyze, "measure_rows", lambda *_, **__: measured)
    monkeypatch.setattr(analyze, "plan_rows", lambda *_: [])
    monkeypatch.setattr(analyze, "build_rows", lambda *_, **__: ())
    monkeypatch.setattr(analyze, "profile_rows", interrupted)
    fields = {"model": session.model, "folder": tmp_path, "reference_path": tmp_path}
    ready: Any = type("Ready", (), fields)
    job = Job(
        ready=ready, options=Options(), progress=Silent(), folder=tmp_path,
        session=replace(session, results=()),
    )  # fmt: skip
    with pytest.raises(KeyboardInterrupt):
        analyze.analyze_loaded(job)
    kept = load(tmp_path)
    assert len(kept.results) == len(session.results)
    assert not kept.complete
