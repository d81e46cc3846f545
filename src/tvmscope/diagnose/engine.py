"""Runs every rule over a session; a rule that fails loses only its own findings."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from tvmscope.core.diagnosis.findings import Finding
from tvmscope.core.session import Session
from tvmscope.diagnose.rule import Rule
from tvmscope.errors import one_line
from tvmscope.messages import msg
from tvmscope.plugins import Merged, PluginFailure, discover, merged


def known() -> Merged[Rule]:
    """Return all rules by id, those of other packages last, and sources without a usable rule."""
    found, failures = discover("tvmscope.diagnose.rules", "RULE")
    usable: dict[str, Rule] = {}
    for name, rule in found.items():
        if not isinstance(rule, Rule):
            failures.append(PluginFailure(name, msg("RULE is not a Rule")))
        elif rule.id in usable:
            failures.append(PluginFailure(name, msg("the id {id} is taken", id=rule.id)))
        else:
            usable[rule.id] = rule
    every = merged("diagnosis rule", usable, Rule, lambda rule: rule.id)
    return Merged(every.manifests, every.plugins, (*failures, *every.failures))


def rules() -> tuple[dict[str, Rule], list[str]]:
    """Return all rules by id, and a line about each file or plug-in without a usable rule."""
    every = known()
    return every.manifests, [str(failure) for failure in every.failures]


def diagnose(session: Session) -> Session:
    """Return the session with its findings, the largest saving first.

    A finding that was found before keeps the saving that its fix has achieved.
    """
    available, problems = rules()
    findings: list[Finding] = []
    warnings = [msg("diagnosis: {problem}", problem=p) for p in problems]
    for rule in available.values():
        if any(not getattr(session, part) for part in rule.needs):
            continue
        try:
            findings += rule.check(session)
        except Exception as e:  # a rule's bug must not cost the session or the other rules
            warnings.append(
                msg(
                    "diagnosis: rule '{id}' failed: {type}: {reason}",
                    id=rule.id,
                    type=type(e).__name__,
                    reason=one_line(e),
                )
            )
    proven = {_identity(f): f.achieved_s for f in session.findings}
    findings = [replace(f, achieved_s=proven.get(_identity(f))) for f in findings]
    new = tuple(w for w in warnings if w not in session.warnings)
    return replace(
        session, findings=tuple(sorted(findings, key=_worth)), warnings=(*session.warnings, *new)
    )


def _identity(finding: Finding) -> tuple[Any, ...]:
    return finding.rule, finding.title, finding.kernels


def _worth(finding: Finding) -> tuple[bool, float, str]:
    """Return the sort key: findings without an estimate come last, information after them."""
    return finding.severity == "info", -(finding.saving_s or 0.0), finding.rule
