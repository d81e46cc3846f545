"""Makes foreign text (names from a model, messages of a library) safe to show."""

from __future__ import annotations

import re
import unicodedata

from tvmscope.messages import Text, render

NAME_LIMIT = 36
TEXT_LIMIT = 240


def clean(text: Text, limit: int = TEXT_LIMIT) -> str:
    """Return one line in the reader's language without control, format (bidi) or surrogate
    characters, at most `limit` long."""
    return plain(render(text), limit)


def plain(text: Text, limit: int = TEXT_LIMIT) -> str:
    """Return the same for programs: a message stays in English."""
    one_line = " ".join(str(text).split())
    visible = "".join(c if _is_visible(c) else f"\\x{ord(c):02x}" for c in one_line)
    return visible if len(visible) <= limit else visible[: limit - 1] + "…"


def _is_visible(char: str) -> bool:
    return unicodedata.category(char)[0] != "C"


def markdown(text: Text, limit: int = TEXT_LIMIT) -> str:
    """Return the same, without special characters of Markdown, a table cell or HTML."""
    safe = clean(text, limit).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    safe = re.sub(r"([\\`|*\[\]~])", r"\\\1", safe)
    # An underscore inside a word is plain text; mobilenet_v2 stays readable in the source.
    safe = re.sub(r"(?<!\w)_|_(?!\w)", r"\\_", safe)
    return re.sub(r"^([#+-])(?=.)", r"\\\1", safe)
