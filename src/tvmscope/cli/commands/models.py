"""`tvmscope models`: lists the models that need no file."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from tvmscope.cli.command import START, Command
from tvmscope.cli.flags import groups as flags
from tvmscope.cli.show import Show, write
from tvmscope.messages import _, render

if TYPE_CHECKING:
    from rich.table import Table

    from tvmscope.models.catalog import Entry


def models(*, show: Show) -> int:
    """List the built-in models."""
    from tvmscope.models.catalog import catalog
    from tvmscope.storage.codec import encode

    entries = catalog()
    if show.json:
        show.machine(encode(entries))
    elif not sys.stdout.isatty():  # one name per line for grep, cut and fzf, as `ls` does
        write("".join(f"{e.name}\t{e.weights}\t{e.summary}\n" for e in entries))
    else:
        show.text(_table(entries))
    return 0


def _table(entries: list[Entry]) -> Table:
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
    for name in (_("name"), _("what it is"), _("weights")):
        table.add_column(name)
    for entry in entries:
        summary = Text(render(entry.summary))
        if entry.missing:
            summary.append(f"\n{render(entry.missing)}", style="yellow")
        table.add_row(Text(entry.name, style="bold"), summary, Text(render(entry.weights)))
    return table


COMMAND = Command(models, (flags.speech,), panel=START)
