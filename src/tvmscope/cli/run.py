"""`tvmscope run`: time an artifact, keep its outputs, show it pictures."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from tvmscope.cli import _flags as flags
from tvmscope.cli._command import DEPLOY, Command
from tvmscope.cli._picture_flags import pictures
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
    device: Annotated[
        str | None, typer.Option("--device", hidden=True, help=_("Must be the artifact's own."))
    ] = None,
    *,
    options: Options,
    show: Show,
) -> int:
    """Run a compiled artifact: time it, save its outputs, show it pictures."""
    from tvmscope.core.session import save
    from tvmscope.workflow.places import claim
    from tvmscope.workflow.run import check_device, run_artifact

    if device is not None:
        check_device(artifact, device)
    if options.output is not None:
        claim(options.output, force=options.force)
    refuse_overwrite(show.export_times, options.force)
    if options.pictures is not None:
        return _show_pictures(artifact, save_outputs, options, show)
    with show.working() as progress:
        session = run_artifact(artifact, options, save_outputs=save_outputs, progress=progress)
    if options.output is not None:
        save(session, options.output)
    show.sessions([session])
    return exit_code([session])


def _show_pictures(artifact: Path, save_outputs: Path | None, options: Options, show: Show) -> int:
    """Answers instead of a table of times; 1 when a picture could not be answered."""
    from tvmscope.core.session import save
    from tvmscope.report import answers
    from tvmscope.workflow.pictures import show_pictures

    with show.working() as progress:
        shown = show_pictures(artifact, options, save_outputs=save_outputs, progress=progress)
    said = answers.without_folders(shown.answers) if show.redact else shown.answers
    show.text(answers.render(said))
    session, code = shown.session, 0
    if session is not None:
        if options.output is not None:
            save(session, options.output)
        show.sessions([session], json=False)
        code = exit_code([session])
    if show.json:
        (hidden,) = show.presentable([session]) if session else (None,)
        show.machine(answers.machine(said, hidden))
    return 1 if any(answer.failure is not None for answer in said) else code


COMMAND = Command(
    run,
    (
        pictures,
        flags.cores,
        flags.inputs,
        flags.measurement,
        flags.place,
        flags.speech,
        flags.results,
    ),
    panel=DEPLOY,
)
