"""Everything that one job measured, saved as JSON and rendered later without TVM."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tvmscope.core import stats
from tvmscope.core.comparison import Comparison
from tvmscope.core.diagnosis.facts import PassFacts, RuleFacts
from tvmscope.core.diagnosis.findings import Attempt, Finding
from tvmscope.core.environment import Environment
from tvmscope.core.measurement import Result
from tvmscope.core.model import Model
from tvmscope.core.profile import KernelIR, Profile, Roof
from tvmscope.core.row import RowKey
from tvmscope.core.target import Target
from tvmscope.core.tuning import TunedTask
from tvmscope.errors import SchemaError
from tvmscope.messages import Text, msg
from tvmscope.storage import message_table, session_v1
from tvmscope.storage.codec import decode, encode
from tvmscope.storage.files import read_text, write_text_atomic

SCHEMA_VERSION = 2
FILE_NAME = "session.json"


@dataclass(frozen=True, kw_only=True)
class Session:
    """A model, the machine, and every result, comparison and finding about them."""

    command: str
    started: str
    environment: Environment
    model: Model
    targets: tuple[Target, ...] = ()
    results: tuple[Result, ...] = ()
    comparisons: tuple[Comparison, ...] = ()
    profiles: tuple[Profile, ...] = ()
    roofs: tuple[Roof, ...] = ()
    kernel_ir: tuple[KernelIR, ...] = ()
    findings: tuple[Finding, ...] = ()
    tuning: tuple[TunedTask, ...] = ()
    passes: tuple[PassFacts, ...] = ()
    """Facts about the passes that some row lacks."""
    rules: tuple[RuleFacts, ...] = ()
    """Facts about the schedule rules that kernels and tasks name."""
    fixes: tuple[Attempt, ...] = ()
    """Attempted fixes, in order; each builds on those that were kept before it."""
    warnings: tuple[Text, ...] = ()
    failure: Text | None = None
    """Why the model could not be loaded at all; there are no results then."""
    complete: bool = True
    """False while measuring, and permanently in a session that was interrupted."""

    def result_of(self, profile: Profile) -> Result | None:
        """Return the row that a profile belongs to; None if it was profiled alone."""
        return next((r for r in self.results if r.key == profile.key), None)


def to_json(session: Session) -> dict[str, Any]:
    """Return the documented JSON form: stored values, and the derived statistics beside them.

    Texts are English sentences; `messages` says how each was made (`storage.message_table`).
    """
    data = encode(session)
    messages = message_table.table(data)
    environment = data.pop("environment")
    context = {"command": data.pop("command"), "started": data.pop("started"), **environment}
    rows = [
        _row(result, raw) for result, raw in zip(session.results, data.pop("results"), strict=True)
    ]
    for part in ("profiles", "kernel_ir", "fixes"):
        items = zip(getattr(session, part), data[part], strict=True)
        data[part] = [_named(item.key) | raw for item, raw in items]
    compared = zip(session.comparisons, data["comparisons"], strict=True)
    data["comparisons"] = [_compared(item, raw) for item, raw in compared]
    return {
        "schema_version": SCHEMA_VERSION,
        "context": context,
        "results": rows,
        **data,
        message_table.KEY: messages,
    }


def _named(key: RowKey | None) -> dict[str, str]:
    """Return a row's names for readers of the file; only its key is read back."""
    return {"backend": "", "target": ""} if key is None else _names(key)


def _names(key: RowKey) -> dict[str, str]:
    return {"backend": key.name, "target": key.target}


def _compared(comparison: Comparison, raw: dict[str, Any]) -> dict[str, Any]:
    other = _names(comparison.against)
    return {
        **_names(comparison.key),
        **raw,
        "against": other["backend"],
        "against_target": other["target"],
        "against_key": raw["against"],
    }


