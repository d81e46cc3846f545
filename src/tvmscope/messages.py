"""Text for people, looked up in message catalogues: a translation adds files, not code."""

from __future__ import annotations

import gettext
from functools import cache
from pathlib import Path

DOMAIN = "tvmscope"
LOCALE_FOLDER = Path(__file__).parent / "locale"
"""`<language>/LC_MESSAGES/tvmscope.mo`; a language without one reads English."""


@cache
def _catalogue() -> gettext.NullTranslations:
    return gettext.translation(DOMAIN, localedir=LOCALE_FOLDER, fallback=True)


def _(text: str) -> str:
    """`text` in the user's language (LANGUAGE, LC_ALL, LC_MESSAGES, LANG)."""
    return _catalogue().gettext(text) if text else ""


def plural(one: str, many: str, count: int) -> str:
    """`one` or `many`, whichever the user's language says for `count`."""
    return _catalogue().ngettext(one, many, count)
