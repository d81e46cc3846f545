"""Writes node data for Google's Model Explorer: our time of every source operator.

Nodes are matched by name. ONNX graphs have the names that tvmscope keeps; a torch model's operators
are module paths, which match if the viewer's graph uses them as node names. A kernel that computes
several operators shows its whole time at each of them, so the viewer's sums are disabled.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from tvmscope.core.session import Session
from tvmscope.errors import UsageError
from tvmscope.messages import msg
from tvmscope.report.renderers import Renderer
from tvmscope.report.sections.charts import own_first

_GRADIENT = (
    {"stop": 0, "bgColor": "#e7f0fb", "textColor": "#1b1e22"},
    {"stop": 0.5, "bgColor": "#f0bb57", "textColor": "#1b1e22"},
    {"stop": 1, "bgColor": "#b3271e", "textColor": "#ffffff"},
)


def render(sessions: Sequence[Session]) -> str:
    """Render one model's data for any open graph; those of several models are keyed by name."""
    graphs = {session.model.name: _graph(session) for session in sessions}
    document = graphs if len(sessions) > 1 else graphs[sessions[0].model.name]
    return json.dumps(document, indent=1, allow_nan=False) + "\n"


def _graph(session: Session) -> dict[str, Any]:
    """Return milliseconds per source operator in the first profile (ours, if there is one)."""
    if not session.profiles:
        raise UsageError(
            msg(
                "{model} has no kernel profile to show on a graph; `tvmscope profile` makes one",
                model=session.model.name,
            )
        )
    times: dict[str, float] = {}
    for kernel in own_first(session)[0].kernels:
        for op in kernel.source_ops:
            times[op] = times.get(op, 0.0) + kernel.total_s * 1e3
    results = {op: {"value": milliseconds} for op, milliseconds in times.items()}
    hidden = {"hideAggregatedStats": ["sum", "avg"]}
    return {"results": results, "gradient": list(_GRADIENT), **hidden}


RENDERER = Renderer("model-explorer", ".nodes.json", render)
