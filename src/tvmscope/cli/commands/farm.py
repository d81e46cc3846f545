"""`tvmscope farm`: runs a tracker and servers for tuning, on this machine or on many."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated

import typer

from tvmscope.cli.command import DEPLOY, Command, Family
from tvmscope.cli.flags import groups as flags
from tvmscope.cli.show import Show, table_of
from tvmscope.messages import _, msg
from tvmscope.parsing import parse_duration_s

Host = Annotated[
    str,
    typer.Option(
        "--host",
        metavar="ADDRESS",
        help=msg(
            "Listen on this address; 0.0.0.0 means every network. TVM's RPC has no authentication."
        ),
    ),
]
Tracker = Annotated[
    str,
    typer.Option(
        "--tracker", metavar="HOST:PORT", help=msg("Connect to the tracker at this address.")
    ),
]
_LAST = msg("Try no port after this one.")


def tracker(
    host: Host = "127.0.0.1",
    port: Annotated[int, typer.Option("--port", help=_("Try this port first."))] = 9190,
    port_end: Annotated[int, typer.Option("--port-end", help=_LAST)] = 9199,
    *,
    show: Show,
) -> int:
    """Run the tracker, which knows the servers, until Ctrl-C."""
    from tvmscope.tuning.farm.service import Ports, run_tracker

    ports = Ports(host=host, first=port, last=port_end)
    return _until_interrupted(lambda: run_tracker(ports, show.text))


def server(
    key: Annotated[
        str,
        typer.Option(
            "--key", metavar="NAME", help=_("Give this kind of device a name, such as rpi4.")
        ),
    ],
    tracker: Tracker = "127.0.0.1:9190",
    host: Host = "127.0.0.1",
    port: Annotated[int, typer.Option("--port", help=_("Try this port first."))] = 9090,
    port_end: Annotated[int, typer.Option("--port-end", help=_LAST)] = 9189,
    address: Annotated[
        str | None,
        typer.Option(
            "--address",
            metavar="ADDRESS",
            help=_(
                "Let the tracker announce this address to clients, if it would see another "
                "one (NAT)."
            ),
        ),
    ] = None,
    threads: Annotated[
        int | None,
        typer.Option(
            "--threads",
            metavar="N",
            min=1,
            help=_("Run each kernel with this many threads."),
            show_default=_("cores"),
        ),
    ] = None,
    *,
    show: Show,
) -> int:
    """Run a server, which measures kernels for whoever asks, until Ctrl-C."""
    from tvmscope.tuning.farm.service import Ports, run_server
    from tvmscope.tuning.farm.tracker import parse_address

    ports, place = Ports(host=host, first=port, last=port_end), parse_address(tracker)
    return _until_interrupted(
        lambda: run_server(
            ports, show.text, address=place, key=key, threads=threads, public_host=address
        )
    )


def _until_interrupted(work: Callable[[], None]) -> int:
    try:
        work()
    except KeyboardInterrupt:  # Ctrl-C is how the server is meant to end
        return 0
    return 1


def status(
    tracker: Tracker = "127.0.0.1:9190",
    timeout: Annotated[
        str, typer.Option("--timeout", metavar="TIME", help=_("Wait this long for the tracker."))
    ] = ("5s"),
    *,
    show: Show,
) -> int:
    """Show the servers, their keys, and how many are free."""
    from tvmscope.storage.codec import encode
    from tvmscope.tuning.farm.service import status as ask
    from tvmscope.tuning.farm.tracker import parse_address

    found = ask(parse_address(tracker), timeout_s=parse_duration_s(timeout))
    table = table_of(_("key"), _("servers"), _("free"), _("busy"), _("waiting"), _("where"))
    for queue in found.queues:
        places = " ".join(s.address for s in found.servers if s.key == queue.key)
        busy = max(0, queue.servers - queue.free)
        counts = (queue.servers, queue.free, busy, queue.waiting)
        table.add_row(queue.key, *map(str, counts), places)
    show.text(table if found.queues else _("the tracker is running, but no server has joined it"))
    if show.json:
        show.machine(encode(found))
    return 0


COMMAND = Family(
    msg("Measure on other machines, through TVM's RPC."),
    (
        *(Command(run, (flags.speech,), panel="", needs=("tvm",)) for run in (tracker, server)),
        Command(status, (flags.speech,), panel=""),
    ),
    panel=DEPLOY,
)
