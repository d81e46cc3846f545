"""`tvmscope learn`: lessons about schedules that run and are measured on this machine."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tvmscope.cli.command import START, Command
from tvmscope.cli.flags import groups as flags
from tvmscope.cli.show import Show, refuse_overwrite, write
from tvmscope.errors import UsageError
from tvmscope.messages import _, msg, render
from tvmscope.parsing import parse_assignments
from tvmscope.quantities import format_s
from tvmscope.stages.options import Options

if TYPE_CHECKING:
    from rich.console import RenderableType

    from tvmscope.learn.facts import LessonRun
    from tvmscope.learn.lesson import Lesson
    from tvmscope.learn.setting import Setting

_SITE = Path("build") / "site"
"""Where `make docs` puts the site."""
_SET = msg(
    "Change a parameter of the lesson; several values (factor=8,16,32) are swept and plotted. "
    "Every lesson has threads. Repeatable."
)


def learn(
    lesson: Annotated[
        str | None, typer.Argument(metavar="LESSON", help=_("Its name; without one, the list."))
    ] = None,
    size: Annotated[
        int | None, typer.Option("--size", metavar="N", min=1, help=_("Size of the problem."))
    ] = None,
    set_: Annotated[
        list[str] | None, typer.Option("--set", metavar="NAME=N,...", help=_SET)
    ] = None,
    answer: Annotated[
        str | None,
        typer.Option("--answer", metavar="TEXT", help=_("Check an answer to the exercise.")),
    ] = None,
    ir: Annotated[bool, typer.Option("--ir", help=_("Show each step as TVMScript too."))] = False,
    asm: Annotated[
        bool, typer.Option("--asm", help=_("Show the innermost machine loop, before and after."))
    ] = False,
    run: Annotated[
        bool,
        typer.Option("--run", help=_("Measure anew what a lesson otherwise shows from a file.")),
    ] = False,
    play: Annotated[
        bool,
        typer.Option("--play", help=_("Play with the lesson's loops on a page in the terminal.")),
    ] = False,
    html: Annotated[
        Path | None,
        typer.Option("--html", metavar="FILE", help=_("Write the measured lesson as a page.")),
    ] = None,
    notebook: Annotated[
        Path | None,
        typer.Option(
            "--notebook", metavar="FILE", help=_("Write the lesson as a Jupyter notebook to run.")
        ),
    ] = None,
    serve: Annotated[
        bool,
        typer.Option(
            "--serve",
            help=_("Serve the built site (make docs), or the lessons, to a browser here."),
        ),
    ] = False,
    port: Annotated[
        int, typer.Option("--port", metavar="N", min=0, max=65535, help=_("Serve on this port."))
    ] = 8700,
    *,
    options: Options,
    show: Show,
) -> int:
    """Learn how TVM makes code fast: run a lesson, change its parameters, measure what happens.

    Each step shows the loops, checks the result against numpy, measures the time and says why it
    changed. --output writes the plot as an SVG picture.
    """
    from tvmscope.learn import catalog
    from tvmscope.learn.pages import terminal

    if serve:
        return _serve(port, options, show)
    if lesson is None:
        say(show, *terminal.listing(catalog.lessons()))
        if show.json:
            show.machine({"lessons": {k: str(v.title) for k, v in catalog.lessons().items()}})
        return 0
    for file in (options.output, html, notebook):
        refuse_overwrite(file, options.force)
    found = catalog.find(lesson)
    if notebook is not None:
        from tvmscope.learn.pages.notebook import to_notebook

        write(to_notebook(found, size), notebook)
        return 0
    values = parse_assignments(set_ or [])
    setting = setting_of(options, size, {k: v[0] for k, v in values.items()}, live=run)
    if play:
        return _play(found, setting, show)
    if answer is not None:
        return _answer(found, setting, answer, show)
    if any(len(tried) > 1 for tried in values.values()):
        return _sweep(found, setting, values, options.output, show)
    return _run(found, setting, show, Written(options.output, html), ir=ir, asm=asm)


def setting_of(
    options: Options, size: int | None, chosen: dict[str, int], *, live: bool = False
) -> Setting:
    """How a lesson, or the reader's own file, is run on this machine's CPU."""
    from tvmscope.learn.setting import Setting
    from tvmscope.stages.targets import resolve_targets

    (target,) = resolve_targets(replace(options, targets=("cpu",)))
    return Setting(target=target, size=size, chosen=chosen, live=live)


@dataclass(frozen=True)
class Written:
    """The files that a run is written to."""

    plot: Path | None = None
    page: Path | None = None


def _run(
    lesson: Lesson, setting: Setting, show: Show, files: Written, *, ir: bool, asm: bool
) -> int:
    from tvmscope.learn import plots
    from tvmscope.learn.pages import terminal
    from tvmscope.learn.pages.json_ import as_json
    from tvmscope.learn.run import run as go
    from tvmscope.learn.setting import check_parameters

    check_parameters(lesson, setting)
    say(show, *terminal.opening(lesson))
    with show.working() as progress:
        found = go(lesson, setting, progress)
    say(show, *terminal.pages(found, lesson, ir=ir, asm=asm))
    if files.plot is not None:
        if not found.steps:
            raise UsageError(msg("this lesson has no plot to write"))
        write(plots.svg(render(lesson.title), found.steps, found.roof_gflops), files.plot)
    if files.page is not None:
        write(_page(lesson, found), files.page)
    if show.json:
        show.machine(as_json(found))
    if any(s.built is not None and not s.built.right for s in found.steps):
        return 3
    refused = {step.name for step in lesson.steps if step.refused}
    return 1 if any(s.failure and s.name not in refused for s in found.steps) else 0


def _page(lesson: Lesson, run: LessonRun) -> str:
    from datetime import date

    from tvmscope.learn.pages.document import blocks
    from tvmscope.learn.pages.web import to_html

    return to_html(blocks(run, lesson, date.today().isoformat()))


def _serve(port: int, options: Options, show: Show) -> int:
    """Until Ctrl-C; what `make docs` has built in this folder is served before lessons are."""
    from tvmscope.learn import catalog
    from tvmscope.learn.pages import server
    from tvmscope.learn.run import run

    def make(name: str) -> str:
        lesson = catalog.find(name)
        return _page(lesson, run(lesson, setting_of(options, None, {})))

    if (_SITE / "index.html").is_file():
        found = server.site_server(_SITE, port)
    else:
        found = server.lesson_server(catalog.lessons(), make, port)
    show.text(_("http://{host}:{port}/ until Ctrl-C").format(
        host=server.HOST, port=found.server_address[1]
    ))  # fmt: skip
    with found:
        try:
            found.serve_forever()
        except KeyboardInterrupt:
            return 0
    return 0


def _sweep(
    lesson: Lesson,
    setting: Setting,
    values: dict[str, tuple[int, ...]],
    output: Path | None,
    show: Show,
) -> int:
    from tvmscope.learn import plots
    from tvmscope.learn.pages import terminal
    from tvmscope.learn.pages.json_ import as_json
    from tvmscope.learn.sweep import sweep

    with show.working() as progress:
        found = sweep(lesson, replace(setting, chosen={}), values, progress)
    say(show, *terminal.swept(found))
    if output is not None:
        write(plots.svg(render(lesson.title), found.points, found.run.roof_gflops), output)
    if show.json:
        show.machine(as_json(found.run))
    return 0 if found.best is not None else 1


def _answer(lesson: Lesson, setting: Setting, answer: str, show: Show) -> int:
    from tvmscope.learn.run import check_answer

    with show.working() as progress:
        checked = check_answer(lesson, setting, answer, progress)
    say(show, _("Right.") if checked.right else _("Not yet."), checked.words)
    if show.json:
        show.machine({"right": checked.right, "words": str(checked.words)})
    return 0 if checked.right else 1


def _play(lesson: Lesson, setting: Setting, show: Show) -> int:
    from tvmscope import extras
    from tvmscope.learn.play import table
    from tvmscope.learn.setting import study_of
    from tvmscope.learn.step_bench import opened

    if lesson.workload is None or lesson.workload.name != "matmul":
        raise UsageError(msg("only lessons on the matrix product can be played: try matmul"))
    extras.require("textual", why="tvmscope learn --play")
    from tvmscope.learn.play.app import PlayApp

    study = study_of(lesson, setting, ())
    with opened(lesson.name, None, study) as bench:
        with show.working() as progress:
            progress.stage(_("measuring those to beat"))
            game = table.opened(bench, lesson)
        PlayApp(game, study.lanes).run()
    for entry in game.board:
        rate = "" if entry.gflops is None else f"  {entry.gflops:.1f} GFLOP/s"
        say(show, f"{render(entry.name)}: {format_s(entry.seconds)}{rate}")
    return 0


def say(show: Show, *views: RenderableType) -> None:
    """A lesson is the result itself: it goes to stdout and may be piped, unless JSON does."""
    from rich.console import Console
    from rich.text import Text

    if show.json:
        show.text(*views)
    elif not show.quiet:
        console = Console(highlight=False)
        for view in views:
            console.print(Text(render(view)) if isinstance(view, str) else view)


COMMAND = Command(learn, (flags.cores, flags.place, flags.speech), panel=START, needs=("tvm",))
