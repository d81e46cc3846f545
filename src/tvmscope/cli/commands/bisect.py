"""`tvmscope bisect`: which pass and which operator make a result wrong."""

from __future__ import annotations

from tvmscope.cli.command import RESULTS, Command
from tvmscope.cli.flags import groups as flags
from tvmscope.cli.show import Show
from tvmscope.errors import AccuracyError
from tvmscope.stages.options import Options


def bisect(model: flags.Model, *, options: Options, show: Show) -> int:
    """Find the first pass and operator that diverge from the framework; write a reproducer."""
    from tvmscope.report.terminal.bisection import render
    from tvmscope.storage.codec import encode
    from tvmscope.workflow.bisecting.bisect import bisect as run

    with show.working() as progress:
        found = run(model, options, progress)
    show.text(*render(found, verbose=show.verbose))
    if show.json:
        show.machine(encode(found))
    return 0 if found.outcome == "nothing" else AccuracyError.exit_code


COMMAND = Command(
    bisect,
    (
        *flags.SUBJECT,
        flags.compilation,
        flags.tolerances,
        flags.place,
        flags.speech,
    ),
    panel=RESULTS,
    needs=("tvm",),
)
