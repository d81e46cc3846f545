"""`tvmscope profile`: where the time of one run goes, kernel by kernel."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from tvmscope.cli.command import MEASURE, Command
from tvmscope.cli.flags import groups as flags
from tvmscope.cli.flags.option import option
from tvmscope.cli.show import Show, refuse_overwrite, write
from tvmscope.messages import _, msg
from tvmscope.stages.options import Options

_OUT = msg("Output")


def profile(
    model: Annotated[
        str,
        typer.Argument(
            metavar="MODEL|ARTIFACT",
            help=_("Profile a model (see analyze) or an artifact folder written by compile."),
            show_default=False,
        ),
    ],
    top: Annotated[
        int,
        option(_OUT, "--top", metavar="N", min=1, help=_("Show this many kernels."), default="20"),
    ] = 20,
    export_profile: Annotated[
        Path | None,
        option(_OUT, "--export-profile", metavar="FILE", help=_("Write the profiles as JSON.")),
    ] = None,
    redact: Annotated[
        bool, option(_OUT, "--redact", help=_("Leave out host name, user name and folders."))
    ] = False,
    *,
    options: Options,
    show: Show,
) -> int:
    """Time every kernel of a compiled model, and compare it with the machine's roofs."""
    from tvmscope.core.session import save
    from tvmscope.report.formats import json_
    from tvmscope.report.terminal import profile_table
    from tvmscope.stages.places import claim
    from tvmscope.stages.reports import without_names
    from tvmscope.workflow.profile import profile as run

    if options.output is not None:
        claim(options.output, force=options.force)
    refuse_overwrite(export_profile, options.force)
    with show.working() as progress:
        session = run(model, options, progress)
    if options.output is not None:
        save(session, options.output)
    session = without_names(session) if redact else session
    show.text(profile_table.render(session, top))
    if show.json:
        write(json_.render([session]))
    if export_profile is not None:
        write(json_.profiles(session), export_profile)
    return 0 if session.profiles else 1


COMMAND = Command(
    profile,
    (
        *flags.SUBJECT,
        flags.compilation,
        flags.backends,
        flags.place,
        flags.speech,
    ),
    panel=MEASURE,
    needs=("tvm",),
)
