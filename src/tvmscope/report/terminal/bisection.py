"""A bisection's answer in words."""

from __future__ import annotations

from collections.abc import Iterator

from tvmscope.analysis.bisection import Bisection
from tvmscope.messages import _
from tvmscope.report.escape import clean

_MARKS = {True: _("right"), False: _("WRONG"), None: _("cannot be run")}


def render(found: Bisection, *, verbose: bool = False) -> Iterator[str]:
    """The answer first, then the proof; the single tests where they are asked for."""
    yield f"{clean(found.model)} @ {clean(found.target)}: {headline(found)}"
    if found.detail:
        yield _("  there: {detail}").format(detail=clean(found.detail))
    if found.accuracy.detail and found.outcome not in ("nothing", "reference"):
        yield _("  in the end: {detail}").format(detail=clean(found.accuracy.detail))
    if found.reproducer is not None:
        yield f"  {_proof(found)}"
    if verbose:
        for test in found.tested:
            more = f": {clean(test.detail)}" if test.detail else ""
            yield f"  {clean(test.name)}: {_MARKS[test.passed]}{more}"


def headline(found: Bisection) -> str:
    """One line: what is wrong, and where."""
    ops = clean(", ".join(found.source_ops), 200) or _("an operator of unknown origin")
    passes = clean(", ".join(found.passes))
    if found.outcome == "nothing":
        text = _("nothing diverges: every output is within {tolerance:g} of {reference}")
    elif found.outcome == "reference":
        if found.source_ops:
            text = _("the reference itself verifies nothing, from {ops} on; give other --inputs")
        else:
            text = _("the reference itself verifies nothing; give other --inputs")
    elif found.outcome == "importer":
        text = _("{ops} is wrong as soon as it is imported, before any pass")
    elif found.outcome == "pass":
        text = _("pass {passes} makes it wrong, first at {ops}")
    else:
        text = _("the schedule of kernel {kernel} is wrong (rule {rule}), which computes {ops}")
    return text.format(
        ops=ops, passes=passes, kernel=clean(found.kernel or ""), rule=clean(found.rule or "?"),
        tolerance=found.accuracy.tolerance, reference=found.accuracy.reference,
    )  # fmt: skip


def _proof(found: Bisection) -> str:
    script = f"python {clean(str(found.reproducer))}/reproduce.py"
    if not found.reproduced:
        return _("{script} was run and does NOT show it").format(script=script)
    what = _("that operator alone") if found.alone else _("the whole model")
    return _("{script} shows it with {what}; it was run").format(script=script, what=what)
