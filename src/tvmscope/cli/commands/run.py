"""`tvmscope run`: time an artifact, save its outputs, run it on images."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tvmscope.cli.aliases import wants_average
from tvmscope.cli.command import DEPLOY, Command
from tvmscope.cli.flags import groups as flags
from tvmscope.cli.flags.option import option
from tvmscope.cli.flags.pictures import pictures
from tvmscope.cli.show import Show, exit_code, refuse_overwrite, write
from tvmscope.errors import UsageError
from tvmscope.messages import _, msg
from tvmscope.stages.options import Options

if TYPE_CHECKING:
    from tvmscope.core.session import Session

_KERNELS = msg("Kernels")
_TOP = 20


def run(
    artifact: Annotated[
        Path,
        typer.Argument(
            metavar="ARTIFACT", help=_("Run this artifact folder, which compile wrote.")
        ),
    ],
    save_outputs: Annotated[
        Path | None,
        typer.Option(
            "--save-outputs", metavar="FILE.npz", help=_("Save the outputs by name in this file.")
        ),
    ] = None,
    profile: Annotated[
        bool,
        option(
            _KERNELS, "--profile", help=_("Also time every kernel, after the other measurements.")
        ),
    ] = False,
    top: Annotated[
        int | None,
        option(
            _KERNELS,
            "--top",
            metavar="N",
            min=1,
            help=_("Show this many kernels."),
            default="20",
        ),
    ] = None,
    *,
    options: Options,
    show: Show,
) -> int:
    """Run a compiled artifact: time it, save its outputs, classify or detect in images."""
    from tvmscope.stages.places import claim
    from tvmscope.workflow.run import run_artifact

    if top is not None and not profile:
        raise UsageError(msg("--top sets how many kernels --profile shows; give both"))
    if options.output is not None:
        claim(options.output, force=options.force)
    refuse_overwrite(show.export_times, options.force)
    top = (top or _TOP) if profile else None
    if options.pictures is not None:
        return _show_pictures(artifact, save_outputs, top, options, show)
    with show.working() as progress:
        session = run_artifact(artifact, options, save_outputs=save_outputs, progress=progress)
        if profile:
            from tvmscope.workflow.profile import profile_artifact

            session = profile_artifact(artifact, options, progress, session)
    return _show_session(session, top, options, show)


def _show_session(
    session: Session, top: int | None, options: Options, show: Show, *, json: bool = True
) -> int:
    """Show times, then kernels; return 1 if kernels were requested and could not be timed."""
    from dataclasses import replace

    from tvmscope.core.session import save
    from tvmscope.report.terminal import profile_table

    if options.output is not None:
        save(session, options.output)
    if session.results:
        show.sessions([session], json=json)
        if not show.json and wants_average(shlex.split(options.command)):
            write(average_lines(session))
    if top is not None:
        (shown,) = show.presentable([session])
        if session.results:  # the table of times shows the warnings
            shown = replace(shown, warnings=())
        show.text("", profile_table.render(shown, top))
    code = exit_code([session]) if session.results else 0
    return code or int(top is not None and not session.profiles)


def average_lines(session: Session) -> str:
    """Return the line that older scripts print for each measured row, for programs that read it."""
    from tvmscope.core.stats import summary

    timed = [r.measurement for r in session.results if r.status == "ok" and r.measurement]
    means_ms = [summary(m)["mean_s"] * 1e3 for m in timed if m.values_s]
    return "".join(f"avg latency (ms): {mean:.3f}\n" for mean in means_ms)


def _show_pictures(
    artifact: Path, save_outputs: Path | None, top: int | None, options: Options, show: Show
) -> int:
    """Print the answers before the tables; return 1 if an image could not be processed."""
    from tvmscope.report.terminal import answers
    from tvmscope.workflow.pictures import show_pictures

    with show.working() as progress:
        shown = show_pictures(
            artifact,
            options,
            save_outputs=save_outputs,
            profile=top is not None,
            progress=progress,
        )
    said = answers.without_folders(shown.answers) if show.redact else shown.answers
    show.text(answers.render(said))
    session, code = shown.session, 0
    if session is not None:
        code = _show_session(session, top, options, show, json=False)
    if show.json:
        (hidden,) = show.presentable([session]) if session else (None,)
        show.machine(answers.machine(said, hidden))
    return 1 if any(answer.failure is not None for answer in said) else code


COMMAND = Command(
    run,
    (
        pictures,
        flags.device,
        flags.cores,
        flags.inputs,
        flags.measurement,
        flags.place,
        flags.speech,
        flags.results,
    ),
    panel=DEPLOY,
    needs=("tvm",),
)
