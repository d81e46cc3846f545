"""`tvmscope lab`: the reader's own TIR function and schedule, checked, timed and explained."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tvmscope.cli.command import START, Command
from tvmscope.cli.commands.learn import say, setting_of
from tvmscope.cli.flags import groups as flags
from tvmscope.cli.show import Show, refuse_overwrite, write
from tvmscope.messages import _
from tvmscope.parsing import parse_assignments
from tvmscope.stages.options import Options

if TYPE_CHECKING:
    from tvmscope.learn.lab import LabRun


def lab(
    file: Annotated[
        Path,
        typer.Argument(
            metavar="FILE.py",
            help=_("Defines main (or workload()), schedule(sch, ...) and perhaps reference()."),
        ),
    ],
    sweep: Annotated[
        list[str] | None,
        typer.Option(
            "--sweep",
            metavar="NAME=N,...",
            help=_("Values of parameters of schedule(); several are all tried. Repeatable."),
        ),
    ] = None,
    ir: Annotated[bool, typer.Option("--ir", help=_("Show TVMScript too."))] = False,
    asm: Annotated[
        bool, typer.Option("--asm", help=_("Show the innermost machine loop, before and after."))
    ] = False,
    *,
    options: Options,
    show: Show,
) -> int:
    """Measure your own TIR function and schedule: loops, check, speed, share of the roof, why.

    The file is a Python program and IS EXECUTED: run only what you trust. --output writes the
    plot as an SVG picture.
    """
    from tvmscope.learn.lab import lab as go

    refuse_overwrite(options.output, options.force)
    setting = setting_of(options, None, {})
    with show.working() as progress:
        found = go(file, setting, parse_assignments(sweep or []), progress)
    return _shown(file, found, options.output, show, ir=ir, asm=asm)


def _shown(
    file: Path, found: LabRun, output: Path | None, show: Show, *, ir: bool, asm: bool
) -> int:
    from tvmscope.learn import plots
    from tvmscope.learn.pages import terminal
    from tvmscope.learn.pages.json_ import as_json

    if found.sweep is not None:
        say(show, *terminal.swept(found.sweep))
    else:
        say(show, *terminal.measured(found.run, ir=ir, asm=asm))
    steps = found.run.steps
    if output is not None:
        write(plots.svg(file.name, steps, found.run.roof_gflops), output)
    if show.json:
        show.machine(as_json(found.run))
    if any(step.built is not None and not step.built.right for step in steps):
        return 3
    return 1 if any(step.failure for step in steps) else 0


COMMAND = Command(lab, (flags.cores, flags.place, flags.speech), panel=START, needs=("tvm",))
