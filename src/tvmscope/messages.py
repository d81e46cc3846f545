"""Text for people as data: an English sentence with named arguments, rendered when shown.

A finding, remark, warning or reason outlives the process that writes it, and may be read by someone
who speaks another language. Therefore it is made with `msg("{kernel} takes {time}", kernel=k,
time=t)`, stored with its arguments, and rendered when it is shown. Catalogues are gettext's: a
translation adds files, not code. Extractors (Babel, xgettext) find the texts by the names of the
functions here: `_`, `plural:1,2`, `msg`, `msgn:1,2`, `marked`; an f-string is invisible to them.
"""

from __future__ import annotations

import gettext
import numbers
import os
import re
import string
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from itertools import takewhile
from pathlib import Path
from types import MappingProxyType
from typing import Any, NoReturn

from tvmscope.quantities import format_bytes, format_s

DOMAIN = "tvmscope"
LOCALE_FOLDER = Path(__file__).parent / "locale"
"""`<language>/LC_MESSAGES/tvmscope.mo`; a language without one is shown in English."""
_ENGLISH = gettext.NullTranslations()
_SPEC = re.compile(r"[+]?\d?,?(?:\.\d)?[defg%]?")
"""Formats of numbers. Texts also come from files, where a width of a billion would be an attack."""
_chosen: str | None = None


@dataclass(frozen=True)
class Seconds:
    """A time, shown with a suitable unit."""

    value: float | None

    def __str__(self) -> str:
        return format_s(self.value)


@dataclass(frozen=True)
class Bytes:
    """A size, shown in binary units."""

    value: float | None

    def __str__(self) -> str:
        return format_bytes(self.value)


Arg = str | float | Seconds | Bytes | os.PathLike[str] | Sequence["Arg"]
"""The arguments of a message: a text or another message, a number, a quantity, a path, or several
of these, which are listed with commas."""


class Message(str):
    """A sentence that knows how it was made, so that it can be translated.

    To a program it is the English sentence, in JSON, in logs and in comparisons; `render`
    translates it for a person.
    """

    id: str
    """The English text with named fields for the arguments: gettext's msgid."""
    plural: str | None
    """The same for a number other than one, if the text depends on `args["count"]`."""
    args: Mapping[str, Arg]

    def __new__(cls, msgid: str, args: Mapping[str, Arg], plural: str | None = None) -> Message:
        known = {name: _plain(value) for name, value in args.items()}
        _check(msgid, plural, known)
        self = super().__new__(cls, _fill(msgid, plural, known, _ENGLISH))
        for name, value in (("id", msgid), ("plural", plural), ("args", MappingProxyType(known))):
            str.__setattr__(self, name, value)
        return self

    def __setattr__(self, name: str, value: object) -> NoReturn:
        raise AttributeError("a message cannot be changed")

    def __reduce__(self) -> tuple[Any, ...]:
        return Message, (self.id, dict(self.args), self.plural)


Text = Message | str
"""Text for people that is stored. A plain string is foreign: another library's text, or a sentence
of a session that was written before messages were data."""


def msg(text: str, /, **args: Arg) -> Message:
    """Make a sentence with named fields: `msg("{row} took {time}", row=..., time=Seconds(2))`.

    Numbers may have a format (`{share:.0%}`). A missing or unknown argument is a ValueError.
    """
    return Message(text, args)


def msgn(one: str, many: str, /, count: int, **args: Arg) -> Message:
    """Make the same for a number of things, which both texts may show as `{count}`."""
    return Message(one, {"count": count, **args}, many)


def marked(text: str) -> str:
    """Return the text itself; extractors find it here, and `word` shows it later."""
    return text


def word(text: str) -> Message:
    """Return a word of a vocabulary (a verdict, a status) whose texts are marked elsewhere."""
    return Message(text, {})


def sentences(*parts: Text | None) -> Text:
    """Join sentences; skip those that are None or empty."""
    *others, last = [part for part in parts if part] or [""]
    for part in reversed(others):
        last = msg("{first} {rest}", first=part, rest=last)
    return last


def clauses(parts: Sequence[Text]) -> Text:
    """Join clauses with semicolons."""
    *others, last = parts or [""]
    for part in reversed(others):
        last = msg("{first}; {rest}", first=part, rest=last)
    return last


def did_you_mean(near: Sequence[str]) -> Text:
    """Return a question to append to an error about an unknown name; empty if no name is near."""
    names: Text = near[-1] if near else ""
    for name in reversed(near[:-1]):
        names = msg("{first} or {rest}", first=name, rest=names)
    return msg("; did you mean {names}?", names=names) if names else ""


_LIST = marked("{first}, {rest}")