def _row(result: Result, raw: dict[str, Any]) -> dict[str, Any]:
    task = raw["task"]
    key = task.pop("key")  # its fields are among the task's
    row = {
        "backend": result.task.variant.backend,
        "target": result.task.target,
        "variant": key["variant"] | {"tuned": result.task.variant.tuning is not None},
        "shapes": task["shapes"],
        **{k: v for k, v in raw.items() if k not in ("measurement", "device_measurement")},
        "task": task | key,
    }
    for prefix, measurement in (("", result.measurement), ("device_", result.device_measurement)):
        if measurement is not None:
            row |= {prefix + k: v for k, v in stats.summary(measurement).items()}
            row |= {prefix + k: v for k, v in encode(measurement).items()}
    if result.items is not None and "median_s" in row:
        row["items_per_s"] = result.items / row["median_s"]
    return row


def from_json(data: Any) -> Session:
    """Read a session from its JSON form; derived values are dropped and computed again."""
    if not isinstance(data, dict) or "schema_version" not in data:
        raise SchemaError(msg("not a tvmscope session: 'schema_version' is missing"))
    version = data["schema_version"]
    if version not in (session_v1.VERSION, SCHEMA_VERSION):
        raise SchemaError(
            msg(
                "session schema {version} is none of {older} and {newest}, which this "
                "version reads; measure again, or use the tvmscope that wrote it",
                version=version,
                older=session_v1.VERSION,
                newest=SCHEMA_VERSION,
            )
        )
    context = data.get("context")
    if not isinstance(context, dict) or not isinstance(data.get("results"), list):
        raise SchemaError(msg("not a tvmscope session: 'context' or 'results' is missing"))
    if version == session_v1.VERSION:
        data = session_v1.upgraded(data)
    flat = data | {
        "command": context.get("command"),
        "started": context.get("started"),
        "environment": context,
        "results": [_unrow(row) for row in data["results"]],
        "comparisons": [_uncompared(item) for item in _objects(data, "comparisons")],
    }
    return decode(Session, flat, message_table.read(data.get(message_table.KEY)))


def _objects(data: dict[str, Any], name: str) -> list[dict[str, Any]]:
    items = data.get(name, [])
    if not isinstance(items, list) or not all(isinstance(item, dict) for item in items):
        raise SchemaError(msg("'{name}': expected objects", name=name))
    return items


def _uncompared(item: dict[str, Any]) -> dict[str, Any]:
    return item | {"against": item.get("against_key")}


def _unrow(row: Any) -> Any:
    if not isinstance(row, dict) or not isinstance(row.get("task"), dict):
        raise SchemaError(msg("'results': expected objects, each with a 'task'"))
    parts: dict[str, Any] = {"task": row["task"] | {"key": row["task"]}}
    for prefix, key in (("", "measurement"), ("device_", "device_measurement")):
        fields = ("rounds_s", "warmups_s", "loops", "clock")
        found = {f: row[prefix + f] for f in fields if prefix + f in row}
        parts[key] = found or None
    return row | parts


def save(session: Session, path: Path) -> Path:
    """Write `session.json` into the folder `path`, never leaving a half-written file."""
    file = path / FILE_NAME
    write_text_atomic(file, json.dumps(to_json(session), indent=1, allow_nan=False))
    return file


def load(path: Path) -> Session:
    """Read a session from its folder or file; a slim one is compressed."""
    file = path / FILE_NAME if path.is_dir() else path
    try:
        data = json.loads(read_text(file))
    except FileNotFoundError as e:
        raise SchemaError(
            msg("no session at {path}: give a results folder or its session.json", path=path)
        ) from e
    except UnicodeDecodeError as e:
        raise SchemaError(
            msg("{file} is not a session: give a results folder or its session.json", file=file)
        ) from e
    except (json.JSONDecodeError, OSError) as e:
        raise SchemaError(
            msg("{file} cannot be read as a session: {reason}", file=file, reason=str(e))
        ) from e
    return from_json(data)
