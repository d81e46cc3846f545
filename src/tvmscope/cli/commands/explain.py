"""`tvmscope explain`: says why a model is slow, and shows how a kernel is scheduled."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tvmscope.cli.command import RESULTS, Command
from tvmscope.cli.flags import groups as flags
from tvmscope.cli.show import Show
from tvmscope.core.profile import Code
from tvmscope.errors import UsageError
from tvmscope.messages import _, msg

if TYPE_CHECKING:
    from tvmscope.core.profile import KernelIR
    from tvmscope.core.session import Session
    from tvmscope.report.terminal.explain import Titled
    from tvmscope.workflow.explain import Kernels

_KERNEL = msg(
    "Show this kernel's loops, buffers and schedule; with two paths, show both side by side."
)

_AGAINST = msg(
    "With --kernel: also show the kernel of this session or artifact that computes the same "
    "source operators."
)
_CODE = msg(
    "With --kernel: show its code in this form. CPU kernels have tir, llvm and asm, CUDA kernels "
    "tir, cuda, ptx and sass. No GPU is needed."
)


_LANGUAGES = {
    "tir": ("python", "#"),
    "llvm": ("llvm", ";"),
    "asm": ("gas", "#"),
    "cuda": ("cuda", "//"),
    "ptx": ("text", "//"),
    "sass": ("text", "//"),
}
"""How each form of code is coloured, and how its comments begin."""


def explain(
    paths: Annotated[
        list[Path],
        typer.Argument(
            metavar="SESSION|ARTIFACT",
            help=_("Explain these results folders, session.json files or artifacts."),
        ),
    ],
    kernel: Annotated[
        str | None, typer.Option("--kernel", "-k", metavar="NAME", help=_KERNEL)
    ] = None,
    against: Annotated[
        Path | None, typer.Option("--against", metavar="SESSION|ARTIFACT", help=_AGAINST)
    ] = None,
    code: Annotated[Code | None, typer.Option("--code", help=_CODE)] = None,
    *,
    show: Show,
) -> int:
    """Say what is slow, why, what it is worth and how to fix it."""
    from tvmscope.report.terminal.explain import Titled
    from tvmscope.workflow import explain as job

    if kernel is None:
        if against is not None:
            raise UsageError(
                msg(
                    "--against shows a second kernel beside the first: name the first with --kernel"
                )
            )
        if code is not None:
            raise UsageError(msg("--code shows the code of one kernel: name it with --kernel"))
        _show_findings([job.explain(path) for path in paths], paths, show)
        return 0
    places = [job.kernels_at(path) for path in (*paths, *([against] if against else []))]
    beside = job.side_by_side(kernel, places)
    if code is not None:
        codes = [(_title(place, ir), job.code_of(place, ir, code)) for place, ir in beside]
        _show_code(codes, code, show)
        return 0
    found = [
        Titled(title=place.where.name or str(place.where), session=place.session, ir=ir)
        for place, ir in beside
    ]
    _show_kernels(found, show)
    return 0


def _show_findings(sessions: list[Session], paths: list[Path], show: Show) -> None:
    from tvmscope.report.terminal.explain import findings
    from tvmscope.storage.codec import encode
    from tvmscope.workflow.fixing import calibration

    if show.json:
        show.machine(
            [
                {
                    "path": str(path),
                    "model": s.model.name,
                    "findings": encode(s.findings),
                    "fixes": encode(s.fixes),
                }
                for s, path in zip(sessions, paths, strict=True)
            ]
        )
    else:
        past = calibration.history()
        _print(show, *(findings(session, past) for session in sessions))


def _show_kernels(kernels: list[Titled], show: Show) -> None:
    from tvmscope.report.sections.schedule import in_words
    from tvmscope.report.terminal.explain import KernelView
    from tvmscope.storage.codec import encode

    if show.json:
        show.machine([encode(k.ir) | {"schedule": in_words(k.ir.trace)} for k in kernels])
    else:
        _print(show, KernelView(tuple(kernels)))


def _title(place: Kernels, ir: KernelIR) -> str:
    where = place.where.name or str(place.where)
    return " · ".join((ir.name, where, *(() if ir.key is None else (ir.key.label,))))


def _show_code(codes: list[tuple[str, str]], kind: Code, show: Show) -> None:
    """Each kernel's code; several have their names above, as comments."""
    from rich.console import Console
    from rich.syntax import Syntax

    if show.json:
        show.machine([{"kernel": t, "kind": kind, "code": code} for t, code in codes])
        return
    if show.quiet:
        return
    console, (lexer, comment) = Console(highlight=False), _LANGUAGES[kind]
    for title, code in codes:
        text = f"{comment} {title}\n{code}" if len(codes) > 1 else code
        coloured = Syntax("", lexer, theme="ansi_dark").highlight(text)
        console.print(coloured, soft_wrap=True, end="")


def _print(show: Show, *views: Any) -> None:
    """Print the answer to stdout: it is the command's result and may be piped."""
    from rich.console import Console

    if not show.quiet:
        console = Console(highlight=False)
        for view in views:
            console.print(view)


COMMAND = Command(explain, (flags.speech,), panel=RESULTS)
