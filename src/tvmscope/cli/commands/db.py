"""`tvmscope db`: looks after the tuning records."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tvmscope.cli.command import RESULTS, Command, Family
from tvmscope.cli.flags import groups as flags
from tvmscope.cli.show import Show, table_of
from tvmscope.messages import _, msg, plural
from tvmscope.quantities import format_bytes, format_s
from tvmscope.runtime.tvm_compat import require

if TYPE_CHECKING:
    from rich.table import Table

    from tvmscope.tuning.records.upkeep import Fault
    from tvmscope.workflow.db import FileSummary, Selection, WorkloadSummary

_SHOWN_FAULTS = 20
# A list leaves these out; --json and `db show` have a workload's whole name.
_USUAL = re.compile(r" (stride 1x1|padding 0x0x0x0|dilation 1x1|groups 1|float32->\w+|blocks)\b")

Db = Annotated[
    str | None,
    typer.Option(
        "--db",
        metavar="PATH",
        help=msg("Read this file or folder of records; none reads no records."),
        show_default=msg("tuning_logs/ and the shipped records"),
    ),
]
TargetPart = Annotated[
    str | None,
    typer.Option(
        "--target",
        metavar="NAME",
        help=msg("Select a target: cpu, cuda, or one such as cpu:znver4."),
    ),
]
WorkloadPart = Annotated[
    str | None,
    typer.Option(
        "--workload", metavar="TEXT", help=msg("Select workloads whose name contains this.")
    ),
]


def list_(
    db: Db = None, target: TargetPart = None, workload: WorkloadPart = None, *, show: Show
) -> int:
    """List files, workloads and targets, with counts and the best times."""
    from tvmscope.storage.codec import encode
    from tvmscope.workflow.db import Selection, summaries

    found = summaries(Selection(db=db, target=target, workload=workload))
    if all(file.is_shipped for file in found):
        show.text(_("there are no records yet; tvmscope tune makes some"))
    for file in found:
        show.text(_heading(file))
        if file.rows:
            show.text(_overview(file.rows))
    if show.json:
        show.machine({"files": encode(found)})
    return 0


def _heading(file: FileSummary) -> str:
    if file.trouble:
        return f"{file.path}: {file.trouble}"
    text = plural("{path}: {n} record", "{path}: {n} records", file.trials)
    text = text.format(path=file.path, n=file.trials)
    if file.rejected:
        skipped = _("{n} lines are not records (tvmscope db verify lists them)")
        text += ", " + skipped.format(n=file.rejected)
    return text


def _overview(rows: tuple[WorkloadSummary, ...]) -> Table:
    titles = (_("workload"), _("target"), _("threads"), _("trials"), _("failed"), _("validated"))
    table = table_of(*titles, _("best"), _("gain"))
    for row in rows:
        s = row.summary
        gain = "" if s.gain is None else f"{s.gain:.1%}"
        counts = (row.threads, s.trials, s.failed, s.validated)
        name = _USUAL.sub("", row.workload)
        table.add_row(name, row.target, *map(str, counts), format_s(s.best_s), gain)
    return table


def show_(
    workload: Annotated[
        str,
        typer.Argument(metavar="WORKLOAD", help=_("Give the workload's name, or a part of it.")),
    ],
    db: Db = None,
    target: TargetPart = None,
    top: Annotated[
        int,
        typer.Option(
            "--top", metavar="N", min=1, help=_("Show this many trials for each workload.")
        ),
    ] = 10,
    *,
    show: Show,
) -> int:
    """Show a workload's fastest trials with their parameters."""
    from statistics import median

    from tvmscope.errors import UsageError
    from tvmscope.report.escape import clean
    from tvmscope.storage.codec import encode
    from tvmscope.workflow.db import Selection, fastest

    found = fastest(Selection(db=db, target=target, workload=workload), top)
    if not found:
        raise UsageError(
            msg(
                "no record of a workload with '{workload}'; see tvmscope db list", workload=workload
            )
        )
    table = table_of(
        _("workload"), _("target"), _("threads"), _("time"), _("stage"), _("candidate")
    )
    for _file, trial in found:
        time = format_s(median(trial.seconds)) if trial.status == "ok" else _(trial.status)
        params = " ".join(f"{k}={v}" for k, v in trial.candidate.params.items())
        words = [params or ("" if trial.candidate.trace else _("untuned"))]
        words += [_("with a trace")] if trial.candidate.trace else []
        words += [f"({clean(trial.reason)})"] if trial.reason else []
        table.add_row(
            clean(trial.workload), trial.target.label, str(trial.threads), time, _(trial.stage),
            " ".join(filter(None, words)),
        )  # fmt: skip
    show.text(table)
    if show.json:
        show.machine([{"file": file, **encode(trial)} for file, trial in found])
    return 0


def merge(
    files: Annotated[list[Path], typer.Argument(metavar="FILE", help=_("Merge these files."))],
    output: Annotated[
        Path, typer.Option("--output", "-o", metavar="FILE", help=_("Write this file."))
    ],
    force: Annotated[bool, typer.Option("--force", help=_("Add to a file that exists."))] = False,
    *,
    show: Show,
) -> int:
    """Merge files of records; equal records are kept once."""
    from tvmscope.storage.codec import encode
    from tvmscope.workflow import db as work

    moved = work.merge(files, output, force=force)
    text = _("{output}: {n} records, {m} duplicates left out")
    show.text(text.format(output=output, n=moved.added, m=moved.duplicates))
    _tell(moved.rejected, show)
    if show.json:
        show.machine(encode(moved))
    return 1 if moved.rejected else 0


