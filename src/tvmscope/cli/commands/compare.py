"""`tvmscope compare`: what became faster or slower between two sessions or two artifacts."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from tvmscope.cli.command import RESULTS, Command
from tvmscope.cli.flags import groups as flags
from tvmscope.cli.flags.diagnosis import profiling
from tvmscope.cli.flags.pictures import both_sides
from tvmscope.cli.show import Show
from tvmscope.errors import UsageError
from tvmscope.messages import _, msg
from tvmscope.stages.options import Options

_LIMIT = msg("Exit with 4 if tvmscope is certainly slower than before by more than this.")


def compare(
    paths: Annotated[
        list[Path],
        typer.Argument(
            metavar="BEFORE AFTER",
            help=_("Compare two sessions, or measure two artifacts again and compare them."),
        ),
    ],
    baseline: Annotated[
        Path | None,
        typer.Option(
            "--baseline", metavar="PATH", help=_("Name the session or artifact BEFORE with a flag.")
        ),
    ] = None,
    fail_if_slower: Annotated[
        str | None, typer.Option("--fail-if-slower", metavar="5%", help=_LIMIT)
    ] = None,
    *,
    options: Options,
    show: Show,
) -> int:
    """Say what became faster or slower, and what is undecided."""
    from tvmscope.parsing import parse_fraction
    from tvmscope.report.terminal.changes import render
    from tvmscope.storage.codec import encode
    from tvmscope.workflow.comparing.compare import check_accuracy, check_regression, compare_paths

    limit = None if fail_if_slower is None else parse_fraction(fail_if_slower)
    given = [*([baseline] if baseline else []), *paths]
    if options.pictures is not None:  # images are given as in `run`: --image a.jpg b.jpg
        seen = (*options.pictures.pictures, *given[2:])
        options = replace(options, pictures=replace(options.pictures, pictures=seen))
        given = given[:2]
    if len(given) != 2:
        raise UsageError(
            msg("compare takes two paths, got {count}: BEFORE AFTER", count=len(given))
        )
    with show.working() as progress:
        found = compare_paths(given[0], given[1], options, progress)
    show.text(render(found))
    if show.json:
        show.machine(encode(found))
    check_accuracy(found)
    if limit is not None:
        check_regression(found, limit)
    return int(any(sighting.failure is not None for sighting in found.sightings))


COMMAND = Command(
    compare,
    (
        both_sides,
        flags.device,
        flags.cores,
        flags.inputs,
        flags.measurement,
        profiling,
        flags.speech,
    ),
    panel=RESULTS,
)
