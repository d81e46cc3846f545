"""Writes machine output: the documented JSON form, described by session.schema.json."""

from __future__ import annotations

import json
from collections.abc import Sequence
from importlib import resources
from typing import Any

from tvmscope.core.session import Session, to_json
from tvmscope.report.renderers import Renderer


def render(sessions: Sequence[Session]) -> str:
    """Render one session as an object, several as an array; times are seconds, unknown is null."""
    data = [to_json(session) for session in sessions]
    return json.dumps(data[0] if len(data) == 1 else data, indent=1, allow_nan=False) + "\n"


def schema() -> dict[str, Any]:
    """Return the JSON Schema of one session."""
    file = resources.files("tvmscope.report").joinpath("session.schema.json")
    data: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
    return data


def times(sessions: Sequence[Session]) -> str:
    """Return only the raw times, one object per sample in order of measurement, for plotting."""
    rows = [
        {
            "model": session.model.name,
            "backend": result.key.name,
            "target": result.task.target,
            "clock": measurement.clock,
            "round": number,
            "latency_s": value,
        }
        for session in sessions
        for result in session.results
        for measurement in (result.measurement, result.device_measurement)
        if measurement is not None
        for number, values in enumerate(measurement.rounds_s)
        for value in values
    ]
    return json.dumps(rows, indent=1, allow_nan=False) + "\n"


def profiles(session: Session) -> str:
    """Return only the profiles, as in a session."""
    return json.dumps(to_json(session)["profiles"], indent=1, allow_nan=False) + "\n"


RENDERER = Renderer("json", ".json", render)
