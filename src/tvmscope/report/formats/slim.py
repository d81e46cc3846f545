"""Writes a small session file for mail, issues and repositories; `tvmscope report` reads it."""

from __future__ import annotations

import json
from collections.abc import Sequence

from tvmscope.core.session import Session
from tvmscope.errors import UsageError
from tvmscope.messages import msg
from tvmscope.report.renderers import Renderer
from tvmscope.report.slim import slim


def render(sessions: Sequence[Session]) -> str:
    """Render one session, without spaces; the file is compressed."""
    if len(sessions) != 1:
        raise UsageError(
            msg(
                "a slim file holds one session, not {count}; write one for each",
                count=len(sessions),
            )
        )
    return json.dumps(slim(sessions[0]), separators=(",", ":"), allow_nan=False)


RENDERER = Renderer("slim", ".json.gz", render, packed=(".json.gz", ".json.xz"))
