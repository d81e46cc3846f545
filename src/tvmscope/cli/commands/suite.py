"""`tvmscope suite`: measure many problems, each isolated, and go on where it was."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from tvmscope.cli.command import MEASURE, Command
from tvmscope.cli.flags import groups as flags
from tvmscope.cli.flags import suite as own
from tvmscope.cli.show import Show
from tvmscope.errors import UsageError
from tvmscope.messages import _, msg
from tvmscope.parsing import parse_bytes, parse_duration_s
from tvmscope.stages.options import Options

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tvmscope.core.suite import SuiteRow
    from tvmscope.workflow.suiting.options import SuiteOptions


def suite(
    problems: own.Problems = None,
    include: own.Include = None,
    exclude: own.Exclude = None,
    timeout: own.Timeout = None,
    memory: own.Memory = None,
    disk: own.Disk = None,
    retry: own.Retry = False,
    keep: own.Keep = False,
    profile: own.Profile = True,
    shard: own.Share = None,
    merge: own.Merge = None,
    compare: own.Compare = None,
    scheduler: own.Scheduler = None,
    tls_ca: own.TlsCa = None,
    tls_cert: own.TlsCert = None,
    tls_key: own.TlsKey = None,
    *,
    options: Options,
    show: Show,
) -> int:
    """Measure every problem of a folder, each isolated; a rerun does what is missing or changed.

    Python files are executed: give only files that you trust.
    """
    from tvmscope.report import suite as documents
    from tvmscope.workflow.suiting.cluster import Cluster
    from tvmscope.workflow.suiting.problems import find
    from tvmscope.workflow.suiting.run import default_folder, run_suite
    from tvmscope.workflow.suiting.store import read_all

    cluster = None
    if scheduler is not None:
        cluster = Cluster(scheduler=scheduler, tls_ca=tls_ca, tls_cert=tls_cert, tls_key=tls_key)
    how = _how(timeout, memory, disk, retry, keep, profile, shard)
    earlier = None if compare is None else read_all([compare])
    if not problems and not merge:
        raise UsageError(msg("give a folder, a list or models to measure, or --merge"))
    folder = options.output or default_folder(problems or [str(merge)], how.shard)
    rows: list[SuiteRow] = read_all(merge or [])
    if problems:
        chosen = find(problems, tuple(include or ()), tuple(exclude or ()))
        if show.dry_run:
            return show.planned([[problem.name for problem in chosen]])
        with show.working() as progress:
            progress.saved(folder)
            rows += run_suite(chosen, options, how, folder, progress, cluster=cluster)
    rows = list({row.problem: row for row in sorted(rows, key=lambda r: r.finished)}.values())
    documents.write(rows, folder, earlier)
    _say(rows, folder, show)
    return exit_code(rows)


def _how(
    timeout: str | None,
    memory: str | None,
    disk: str | None,
    retry: bool,
    keep: bool,
    profile: bool,
    shard: str | None,
) -> SuiteOptions:
    from tvmscope.workflow.suiting.options import Shard, SuiteOptions

    limit_s = SuiteOptions.timeout_s if timeout is None else parse_duration_s(timeout)
    if limit_s <= 0:
        raise UsageError(msg("--timeout {text}: give more than 0", text=timeout or ""))
    return SuiteOptions(
        timeout_s=limit_s,
        memory_bytes=None if memory is None else parse_bytes(memory),
        disk_bytes=None if disk is None else parse_bytes(disk),
        retry=retry,
        keep=keep,
        profile=profile,
        shard=Shard() if shard is None else Shard.parse(shard),
    )


def _say(rows: Sequence[SuiteRow], folder: Path, show: Show) -> None:
    from rich.markdown import Markdown

    from tvmscope.report import suite as documents
    from tvmscope.storage.codec import encode

    if not show.quiet:
        show.text(Markdown((folder / documents.FILES[1]).read_text(encoding="utf-8")))
        show.text(_("page: {file}").format(file=folder / documents.FILES[2]))
    if show.json:
        show.machine([encode(row) for row in rows])


def exit_code(rows: Sequence[SuiteRow]) -> int:
    """3 where an output is wrong, 1 where a problem has no right result, else 0."""
    if any(row.outcome == "wrong" for row in rows):
        return 3
    return 0 if rows and all(row.is_right for row in rows) else 1


COMMAND = Command(
    suite,
    (
        flags.target, flags.device, flags.cores, flags.shapes, flags.network, flags.inputs,
        flags.compilation, flags.database, own.brief, flags.comparison, flags.tolerances,
        flags.place, flags.speech, flags.planning,
    ),
    panel=MEASURE,
    needs=("tvm",),
)  # fmt: skip
