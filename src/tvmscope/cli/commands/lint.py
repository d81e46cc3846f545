"""`tvmscope lint`: what costs a script that uses TVM its speed, or is gone; never runs it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from tvmscope.cli.command import RESULTS, Command
from tvmscope.cli.flags import groups as flags
from tvmscope.cli.show import Show, write
from tvmscope.errors import UsageError
from tvmscope.lint.old_calls import table
from tvmscope.lint.rules import Fault
from tvmscope.messages import _, plural, render


def lint(
    scripts: Annotated[
        list[Path] | None,
        typer.Argument(metavar="SCRIPT.py", help=_("Python scripts that use TVM, old or new.")),
    ] = None,
    calls: Annotated[
        bool, typer.Option("--calls", help=_("Print the table of old and new calls instead."))
    ] = False,
    *,
    show: Show,
) -> int:
    """List what costs a script speed or no longer exists, with lines and what to write today.

    The script is parsed and never run. The exit code is 1 where something was found.
    """
    from tvmscope.lint.rules import lint as look
    from tvmscope.lint.script import parse

    if calls:
        write(table())
        return 0
    if not scripts:
        raise UsageError(_("name a script, or --calls"))
    parsed = {file: parse(file) for file in scripts}
    found = {file: look(script) for file, script in parsed.items() if script.uses_tvm}
    if show.json:
        show.machine({str(file): [_encoded(f) for f in faults] for file, faults in found.items()})
    elif not show.quiet:
        for file in parsed:
            _print(file, found.get(file))
    return 1 if any(found.values()) else 0


def _print(file: Path, faults: list[Fault] | None) -> None:
    from tvmscope.report.escape import clean

    name = clean(str(file))
    if faults is None:
        print(_("{file}: does not import TVM").format(file=name))
        return
    for fault in faults:
        print(f"{name}:{fault.line}: {clean(render(fault.said), 400)} [{fault.rule}]")
        print(_("    today: {today}").format(today=clean(render(fault.today), 400)))
    count = len(faults)
    text = plural("{file}: {n} finding", "{file}: {n} findings", count)
    print(text.format(file=name, n=count))


def _encoded(fault: Fault) -> dict[str, object]:
    return {
        "line": fault.line,
        "rule": fault.rule,
        "said": str(fault.said),
        "today": str(fault.today),
    }


COMMAND = Command(lint, (flags.speech,), panel=RESULTS)
