"""`tvmscope doctor`: checks that everything the other commands need is installed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from tvmscope.cli.command import START, Command
from tvmscope.cli.flags import groups as flags
from tvmscope.cli.show import Show
from tvmscope.errors import UsageError
from tvmscope.messages import _, marked, msg, render
from tvmscope.quantities import format_bytes
from tvmscope.runtime.tvm_compat import require

if TYPE_CHECKING:
    from rich.table import Table

    from tvmscope.workflow.examining.doctor import Check

_MARKS = {
    marked("ok"): "green",
    marked("warn"): "yellow",
    marked("fail"): "bold red",
    marked("info"): "dim",
}


def doctor(
    clear_cache: Annotated[
        bool, typer.Option("--clear-cache", help=_("Empty the cache folder and exit."))
    ] = False,
    roofs: Annotated[
        bool,
        typer.Option(
            "--roofs",
            help=_("Measure this CPU's roofs for one thread and for all threads, and store them."),
        ),
    ] = False,
    smoke: Annotated[
        bool,
        typer.Option(
            "--smoke",
            help=_("Compile, run and check two tiny graphs on each target of this machine."),
        ),
    ] = False,
    device: Annotated[
        str | None,
        typer.Option(
            "--device",
            metavar="DEVICE",
            help=_("With --roofs or --smoke: the GPU, as cuda:1 for the second."),
        ),
    ] = None,
    *,
    show: Show,
) -> int:
    """Examine the installation and the machine; say what to fix and how."""
    from tvmscope.stages.device import using
    from tvmscope.stages.places import cache_folder
    from tvmscope.storage.codec import encode
    from tvmscope.workflow.examining import doctor as examination

    if clear_cache:
        freed = examination.clear_cache()
        text = _("emptied {folder}: {size}")
        show.text(text.format(folder=cache_folder(), size=format_bytes(freed)))
        return 0
    if roofs or smoke:
        flag = "--roofs" if roofs else "--smoke"
        require("tvm", "onnx", why=f"tvmscope doctor {flag}")
    if device is not None and not (roofs or smoke):
        raise UsageError(msg("--device goes with --roofs or --smoke: doctor shows every GPU"))
    if roofs:
        return _roofs(show, device)
    with show.working() as progress, using(device):
        if smoke:
            from tvmscope.workflow.examining.smoke import smoke as test

            checks = test(progress)
        else:
            progress.stage(_("examining"))
            checks = examination.examine()
    failed = any(check.status == "fail" for check in checks)
    show.text(_table(checks))
    if show.json:
        show.machine({"ok": not failed, "checks": encode(checks)})
    return (1 if smoke else 5) if failed else 0


def _roofs(show: Show, device: str | None) -> int:
    from rich.table import Table

    from tvmscope.stages.device import using
    from tvmscope.storage.codec import encode
    from tvmscope.workflow.examining.doctor import measure_roofs

    with show.working() as progress, using(device):
        progress.stage(_("measuring the roofs"))
        found = measure_roofs()
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
    for index, title in enumerate((_("threads"), _("type"), _("roof"), _("how"))):
        table.add_column(title, justify="left" if index else "right")
    for roof in found:
        rate = (
            f"{roof.flops_per_s / 1e9:.1f} GFLOP/s"
            if roof.flops_per_s is not None
            else f"{(roof.bytes_per_s or 0.0) / 1e9:.1f} GB/s"
        )
        table.add_row(str(roof.threads), roof.dtype, rate, render(roof.how))
    show.text(table)
    if show.json:
        show.machine({"roofs": encode(found)})
    return 0


def _table(checks: list[Check]) -> Table:
    from rich.table import Table
    from rich.text import Text

    from tvmscope.report.escape import clean

    table = Table.grid(padding=(0, 2))
    for check in checks:
        detail = Text(clean(check.detail, 500))
        if check.fix:
            detail.append(f"\n-> {clean(check.fix)}", style="cyan")
        mark = Text(_(check.status), style=_MARKS[check.status])
        table.add_row(mark, Text(clean(check.name), style="bold"), detail)
    return table


COMMAND = Command(doctor, (flags.speech,), panel=START)
