"""Says in one sentence which rule of TIR a schedule primitive breaks, from TVM's long message."""

from __future__ import annotations

import re

from tvmscope.errors import one_line
from tvmscope.messages import Text, msg


def broken_rule(error: Exception) -> Text:
    """Say which primitive was refused, and the rule of TIR that it breaks, in TVM's words."""
    text = str(error)
    primitive = re.search(r"schedule primitive '([\w-]+)'", text)
    _, _, reason = text.partition("Error message:")
    reason = re.split(r"\nThe pattern attempting to be matched:", reason)[0] + _mismatch(reason)
    said = _with_names(" ".join(reason.split()).removeprefix("ScheduleError: "), text)
    first = re.match(r".*?\.(?=\s|$)", said)
    rules = [found[0] for found in re.finditer(r"violates condition #(\d+) as a ([\w ]+)", said)]
    broken = "; ".join(f"{rule}: {_definition(said, rule)}" for rule in rules)
    return msg(
        "{primitive} is not legal here. {reason}",
        primitive=primitive[1] if primitive else msg("the primitive"),
        reason=" ".join(part for part in ((first[0] if first else said[:300]), broken) if part)
        or one_line(error),
    )


def _with_names(said: str, text: str) -> str:
    """Loops and blocks by their names: TVM calls them `tirx.For#0`, and marks them in the program.

    A mark is a comment line above the loop or block.
    """
    marks = re.finditer(r"# ([\w.]+#\d+)\s+(?:for (\w+)|with T\.sblock\(\"([^\"]+)\")", text)
    for mark in marks:
        said = re.sub(rf"{re.escape(mark[1])}(?!\d)", mark[2] or mark[3], said)
    return said


def _mismatch(reason: str) -> str:
    """Return what differs in an intrinsic that does not fit, without both programs."""
    found = re.findall(r"^(?:\w+ \w*)(?:mismatch|do not match|returning false)[^\n]*", reason, re.M)
    return f". {found[0]}" if found else ""


def _definition(said: str, rule: str) -> str:
    """Return the text of the numbered condition that a rule names."""
    match = re.match(r"violates condition #(\d+) as a ([\w ]+)", rule)
    assert match is not None
    kind = match[2].replace("local ", "").strip()
    _, _, listed = said.partition(f"Definition of a {match[2].strip()}:")
    if not listed:
        _, _, listed = said.partition(f"Definition of a {kind}:")
    found = re.search(rf"{match[1]}\) (.*?)(?= \d\) | It violates| Definition|$)", listed)
    return found[1] if found else ""
