"""The command line library's own words, in the reader's language.

Typer has no translations: its headings are constants, its errors English sentences. Both are
recognised here by their texts, and left as they are where a version of it says something new.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache
from typing import Any

from typer.core import TyperCommand, TyperGroup

from tvmscope.messages import Arg, Message, Text, _, marked

_CONSTANTS = {
    "ARGUMENTS_PANEL_TITLE": (marked("Arguments"), "Arguments"),
    "OPTIONS_PANEL_TITLE": (marked("Options"), "Options"),
    "COMMANDS_PANEL_TITLE": (marked("Commands"), "Commands"),
    "DEFAULT_STRING": (marked("[default: {value}]"), "[default: {}]"),
    "REQUIRED_LONG_STRING": (marked("[required]"), "[required]"),
}
"""Constants of `typer.rich_utils`: our text, and the library's."""
_USAGE = "Usage: "
_FLAGS = frozenset(
    {
        marked("Show this message and exit."),
        marked("Install completion for the current shell."),
        marked("Show completion for the current shell, to copy it or customize the installation."),
    }
)
"""The help of flags that the library adds."""
_ERRORS = (
    marked("Missing command."),
    marked("Missing argument {parameter}."),
    marked("Missing option {parameter}."),
    marked("No such command {name}. Did you mean {near}?"),
    marked("No such command {name}."),
    marked("No such option: {option} (Possible options: {near})"),
    marked("No such option: {option}"),
    marked("Option {option} requires an argument."),
    marked("Option {option} does not take a value."),
    marked("Got unexpected extra argument(s) ({arguments})"),
    marked("Invalid value for {parameter}: {problem}"),
    marked("Invalid value: {problem}"),
    marked("Value error, {problem}"),
    marked("{value} is not one of {choices}."),
    marked("{value} is not in the range {limits}."),
    marked("Input should be a valid integer, unable to parse string as an integer"),
    marked("Input should be a valid number, unable to parse string as a number"),
    marked("Input should be greater than or equal to {limit}"),
    marked("Input should be less than or equal to {limit}"),
    marked("Input should be {choices}"),
    marked("{kind} {path} does not exist."),
)
"""The library's error messages; the first match counts."""
_CHOICE = "choices"


def usage_error(text: str) -> Text:
    """Convert the library's error to a message, if it is a known one."""
    for template in _ERRORS:
        if found := _pattern(template).fullmatch(text):
            return Message(template, {k: _inner(k, v) for k, v in found.groupdict().items()})
    return text


def _inner(name: str, text: str) -> Arg:
    if name == _CHOICE:  # 'a', 'b' or 'c'
        return re.findall(r"'[^']*'", text) or text
    return usage_error(text) if name == "problem" else text


@cache
def _pattern(template: str) -> re.Pattern[str]:
    parts = re.split(r"\{(\w+)\}", template)
    made = [f"(?P<{part}>.+?)" if i % 2 else re.escape(part) for i, part in enumerate(parts)]
    return re.compile("".join(made), re.DOTALL)


def _translate(params: list[Any]) -> None:
    """Before help is shown; the library reads its constants when it draws a page."""
    from typer import rich_utils

    for name, (text, _theirs) in _CONSTANTS.items():
        setattr(rich_utils, name, _(text).replace("{value}", "{}"))
    for param in params:
        if getattr(param, "help", None) in _FLAGS:
            param.help = _(param.help)


def _usage(text: str) -> str:
    return _("Usage: ") + text.removeprefix(_USAGE) if text.startswith(_USAGE) else text


class SpeakingCommand(TyperCommand):
    """A command whose help is in the reader's language."""

    def get_usage(self, ctx: Any) -> str:
        return _usage(super().get_usage(ctx))

    def format_help(self, ctx: Any, formatter: Any) -> None:
        _translate(self.get_params(ctx))
        super().format_help(ctx, formatter)


class SpeakingGroup(TyperGroup):
    """The same for several commands under one name."""

    def get_usage(self, ctx: Any) -> str:
        return _usage(super().get_usage(ctx))

    def format_help(self, ctx: Any, formatter: Any) -> None:
        _translate(self.get_params(ctx))
        super().format_help(ctx, formatter)


def defaults() -> Mapping[str, str]:
    """Return the library's text of each replaced constant: a test compares them."""
    return {name: theirs for name, (_ours, theirs) in _CONSTANTS.items()}
