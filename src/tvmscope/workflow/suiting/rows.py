"""Makes a suite's row from the outcome of a problem: its session, or the error that ended it."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

from tvmscope.core.comparison import Comparison
from tvmscope.core.environment import Environment
from tvmscope.core.measurement import Cause, Result
from tvmscope.core.session import Session
from tvmscope.core.stats import median_s
from tvmscope.core.suite import Outcome, Speedup, SuiteRow
from tvmscope.errors import TvmscopeError, one_line
from tvmscope.measure.worker import WorkerDied
from tvmscope.messages import Text, word
from tvmscope.runtime import artifact as artifacts

_OUTCOMES: dict[Cause, Outcome] = {
    "unsupported": "unsupported",
    "crash": "crashed",
    "exit": "crashed",
    "hang": "timed out",
    "time": "timed out",
    "memory": "out of memory",
    "disk": "disk full",
}


def row_of(
    session: Session,
    *,
    problem: str,
    key: str,
    took_s: float,
    fallbacks: tuple[str, ...],
    operators: int | None,
    folder: str,
) -> SuiteRow:
    """Return the row of a problem that was loaded."""
    ours = ours_of(session)
    outcome, reason = _outcome(ours)
    accuracy = ours.accuracy if ours else None
    right = [r for r in session.results if r.status == "ok" and r.measurement is not None]
    return SuiteRow(
        problem=problem,
        key=key,
        outcome=outcome,
        reason=reason,
        host=session.environment.host,
        cpu=session.environment.cpu,
        medians_s={r.key.name: median_s(r.measurement) for r in right if r.measurement},
        speedups=_speedups(session.comparisons, ours),
        others={
            r.key.name: r.reason or word(r.status)
            for r in session.results
            if r not in right and r is not ours
        },
        error=accuracy.error if accuracy else None,
        noise=accuracy.noise if accuracy else None,
        fallbacks=fallbacks,
        operators=operators,
        warnings=ours.warnings if ours else (),
        finding=next((f.title for f in session.findings), None),
        took_s=took_s,
        finished=_now(),
        session=folder,
    )


def failed_row(
    error: BaseException,
    *,
    problem: str,
    key: str,
    took_s: float,
    environment: Environment,
    session: str | None = None,
) -> SuiteRow:
    """Return the row of a problem that could not be loaded, or whose measurement failed."""
    cause = cause_of(error)
    expected = isinstance(error, TvmscopeError)
    reason: Text = one_line(error) if expected else f"{type(error).__name__}: {one_line(error)}"
    outcome: Outcome = "unloadable" if expected else "failed"
    return SuiteRow(
        problem=problem,
        key=key,
        outcome=_OUTCOMES[cause] if cause else outcome,
        reason=reason,
        host=environment.host,
        cpu=environment.cpu,
        took_s=took_s,
        finished=_now(),
        session=session,
    )


def cause_of(error: BaseException | None) -> Cause | None:
    """Return how the worker ended that caused an error; None if none did."""
    while error is not None:
        if isinstance(error, WorkerDied):
            return error.kind
        if isinstance(error, MemoryError):
            return "memory"
        error = error.__cause__
    return None


def ours_of(session: Session) -> Result | None:
    """Return the row by which a problem is judged: ours, else the first."""
    ours = [r for r in session.results if r.key.is_ours]
    return next(iter((*ours, *session.results)), None)


def _outcome(row: Result | None) -> tuple[Outcome, Text | None]:
    if row is None:
        return "failed", None
    if row.status == "ok":
        noisy = row.accuracy is not None and row.accuracy.within_noise
        return ("noise" if noisy else "correct"), None
    if row.status == "wrong":
        return "wrong", row.reason
    return (_OUTCOMES[row.cause] if row.cause else "failed"), row.reason


def _speedups(comparisons: tuple[Comparison, ...], ours: Result | None) -> dict[str, Speedup]:
    if ours is None or not ours.key.is_ours:
        return {}
    return {
        c.against.name: Speedup(
            value=c.speedup,
            low=c.ci95[0] if c.ci95 else None,
            high=c.ci95[1] if c.ci95 else None,
        )
        for c in comparisons
        if c.key == ours.key and not c.against.is_ours
    }


def fallbacks_of(folder: Path, ours: Result | None) -> tuple[str, ...]:
    """Return the operators of our artifact that run in a framework."""
    if ours is None:
        return ()
    try:
        built = artifacts.read(folder / "artifacts" / ours.key.folder_name)
    except TvmscopeError:  # it was not built
        return ()
    return tuple(name for part in built.fallbacks for name in part.operators)


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
