"""Candidates that were faster than the untuned kernel on other machines: a search begins with them.

What is fast on one machine is often fast on another, but not always: such candidates are tried
first, and measured like all others.
"""

from __future__ import annotations

from collections.abc import Iterable
from statistics import median
from typing import NamedTuple

from tvmscope.core.tuning import Trial
from tvmscope.tuning.records.validity import outdated
from tvmscope.tuning.search.state import UNTUNED

MOST = 8
"""Candidates of a task that are tried before the rule's own order."""


class _Machine(NamedTuple):
    """Times are compared on one machine only."""

    arch: str
    cpu: str
    threads: int


def promising(trials: Iterable[Trial]) -> list[str]:
    """Return the ids of up to `MOST` candidates, those that saved the largest share first."""
    untuned: dict[_Machine, float] = {}
    timed: list[tuple[_Machine, Trial]] = []
    for trial in trials:
        if trial.status != "ok" or trial.candidate.trace is not None or outdated(trial):
            continue
        machine = _Machine(trial.target.arch, trial.cpu, trial.threads)
        if trial.candidate.id == UNTUNED:
            untuned[machine] = median(trial.seconds)
        else:
            timed.append((machine, trial))
    shares: dict[str, float] = {}
    for machine, trial in timed:
        base = median(trial.baseline_s) if trial.baseline_s else untuned.get(machine)
        share = median(trial.seconds) / base if base else 1.0
        shares[trial.candidate.id] = min(share, shares.get(trial.candidate.id, 1.0))
    faster = [name for name, share in shares.items() if share < 1.0]
    return sorted(faster, key=shares.__getitem__)[:MOST]
