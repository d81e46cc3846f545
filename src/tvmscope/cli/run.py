"""`tvmscope run`: time an artifact, and keep its outputs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from tvmscope.cli import _flags as flags
from tvmscope.cli._command import DEPLOY, Command
from tvmscope.cli._show import Show, exit_code, refuse_overwrite
from tvmscope.messages import _
from tvmscope.workflow.options import Options


def run(
    artifact: Annotated[
        Path, typer.Argument(metavar="ARTIFACT", help=_("A folder written by compile."))
    ],
    save_outputs: Annotated[
        Path | None,
        typer.Option("--save-outputs", metavar="FILE.npz", help=_("Keep the outputs, by name.")),
    ] = None,
    *,
    options: Options,
    show: Show,
) -> int:
    """Run a compiled artifact: time it, and save its outputs."""
    from tvmscope.core.session import save
    from tvmscope.workflow.places import claim
    from tvmscope.workflow.run import run_artifact

    if options.output is not None:
        claim(options.output, force=options.force)
    refuse_overwrite(show.export_times, options.force)
    with show.working() as progress:
        session = run_artifact(artifact, options, save_outputs=save_outputs, progress=progress)
    if options.output is not None:
        save(session, options.output)
    show.sessions([session])
    return exit_code([session])


COMMAND = Command(
    run,
    (
        flags.cores,
        flags.inputs,
        flags.measurement,
        flags.place,
        flags.speech,
        flags.results,
    ),
    panel=DEPLOY,
)
