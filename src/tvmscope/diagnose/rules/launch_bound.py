"""Runs of small kernels in which starting a kernel costs as much as running it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from tvmscope.core import stats
from tvmscope.core.diagnosis.findings import Finding
from tvmscope.core.session import Session
from tvmscope.diagnose.rule import Rule
from tvmscope.diagnose.view import Subject, subjects
from tvmscope.messages import Seconds, Text, msg

MUCH = 0.1
"""The share of the run between kernels from which launches are reported as the cause."""
_FEWEST = 10
TINY_S = {"cpu": 50e-6, "cuda": 10e-6}
"""The launch of a kernel with a shorter mean time takes about as long as the kernel."""
_LEFT = {"cpu": 0.7, "cuda": 0.2}
"""The share of the launch time that remains: with compiled VM code on a CPU, with one launch of a
graph on a GPU. Used if the session has not measured it."""


def check(session: Session) -> Iterator[Finding]:
    for subject in subjects(session):
        between = _between(subject)
        calls = sum(k.time.calls for k in subject.kernels)
        if between is None or calls < _FEWEST or between < MUCH * subject.run_s:
            continue
        if subject.profile.total_s / calls < TINY_S.get(subject.device, 0.0):
            yield _finding(subject, between, calls, _graph_saving(session, subject))


def _between(subject: Subject) -> float | None:
    """Return the measured time between kernels, minus the instrument's overhead."""
    device = subject.profile.device
    if subject.profile.waits_s is not None:
        return subject.profile.waits_s
    host = subject.profile.host_s if device is None else device.gap_s
    return None if host is None else max(0.0, host - max(0.0, subject.profile.overhead_s))


def _graph_saving(session: Session, subject: Subject) -> float | None:
    """Return what the same row saves as a CUDA graph, if both were measured."""
    if subject.row is None or subject.key.variant.graph:
        return None
    key = replace(subject.key, variant=replace(subject.key.variant, graph=True))
    task = replace(subject.row.task, key=key)
    graph = next((r for r in session.results if r.task == task and r.status == "ok"), None)
    if graph is None or graph.measurement is None:
        return None
    return max(0.0, subject.profile.end_to_end_s - stats.median_s(graph.measurement))


def _finding(subject: Subject, between: float, calls: int, measured_s: float | None) -> Finding:
    on_gpu = subject.device == "cuda"
    graph = subject.key.variant.graph
    left = _LEFT[subject.device]
    if measured_s is not None:
        left = max(0.0, 1 - measured_s / between)
    saving = measured_s if measured_s is not None else 0.0 if graph else between * (1 - left)
    tiny = [k for k in subject.kernels if k.per_call_s < TINY_S[subject.device]]
    fix = {} if graph else {"graph": True} if on_gpu else {"exec_mode": "compiled"}
    return Finding(
        rule=RULE.id,
        severity=subject.severity(saving),
        effort="minutes" if fix else "hours",
        title=msg("Tiny kernels are bound by their launch"),
        evidence=subject.says(
            msg(
                "{between} of {run} pass between {calls} kernel calls, {each} per call; a kernel "
                "takes {mean} on average, {tiny} kernels less than {limit}. Estimated: {left:.0%} "
                ""
                "of it stays.",
                between=Seconds(between),
                run=Seconds(subject.run_s),
                calls=calls,
                each=Seconds(between / calls),
                mean=Seconds(subject.profile.total_s / calls),
                tiny=len(tiny),
                limit=Seconds(TINY_S[subject.device]),
                left=1.0 if graph else left,
            )
        ),
        advice=_advice(on_gpu, graph),
        kernels=tuple(k.name for k in tiny),
        saving_s=saving,
        fix=fix,
    )


def _advice(on_gpu: bool, graph: bool) -> Text:
    if graph:
        return msg("The run is one CUDA graph already: make the batch larger.")
    if on_gpu:
        return msg("Record the run as a CUDA graph (--graph), or make the batch larger.")
    return msg(
        "Compile the VM's steps to machine code (--exec-mode compiled); use fewer threads, "
        "or a larger batch."
    )


RULE = Rule(
    id="launch-bound",
    title=msg("Tiny kernels bound by their launch"),
    needs=("profiles",),
    check=check,
)
