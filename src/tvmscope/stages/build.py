"""The stage that compiles: it turns planned rows into entries that a worker can load."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from queue import SimpleQueue

from tvmscope.benchmark.entry import Entry
from tvmscope.core.artifact import Artifact
from tvmscope.core.measurement import Cause
from tvmscope.core.model import Prepared
from tvmscope.errors import BackendUnavailable, ImportModelError, TvmscopeError, UsageError
from tvmscope.machine.cpu_features import usable_cores
from tvmscope.measure.worker import WorkerDied
from tvmscope.messages import Text, msg
from tvmscope.progress import Progress
from tvmscope.runtime.artifact import read_kernels
from tvmscope.stages.builder import Builder
from tvmscope.stages.options import Options
from tvmscope.stages.planning import tuned_rows
from tvmscope.stages.planning.rows import PlannedRow, unbuilt_entry
from tvmscope.stages.targets import threads_of

CORES_PER_CHAIN = 2
"""With fewer cores per compiler, compilations would only queue up."""

Entries = tuple[Entry, ...]


def build_rows(
    rows: Sequence[PlannedRow],
    ready: Prepared,
    options: Options,
    artifacts: Path,
    progress: Progress,
    on_update: Callable[[Entries], object] = lambda entries: None,
) -> Entries:
    """Return an entry per row, in order: ready to be loaded, or with the reason why it is not.

    Rows that differ only in CUDA graphs share their kernels, so they form a chain, which is
    compiled by one process; with enough cores, several chains run at once. A process ends with its
    chain: a compiler's memory must not be occupied while others are measured. `on_update` gets all
    entries before the first build and after each.
    """
    entries = [unbuilt_entry(row, ready, options) for row in rows]
    on_update(tuple(entries))
    chains: dict[Hashable, list[int]] = {}
    for number, row in enumerate(rows):
        if row.builds:
            chains.setdefault(entries[number].chain, []).append(number)

    def build(number: int, builder: Builder) -> Entry:
        progress.stage(msg("compile"), rows[number].key.label)
        return build_row(rows[number], ready, options, artifacts, builder)

    done, total = 0, sum(map(len, chains.values()))
    for number, entry in _built(list(chains.values()), ready, options, build):
        entries[number], done = entry, done + 1
        progress.step(done, total, entry.key.label)
        on_update(tuple(entries))
    return tuple(entries)


def _built(
    chains: Sequence[Sequence[int]],
    ready: Prepared,
    options: Options,
    build: Callable[[int, Builder], Entry],
) -> Iterator[tuple[int, Entry]]:
    """Yield each row's number and entry once it is built; an interruption ends all compilers."""
    done: SimpleQueue[tuple[int, Entry] | BaseException] = SimpleQueue()

    def go_through(chain: Sequence[int], builder: Builder) -> None:
        try:
            with builder:
                for number in chain:
                    done.put((number, build(number, builder)))
        except BaseException as e:  # reported in the thread that waits
            done.put(e)

    with ExitStack() as compilers:
        pool = ThreadPoolExecutor(max(1, usable_cores() // CORES_PER_CHAIN))
        try:
            for chain in chains:
                builder = compilers.enter_context(Builder(ready, threads_of(options)))
                pool.submit(go_through, chain, builder)
            for _ in range(sum(map(len, chains))):
                came = done.get()
                if isinstance(came, BaseException):
                    raise came
                yield came
            pool.shutdown()  # the compilers have ended with their chains
        finally:
            pool.shutdown(wait=False, cancel_futures=True)


def build_row(
    row: PlannedRow, ready: Prepared, options: Options, artifacts: Path, builder: Builder
) -> Entry:
    """Compile the artifact of one row; a failure becomes the row's reason."""
    entry = unbuilt_entry(row, ready, options)
    if not row.builds:
        return entry
    if row.choices and tuned_rows.are_useless(row, artifacts):
        return replace(entry, unavailable=tuned_rows.NO_KERNEL)
    config = replace(
        row.compile or replace(options.compile, choices=dict(row.choices)),
        pipeline=row.variant.pipeline or options.compile.pipeline,
        precision=row.variant.precision,
        graph=row.variant.graph,
    )
    if config.dump_ir is not None:  # each row has its own folder
        config = replace(config, dump_ir=str(Path(config.dump_ir) / row.key.folder_name))
    try:
        built = builder.build(artifacts / row.key.folder_name, row.target, config)
    except UsageError:  # a pass or a pipeline that does not exist: no row could be built
        raise
    except BackendUnavailable as e:
        return replace(entry, unavailable=e.message)
    except TvmscopeError as e:  # our own message, in one line; the list of a pre-flight stays whole
        return replace(entry, unavailable=None, failure=e.message, cause=_cause(e))
    if row.choices and not any(kernel.tuned for kernel in read_kernels(built.path)):
        return replace(entry, unavailable=tuned_rows.NO_KERNEL)
    return replace(
        entry,
        request=replace(entry.request, artifact=str(built.path)),
        unavailable=_unavailable(row, built),
        build_s=built.build_s,
        warnings=(*built.warnings, *row.warnings),
    )


def _cause(error: TvmscopeError) -> Cause | None:
    if isinstance(error, WorkerDied):
        return error.kind
    return "unsupported" if isinstance(error, ImportModelError) else None


def _unavailable(row: PlannedRow, built: Artifact) -> Text | None:
    if not row.cross:
        return row.unavailable
    why = row.unavailable or ""
    return msg("cross-compiled into {path}, not run: {why}", path=built.path, why=why)