def prune(
    file: Annotated[Path, typer.Argument(metavar="FILE", help=_("Prune this file of records."))],
    keep: Annotated[
        int,
        typer.Option(
            "--keep",
            metavar="N",
            min=1,
            help=_("Keep this many trials for each workload, target and thread count."),
        ),
    ] = 10,
    yes: Annotated[bool, typer.Option("--yes", help=_("Keep no backup."))] = False,
    *,
    show: Show,
) -> int:
    """Keep the fastest trials and all validated ones; removed trials can be measured again."""
    from tvmscope.storage.codec import encode
    from tvmscope.workflow import db as work

    done = work.prune(file, keep, yes=yes)
    text = _("{file}: {kept} records kept, {removed} removed, {bad} unreadable lines removed")
    show.text(text.format(file=file, kept=done.kept, removed=done.removed, bad=done.unreadable))
    show.text(*(f"  -{n}  {workload}" for workload, n in done.removed_from.most_common()))
    if done.backup:
        show.text(_("backup of the previous file: {backup}").format(backup=done.backup))
    if show.json:
        show.machine(encode(done))
    return 0


def export(
    db: Db = None,
    target: TargetPart = None,
    workload: WorkloadPart = None,
    output: Annotated[
        Path | None,
        typer.Option(
            "--output",
            "-o",
            metavar="FILE",
            help=_("Write this file instead of the standard output."),
        ),
    ] = None,
    metaschedule: Annotated[
        Path | None,
        typer.Option(
            "--metaschedule",
            metavar="DIR",
            help=_("Write the trace records as a database that TVM's MetaSchedule loads."),
        ),
    ] = None,
    best: Annotated[
        bool,
        typer.Option("--best", help=_("Write only the records that builds use, for each machine.")),
    ] = False,
    force: Annotated[bool, typer.Option("--force", help=_("Overwrite existing files."))] = False,
    *,
    show: Show,
) -> int:
    """Write a selection of the records as plain JSON lines, or as a MetaSchedule database."""
    from tvmscope.cli.show import refuse_overwrite
    from tvmscope.workflow import db as work

    chosen = work.Selection(db=db, target=target, workload=workload)
    if metaschedule is not None:
        require("tvm", why="tvmscope db export --metaschedule")
        return _to_metaschedule(chosen, metaschedule, show)
    refuse_overwrite(output, force)
    count = size = 0
    stream = output.open("wb") if output else sys.stdout.buffer
    for line in work.best_lines(chosen) if best else work.lines(chosen, output):
        size += stream.write(line)
        count += 1
    stream.flush()
    text = plural("{n} record, {size}", "{n} records, {size}", count)
    show.text(text.format(n=count, size=format_bytes(size)))
    return 0


def _to_metaschedule(chosen: Selection, folder: Path, show: Show) -> int:
    from tvmscope.storage.codec import encode
    from tvmscope.workflow.db import to_metaschedule

    done = to_metaschedule(chosen, folder)
    text = _("{folder}: {n} records; {a} have no trace, {b} have no stored function")
    show.text(
        text.format(folder=folder, n=done.written, a=done.without_trace, b=done.without_function)
    )
    show.text(*done.failures)
    if show.json:
        show.machine(encode(done))
    return 1 if done.failures else 0


def import_(
    file: Annotated[
        Path,
        typer.Argument(
            metavar="FILE", help=_("Import this file of JSON lines, which tvmscope wrote.")
        ),
    ],
    db: Db = None,
    *,
    show: Show,
) -> int:
    """Check each line and add the records; other lines are listed, with exit code 1."""
    from tvmscope.storage.codec import encode
    from tvmscope.workflow.db import take_in

    done = take_in(file, db)
    for place, moved in done.items():
        if moved.added or moved.duplicates:
            text = _("{place}: {n} records added, {m} were there already")
            show.text(text.format(place=place, n=moved.added, m=moved.duplicates))
    bad = done[str(file)].rejected if str(file) in done else []
    _tell(bad, show)
    if not done:
        show.text(_("{file} contains no records").format(file=file))
    if show.json:
        show.machine(encode(done))
    return 1 if bad else 0


def verify(
    files: Annotated[
        list[Path] | None,
        typer.Argument(
            metavar="FILE", help=_("Check these files of records."), show_default=_("all")
        ),
    ] = None,
    db: Db = None,
    *,
    show: Show,
) -> int:
    """Check every line of the files; the exit code is 1 if something is wrong."""
    from tvmscope.storage.codec import encode
    from tvmscope.workflow import db as work

    reports = work.verify(files or [], db)
    if not reports:
        show.text(_("there are no records yet; tvmscope tune makes some"))
    for file, report in reports.items():
        state = _("{n} faults").format(n=report.faults) if report.faults else _("ok")
        show.text(_("{file}: {n} records, {s}").format(file=file, n=report.records, s=state))
        _tell(report.listed, show, report.faults)
        if report.remeasured:
            text = _("  {n} trials repeat a candidate (usual after a merge)")
            show.text(text.format(n=report.remeasured))
    if show.json:
        show.machine(encode(reports))
    return 1 if any(report.faults for report in reports.values()) else 0


def _tell(faults: list[Fault], show: Show, count: int | None = None) -> None:
    from tvmscope.report.escape import clean

    shown = faults if show.verbose else faults[:_SHOWN_FAULTS]
    show.text(*(_("  line {n}: {what}").format(n=f.line, what=clean(f.what)) for f in shown))
    if (left := (count or len(faults)) - len(shown)) > 0:
        show.text(_("  and {n} more").format(n=left))


COMMAND = Family(
    msg("List, merge, prune, export and check tuning records."),
    tuple(
        Command(run, (flags.speech,), panel="")
        for run in (list_, show_, merge, prune, export, import_, verify)
    ),
    panel=RESULTS,
)
