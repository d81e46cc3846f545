"""Selects the records that apply to a machine, and their choice for each workload.

A record applies to a machine if the tuned code can run there and was compiled by the same TVM. If a
candidate was validated more than once, the closest record counts (the user's own before the shipped
one, the same threads, the same CPU, the latest), so that "not faster here" outweighs "faster
elsewhere". Of the remaining candidates the closest wins, then the one with the largest gain over
the untuned kernel of its own interleaved run.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import NamedTuple

from tvmscope.core.target import Target
from tvmscope.core.tuning import SHIPPED_NAME, Choice, Trial
from tvmscope.machine.cpu_features import ARM_FLAGS
from tvmscope.messages import Text, msg
from tvmscope.tuning.records.database import Database
from tvmscope.tuning.records.validity import outdated

WORTH = 0.01
"""A candidate is used from this gain on; two good runs may differ by less."""


@dataclass(frozen=True, kw_only=True)
class Host:
    """The machine to compile for."""

    target: Target
    threads: int
    tvm: str
    cpu: str = ""


@dataclass(frozen=True, kw_only=True)
class Found:
    """The choices, and the records that were not used."""

    choices: dict[str, Choice] = field(default_factory=dict)
    skipped: dict[Text, int] = field(default_factory=dict)
    """Validated records for another machine or TVM, by reason."""
    troubles: tuple[Text, ...] = ()
    """Files and lines that could not be read."""

    @property
    def warnings(self) -> tuple[Text, ...]:
        """All warnings for the user, one line each."""
        return (
            *self.troubles,
            *(
                msg("{count} records not used: {why}", count=n, why=why)
                for why, n in self.skipped.items()
            ),
        )


class _Verdict(NamedTuple):
    closeness: tuple[int, bool, bool, int]
    gain: float
    """The share of the untuned time that the candidate saves; 0 if it must not be used."""
    trial: Trial
    source: str


def choose(
    databases: Sequence[Database], host: Host, workloads: Iterable[str] | None = None
) -> Found:
    """Return the databases' choices for a machine, in order; for some workloads or all."""
    wanted = None if workloads is None else list(workloads)
    skipped: Counter[Text] = Counter()
    verdicts: dict[tuple[str, str], _Verdict] = {}
    for order, database in enumerate(databases):
        for number, trial in enumerate(_validated(database, wanted)):
            if reason := mismatch(trial, host):
                # shipped records are for many machines: only the user's own are reported
                skipped[reason] += database.name != SHIPPED_NAME
                continue
            closeness = (-order, trial.threads == host.threads, trial.cpu == host.cpu, number)
            verdict = _Verdict(closeness, gain(trial), trial, database.name)
            key = (trial.workload, trial.candidate.id)
            if key not in verdicts or verdicts[key].closeness < closeness:
                verdicts[key] = verdict
    return Found(
        choices={workload: _choice(best) for workload, best in _best(verdicts.values()).items()},
        skipped={reason: n for reason, n in skipped.items() if n},
        troubles=tuple(line for database in databases for line in _troubles(database)),
    )


def _choice(verdict: _Verdict) -> Choice:
    trial = verdict.trial
    return Choice(
        candidate=trial.candidate,
        source=verdict.source,
        cpu=trial.cpu,
        threads=trial.threads,
        date=trial.date,
    )


def _validated(database: Database, workloads: list[str] | None) -> Iterable[Trial]:
    if workloads is None:
        return database.trials(validated=True)
    return (t for w in workloads for t in database.trials(w, validated=True))


def _best(verdicts: Iterable[_Verdict]) -> dict[str, _Verdict]:
    best: dict[str, _Verdict] = {}
    for verdict in verdicts:
        rival = best.get(verdict.trial.workload)
        if verdict.gain >= WORTH and (rival is None or _rank(rival) < _rank(verdict)):
            best[verdict.trial.workload] = verdict
    return best


def _rank(verdict: _Verdict) -> tuple[tuple[int | bool, ...], float, str]:
    return verdict.closeness[:3], verdict.gain, verdict.trial.candidate.id


def gain(trial: Trial) -> float:
    """Return the share of the untuned time that a validated candidate saves; 0 if it failed."""
    if trial.status != "ok" or not trial.baseline_s:
        return 0.0
    return 1 - median(trial.seconds) / median(trial.baseline_s)


def mismatch(trial: Trial, host: Host) -> Text | None:
    """Why a record does not apply to a machine; None if it does."""
    theirs, ours = trial.target, host.target
    if trial.tvm != host.tvm:
        version = trial.tvm or msg("of an unknown version")
        return msg("tuned with TVM {version}, not {here}", version=version, here=host.tvm)
    if reason := outdated(trial):
        return reason
    if (theirs.kind, _family(theirs)) != (ours.kind, _family(ours)):
        return msg("tuned for {target}", target=theirs.label)
    if missing := sorted(set(theirs.features) - set(ours.features)):
        features = " ".join(missing)
        return msg(
            "tuned for {target}, which has {features}", target=theirs.label, features=features
        )
    if theirs.vector_bits != ours.vector_bits:
        return msg(
            "tuned for vectors of {bits} bits, not {here}",
            bits=theirs.vector_bits,
            here=ours.vector_bits,
        )
    return None


def _family(target: Target) -> str:
    """Return the family of machines that can run a target's code; for a GPU its architecture."""
    if target.kind == "cuda":
        return target.arch
    if target.triple:
        first = target.triple.split("-")[0]
        return {"arm64": "aarch64", "amd64": "x86_64"}.get(first, first)
    return "aarch64" if set(target.features) & set(ARM_FLAGS) else "x86_64"


def _troubles(database: Database) -> list[Text]:
    lines = [
        msg("{file}: {count} lines skipped: {why}", file=database.name, count=n, why=why)
        for why, n in database.rejected.items()
    ]
    return [*([database.trouble] if database.trouble else []), *lines]
