"""`tvmscope report`: render saved sessions again; needs neither TVM nor torch."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tvmscope.cli.command import RESULTS, Command
from tvmscope.cli.flags import groups as flags
from tvmscope.cli.show import Show, refuse_overwrite, write
from tvmscope.errors import UsageError
from tvmscope.messages import _, msg
from tvmscope.report.format_names import format_names
from tvmscope.stages.options import Options

if TYPE_CHECKING:
    from tvmscope.core.session import Session


def report(
    paths: Annotated[
        list[Path],
        typer.Argument(metavar="SESSION", help=_("Render these results folders or session files.")),
    ],
    format_: Annotated[
        str | None,
        typer.Option(
            "--format",
            "-f",
            metavar="NAME",
            help=_(
                "Write one of the formats {names}. [default: by the suffix of --output, else "
                "console]"
            ).format(names=", ".join(format_names())),
        ),
    ] = None,
    *,
    options: Options,
    show: Show,
) -> int:
    """Render saved sessions: a page, Markdown, tables, and files for other tools."""
    from tvmscope.core.session import load
    from tvmscope.report.formats import json_
    from tvmscope.report.renderers import by_file, renderer
    from tvmscope.stages.facts import informed

    by_name = by_file(options.output) if options.output else None
    chosen = renderer("json" if show.json else format_ or by_name or "console")
    if chosen.packed and options.output is None:
        raise UsageError(
            msg(
                "{name} is a compressed file: give -o FILE{suffix}",
                name=chosen.name,
                suffix=chosen.suffix,
            )
        )
    for file in (options.output, show.export_times):
        refuse_overwrite(file, options.force)
    shown = show.presentable([informed(load(path)) for path in paths])
    if options.output is not None:
        files = chosen.write(shown, options.output, force=options.force)
        for file in files[1:]:  # the first file is the one that the user named
            show.text(_("beside it: {file}").format(file=file))
    elif chosen.name == "console":
        _print(shown, show)
    else:
        write(chosen.render(shown))
    if show.export_times is not None:
        write(json_.times(shown), show.export_times)
    return 0


def _print(sessions: list[Session], show: Show) -> None:
    from rich.console import Console

    from tvmscope.report.formats import console

    # The table is the command's result, so it goes to stdout and may be piped.
    Console(highlight=False).print(console.render_all(sessions, show.percentiles))


COMMAND = Command(report, (flags.place, flags.speech, flags.results), panel=RESULTS)
