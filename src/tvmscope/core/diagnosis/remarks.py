"""Remarks of the compiler that a diagnosis reads."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from tvmscope.messages import Message, Text, msg

_SENTENCE = re.compile(r"schedule rule '(.+?)' failed on (\S+):")
"""The remark's text in sessions that were written before messages were data."""


def rule_failed(rule: str, kernel: str, reason: Text) -> Message:
    """Make the remark that a schedule rule raised on a kernel, which was left to the next rule."""
    return msg(
        "schedule rule '{rule}' failed on {kernel}: {reason}",
        rule=rule,
        kernel=kernel,
        reason=reason,
    )


_FAILED = rule_failed("", "", "").id


def failed_rules(warnings: Iterable[Text]) -> Iterator[tuple[str, str]]:
    """Yield rule and kernel of each such remark."""
    for text in warnings:
        if isinstance(text, Message):
            if text.id == _FAILED:
                yield str(text.args["rule"]), str(text.args["kernel"])
        elif found := _SENTENCE.search(text):
            yield found[1], found[2]