# ---- rendering ---------------------------------------------------------------------------------


def languages() -> tuple[str, ...]:
    """Return English, and the languages with a compiled catalogue."""
    found = LOCALE_FOLDER.glob(f"*/LC_MESSAGES/{DOMAIN}.mo")
    return ("en", *sorted(file.parents[1].name for file in found))


def use_language(language: str | None) -> None:
    """Set the language of `render` and `_`; None means the user's own language."""
    global _chosen
    _chosen = language


def language() -> str:
    """Return the current language: that of the chosen catalogue, or English."""
    return catalogue(_chosen).info().get("language", "en")


def render(text: Text, language: str | None = None) -> str:
    """Render a text: a message in `language` (None: the user's), a foreign text unchanged.

    If a translation does not fit its message, the English text is used.
    """
    if not isinstance(text, Message):
        return text
    try:
        return _said(text, catalogue(language or _chosen))
    except (LookupError, ValueError, AttributeError, TypeError):
        return str(text)


@cache
def catalogue(language: str | None) -> gettext.NullTranslations:
    """Return the translations of a language; None reads LANGUAGE, LC_ALL, LC_MESSAGES and LANG."""
    wanted = _preferred() if language is None else [language]
    return gettext.translation(DOMAIN, LOCALE_FOLDER, wanted, fallback=True)


def _preferred() -> list[str]:
    """Return the user's languages up to English, which needs no catalogue; others are unused."""
    variables = ("LANGUAGE", "LC_ALL", "LC_MESSAGES", "LANG")
    said = next((value for name in variables if (value := os.environ.get(name))), "")
    is_english = re.compile(r"(en|C|POSIX)\b", re.IGNORECASE).match
    return list(takewhile(lambda name: not is_english(name), said.split(":")))


def _(text: str) -> str:
    """Return `text` in the user's language, at once: for text that is shown and not stored."""
    return catalogue(_chosen).gettext(text) if text else ""


def plural(one: str, many: str, count: int) -> str:
    """Return `one` or `many`, as the user's language requires for `count`."""
    return catalogue(_chosen).ngettext(one, many, count)


def _said(message: Message, language: gettext.NullTranslations) -> str:
    return _fill(message.id, message.plural, message.args, language)


def _fill(
    msgid: str, many: str | None, args: Mapping[str, Any], language: gettext.NullTranslations
) -> str:
    if many is None:
        template = language.gettext(msgid)
    else:
        template = language.ngettext(msgid, many, args["count"])
    return template.format(**{name: _value(arg, language) for name, arg in args.items()})


def _value(arg: Any, language: gettext.NullTranslations) -> Any:
    """Return an argument for insertion: messages rendered, several joined, numbers unchanged."""
    if isinstance(arg, Message):
        return _said(arg, language)
    if not isinstance(arg, tuple):
        return arg
    *others, last = [str(_value(item, language)) for item in arg] or [""]
    for item in reversed(others):
        last = language.gettext(_LIST).format(first=item, rest=last)
    return last


# ---- checking ----------------------------------------------------------------------------------


def _plain(value: Any) -> Any:
    """Convert the argument to plain Python: numpy numbers, paths and others become JSON types."""
    if isinstance(value, str | bool | Seconds | Bytes):
        return value
    if isinstance(value, numbers.Integral):
        return int(value)
    if isinstance(value, numbers.Real):
        return float(value)
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    if isinstance(value, list | tuple):
        return tuple(_plain(item) for item in value)
    return str(value)  # a shape, a type: formatting a message must not fail


def _check(msgid: str, many: str | None, args: Mapping[str, Arg]) -> None:
    if not msgid:
        raise ValueError("a message has a text")
    wanted = set(_places(msgid)) | (set() if many is None else {"count", *_places(many)})
    if missing := sorted(wanted - args.keys()):
        raise ValueError(f"message {msgid!r} lacks {', '.join(missing)}")
    if unknown := sorted(args.keys() - wanted):
        raise ValueError(f"message {msgid!r} has no field for {', '.join(unknown)}")
    if many is not None and not isinstance(args["count"], int):
        raise ValueError(f"message {msgid!r}: count is no whole number")


@lru_cache(maxsize=2048)
def _places(template: str) -> tuple[str, ...]:
    """Return the names of a template's arguments; raise for all but names and number formats."""
    names = []
    for _literal, name, spec, conversion in string.Formatter().parse(template):
        if name is None:
            continue
        if not name.isidentifier() or conversion or not _SPEC.fullmatch(spec or ""):
            raise ValueError(f"message {template!r}: {{{name}}} is no plain name")
        names.append(name)
    return tuple(names)
