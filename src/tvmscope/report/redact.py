"""Removes data that identify the user and the machine: host name, user name, folders."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any

from tvmscope.core.session import Session, from_json, to_json

_HOME = re.compile(r"(?:/home/|/Users/|[A-Za-z]:\\Users\\)([^/\\\n'\":]+)")
_PATH = re.compile(
    r"(?<![\w./\\~-])(?:file://)?(?:~|[A-Za-z]:)?[/\\](?=[^\s/\\])(?:[^\s'\":;,()/\\]+[/\\])*"
)
_FIXED = frozenset(
    {"backend", "against", "target", "against_target", "status", "verdict", "digest", "dtype"}
    | {
        "family",
        "device",
        "precision",
        "format",
        "weights",
        "clock",
        "rule",
        "severity",
        "effort",
        "started",
        "products",
    }
    | {"id", "plural"}
)
"""Words of the vocabulary, and the texts of messages; a user named `torch` must not rename the
backend."""


def redact(session: Session, *, user: str = "") -> Session:
    """Return the session without host name, user names and folders of paths (file names stay)."""
    data = to_json(session)
    users = {user, *_HOME.findall(json.dumps(data, ensure_ascii=False))}
    hidden = [
        (re.compile(rf"(?<![\w-]){re.escape(name)}(?![\w-])"), stand_in)
        for stand_in, names in (("host", {session.environment.host}), ("user", users))
        for name in sorted(names, key=len, reverse=True)
        if name
    ]

    def hide(text: str) -> str:
        text = _PATH.sub("", _HOME.sub("/home", text))
        for pattern, stand_in in hidden:
            text = pattern.sub(f"<{stand_in}>", text)
        return text

    return from_json(_walk(data, hide))


def _walk(value: Any, change: Callable[[str], str], key: str = "") -> Any:
    if isinstance(value, dict):
        # a message's argument is a part of a sentence, whatever its name is
        return {k: _walk(v, change, "" if key == "args" else k) for k, v in value.items()}
    if isinstance(value, list):
        return [_walk(v, change, key) for v in value]
    return change(value) if isinstance(value, str) and key not in _FIXED else value
