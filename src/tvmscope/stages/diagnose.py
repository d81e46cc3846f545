"""The stage that says why rows are slow: today's rules, applied to a session."""

from __future__ import annotations

from tvmscope.core.session import Session
from tvmscope.diagnose.engine import diagnose
from tvmscope.stages.facts import informed


def diagnose_session(session: Session) -> Session:
    """Return the session with the findings of today's rules."""
    return diagnose(informed(session))
