"""Describes the result of a bisection."""

from __future__ import annotations

from collections.abc import Iterator

from tvmscope import messages
from tvmscope.core.diagnosis.bisection import Bisection
from tvmscope.messages import Message, _, marked, msg
from tvmscope.report.escape import clean

_MARKS = {True: marked("right"), False: marked("WRONG"), None: marked("cannot be run")}


def render(found: Bisection, *, verbose: bool = False) -> Iterator[str]:
    """Yield the answer first, then the proof; the single tests only with `verbose`."""
    yield f"{clean(found.model)} @ {clean(found.target)}: {messages.render(headline(found))}"
    if found.detail:
        yield _("  there: {detail}").format(detail=clean(found.detail))
    if found.accuracy.detail and found.outcome not in ("nothing", "reference"):
        yield _("  in the end: {detail}").format(detail=clean(found.accuracy.detail))
    if found.reproducer is not None:
        yield f"  {_proof(found)}"
    if verbose:
        for test in found.tested:
            more = f": {clean(test.detail)}" if test.detail else ""
            yield f"  {clean(test.name)}: {_(_MARKS[test.passed])}{more}"


def headline(found: Bisection) -> Message:
    """Return one line: what is wrong, and where."""
    ops = clean(", ".join(found.source_ops), 200) or msg("an operator of unknown origin")
    if found.outcome == "nothing":
        return msg(
            "nothing diverges: every output is within {tolerance:g} of {reference}",
            tolerance=found.accuracy.tolerance,
            reference=found.accuracy.reference,
        )
    if found.outcome == "reference":
        if found.source_ops:
            return msg(
                "the reference itself verifies nothing, from {ops} on; give other --inputs", ops=ops
            )
        return msg("the reference itself verifies nothing; give other --inputs")
    if found.outcome == "importer":
        return msg("{ops} is wrong as soon as it is imported, before any pass", ops=ops)
    if found.outcome == "pass":
        passes = clean(", ".join(found.passes))
        return msg("pass {passes} makes it wrong, first at {ops}", passes=passes, ops=ops)
    return msg(
        "the schedule of kernel {kernel} is wrong (rule {rule}), which computes {ops}",
        kernel=clean(found.kernel or ""),
        rule=clean(found.rule or "?"),
        ops=ops,
    )


def _proof(found: Bisection) -> str:
    script = f"python {clean(str(found.reproducer))}/reproduce.py"
    if not found.reproduced:
        return _("{script} was run and does NOT reproduce it").format(script=script)
    what = _("that operator alone") if found.alone else _("the whole model")
    return _("{script} reproduces it with {what}; it was run").format(script=script, what=what)
