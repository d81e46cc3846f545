"""The proof: measures kernels again in turns with the untuned ones, then the whole model.

Only if the tuned model is verified and not slower are its kernels recorded as validated; later
compilations use only those. A model that cannot run here is only compiled: each of its kernels was
verified and found faster on the server, which has to suffice.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

from tvmscope.backends import all_backends
from tvmscope.core.options import MeasureOptions
from tvmscope.core.session import Session
from tvmscope.core.tuning import Candidate, Choice, Part, TuningTask
from tvmscope.errors import TvmscopeError, one_line
from tvmscope.messages import Text, msg, word
from tvmscope.stages.measure_rows import MeasuredRows, framework_outputs, measure_rows
from tvmscope.stages.planning.rows import PlannedRow, built_entry
from tvmscope.tuning.proof.parts import weigh
from tvmscope.tuning.proof.validate import DURATION_S, Validator, Verdict, best
from tvmscope.tuning.records.matching import Host, choose
from tvmscope.tuning.search.state import State
from tvmscope.tuning.trials.workshop import Workshop
from tvmscope.tuning.tuning_run import TuningRun

VALIDATE_S = 5.0
"""The expected time per task until one was validated: three kernels, warmed up, in turns."""
TOP = 2
"""Candidates of each task that are measured again."""
_SHARE = 0.2
"""The largest share of the budget for validation."""
_EXPLAIN_S = 45.0
_EXPLAIN_SHARE = 0.075
"""The largest share of the budget for measuring the parts of choices; some 10 s for each."""


@dataclass
class Proof:
    """The validated kernels and the outcome."""

    verdicts: dict[str, list[Verdict]] = field(default_factory=dict)
    """New verdicts, by workload."""
    choices: dict[str, Choice] = field(default_factory=dict)
    """The choices with which the tuned model is compiled."""
    steps: dict[str, tuple[str, ...]] = field(default_factory=dict)
    """The calls of chosen traces, by workload."""
    parts: dict[str, tuple[Part, ...]] = field(default_factory=dict)
    """The worth of the parts of choices, by workload."""
    spent_s: float = 0.0
    """The time that validation took."""
    accepted: bool | None = None
    """Whether the tuned model was accepted; None if there was none."""
    reason: Text = ""


def begin(run: TuningRun, workshop: Workshop, workloads: Iterable[str]) -> Proof:
    """Return the choices that earlier runs have validated on the machine that measures."""
    s = workshop.setting
    host = Host(target=s.target, threads=s.threads, tvm=s.tvm, cpu=s.cpu)
    return Proof(choices=choose([run.database], host, workloads).choices)


def reserve_s(run: TuningRun, tasks: int, proof: Proof) -> float:
    """Return the time to reserve for validation, explanation and proof, as far as is known."""
    validating_s = min(_each_s(proof) * tasks, _SHARE * run.job.options.tune.budget_s)
    return model_s(run) + validating_s + explain_s(run)


def least_reserve_s(run: TuningRun, proof: Proof) -> float:
    """Return the time for a proof of a single task, without explanation: the least possible."""
    return model_s(run) + _each_s(proof)


def _each_s(proof: Proof) -> float:
    """Return the measured time to validate one task; an assumption before the first one."""
    return proof.spent_s / len(proof.verdicts) if proof.verdicts else VALIDATE_S


def explain_s(run: TuningRun) -> float:
    """Return the time limit for measuring the parts of choices."""
    tune = run.job.options.tune
    return min(_EXPLAIN_S, _EXPLAIN_SHARE * tune.budget_s) if tune.explain else 0.0


def model_s(run: TuningRun) -> float:
    """Return the expected time to compile the tuned model and measure it with the untuned one."""
    measured_s = 2 * (1.5 * _duration_s(run) + run.load_s) if run.runs_here else 0.0
    return 1.2 * run.build_s + measured_s


def _duration_s(run: TuningRun) -> float:
    """Return the duration of the comparison, which is short for a short budget."""
    return min(run.job.options.measure.duration_s, max(1.0, 0.015 * run.job.options.tune.budget_s))


def validate(run: TuningRun, proof: Proof, states: Sequence[State], workshop: Workshop) -> None:
    """Measure the best candidates of each task again, those with the most to gain first."""
    began, proof.reason = time.monotonic(), ""
    deadline = run.began + run.job.options.tune.budget_s - model_s(run) - explain_s(run)
    ordered = sorted(states, key=lambda s: s.predicted_s - s.planned.total_s)
    run.job.progress.stage(msg("validate"), msg("in turns with the untuned kernels"))
    with Validator(workshop, _measuring(run)) as validator:
        for number, state in enumerate(ordered):
            run.job.progress.step(number, len(ordered), state.task.key)
            candidates = state.fastest(TOP)
            earlier = proof.choices.get(state.task.key)
            if not candidates or _is_known(proof, state.task.key, candidates[0]):
                continue
            if time.monotonic() > deadline:
                proof.reason = msg("the budget ended before every task was validated")
                run.job.progress.note(proof.reason)
                break
            if earlier and earlier.candidate not in candidates:
                candidates.append(earlier.candidate)
            verdicts = validator.validate(state.task, candidates)
            proof.verdicts.setdefault(state.task.key, []).extend(verdicts)
            settle(proof, state.task.key, verdicts, str(run.database.path))
    proof.spent_s += time.monotonic() - began


def _is_known(proof: Proof, workload: str, candidate: Candidate) -> bool:
    """Whether a candidate was chosen before, or has a verdict of this run."""
    choice = proof.choices.get(workload)
    verdicts = proof.verdicts.get(workload, ())
    return (choice is not None and choice.candidate == candidate) or any(
        verdict.trial.candidate == candidate for verdict in verdicts
    )


def explain(run: TuningRun, proof: Proof, states: Sequence[State], workshop: Workshop) -> None:
    """Measure the worth of the parts of choices, those with the largest gain first."""
    if not run.job.options.tune.explain or not proof.choices:
        return
    latest = run.began + run.job.options.tune.budget_s - model_s(run)
    deadline = min(latest, time.monotonic() + explain_s(run))
    gains = {
        v.task.key: v.speedup or 1.0
        for verdicts in proof.verdicts.values()
        for v in verdicts
        if v.faster
        and v.task.key in proof.choices
        and v.trial.candidate == proof.choices[v.task.key].candidate
    }
    ordered = sorted(
        (s for s in states if s.task.key in gains),
        key=lambda s: s.planned.total_s * (1 / gains[s.task.key] - 1),
    )
    what = msg("parts of the choices taken back, one by one")
    run.job.progress.stage(msg("explain"), what)
    with Validator(workshop, _measuring(run)) as validator:
        for number, state in enumerate(ordered):
            run.job.progress.step(number, len(ordered), state.task.key)
            _take_apart(run, proof, state.task, validator, deadline)


def _take_apart(
    run: TuningRun, proof: Proof, task: TuningTask, validator: Validator, deadline: float
) -> None:
    """Describe one choice, and measure the worth of its parts if there is time."""
    winner = proof.choices[task.key].candidate
    try:
        if winner.trace is not None:
            proof.steps[task.key] = tuple(validator.workshop.trace_of(task, winner)[1])
        if time.monotonic() < deadline:
            found = weigh(validator, task, winner, over=lambda: time.monotonic() > deadline)
            proof.parts[task.key] = tuple(found)
    except TvmscopeError as e:  # the choice is valid; only its explanation is missing
        run.job.progress.note(
            msg("{task} could not be explained: {reason}", task=task.key, reason=one_line(e))
        )


def _measuring(run: TuningRun) -> MeasureOptions:
    seed, cache = run.job.options.tune.seed, run.job.options.measure.cache
    return MeasureOptions(duration_s=DURATION_S, seed=seed, cache=cache)


def settle(proof: Proof, workload: str, verdicts: Sequence[Verdict], source: str) -> None:
    """Take the best verdict; drop an earlier choice that is no longer valid."""
    found = best(verdicts)
    earlier = proof.choices.get(workload)
    if found is not None:
        t = found.trial
        proof.choices[workload] = Choice(
            candidate=t.candidate, source=source, cpu=t.cpu, threads=t.threads, date=t.date
        )
    elif earlier and any(v.trial.candidate == earlier.candidate and v.slower for v in verdicts):
        del proof.choices[workload]


def prove(run: TuningRun, proof: Proof) -> Proof:
    """Compile with the choices, verify, measure with the untuned model, and record."""
    if not proof.choices:
        proof.reason = proof.reason or msg("no kernel was faster than the untuned one")
        run.job.progress.note(msg("no tuned kernel is used: {reason}", reason=proof.reason))
        _record(run, [v for vs in proof.verdicts.values() for v in vs if v.slower])
        return proof
    backend = all_backends()[0]["tvmscope-tuned"]
    tuned = replace(
        run.row.changed(backend=backend.name, tuning=str(run.database.path)),
        backend=backend,
        choices=proof.choices,
    )
    assert run.builder is not None
    run.job.progress.stage(msg("compile"), msg("{model} tuned", model=run.job.ready.model.name))
    config = replace(run.config, choices=proof.choices)
    run.builder.build(run.job.artifacts / tuned.key.folder_name, run.target, config)
    run.builder.close()
    if run.runs_here:
        run.job.keep_measured(_measure(run, [run.row, tuned]))
        proof.accepted, why = accept(run.job.session)
    else:
        proof.accepted = True
        why = msg(
            "by its kernels alone, because the model cannot run here: measure it on the device "
            "with tvmscope bench"
        )
    proof.reason = why or proof.reason
    verdicts = [v for vs in proof.verdicts.values() for v in vs]
    _record(run, [v for v in verdicts if v.slower or (v.faster and proof.accepted)])
    if proof.accepted:
        run.job.progress.note(msg("the tuned model is used: {why}", why=why))
    else:
        run.job.progress.note(msg("the tuned model is not used: {why}", why=why))
    return proof


def _measure(run: TuningRun, rows: Sequence[PlannedRow]) -> MeasuredRows:
    job, measure = run.job, run.job.options.measure
    options = replace(job.options, measure=replace(measure, duration_s=_duration_s(run)))
    entries = [built_entry(row, job.ready, job.options, job.artifacts) for row in rows]
    return measure_rows(
        entries, options, framework_outputs(job.ready), job.progress, log_dir=job.logs
    )


def accept(session: Session) -> tuple[bool, Text]:
    """Return whether the tuned model, the last row, is correct and not slower; and the reason.

    If the difference is not significant, the estimate decides.
    """
    tuned = session.results[-1]
    if tuned.status != "ok":
        why = tuned.reason or ""
        return False, msg("it is {status}: {why}", status=word(tuned.status), why=why)
    comparison = next(iter(session.comparisons), None)
    if comparison is None:
        return False, msg("the untuned model could not be measured beside it")
    shown = msg(
        "{speedup:.3f} times as fast as untuned, {verdict}",
        speedup=comparison.speedup,
        verdict=word(comparison.verdict),
    )
    return comparison.verdict != "slower" and comparison.speedup >= 1, shown


def _record(run: TuningRun, verdicts: Sequence[Verdict]) -> None:
    for verdict in verdicts:
        run.database.append(verdict.trial)
