"""Adds to a session the facts about the passes and schedule rules that it names.

Diagnoses and reports read them there: they know nothing of the compiler. An older session without
facts gets those of today's manifests.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from tvmscope.compiler import passes, schedules
from tvmscope.core.diagnosis.facts import PassFacts, RuleFacts
from tvmscope.core.session import Session


def informed(session: Session) -> Session:
    """Return the session with facts about every pass that a row lacks and every rule that it names.

    Existing facts stay: they are those of the manifests with which it was made.
    """
    return replace(
        session,
        passes=(*session.passes, *_passes(session)),
        rules=(*session.rules, *_rules(session)),
    )


def _passes(session: Session) -> Iterator[PassFacts]:
    known = {each.name for each in session.passes}
    settings = [result.settings or {} for result in session.results]
    lacked = {name for s in settings for name in s.get("disabled_passes", "").split(",")}
    for each in passes.all_passes():
        if each.name in lacked - known:
            yield each.facts(passes.brought_by(each.name))


def _rules(session: Session) -> Iterator[RuleFacts]:
    known = {rule.name for rule in session.rules}
    named = {ir.rule for ir in session.kernel_ir} | {task.rule for task in session.tuning}
    for rule in schedules.all_rules():
        # a choice may lead to another rule than the untuned kernel's
        tunes = bool(session.tuning) and rule.space is not None
        if rule.name not in known and (rule.name in named or tunes):
            yield rule.facts(schedules.brought_by(rule.name))
