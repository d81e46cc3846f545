"""Runs a comparison: loads and verifies every entry, then times them in interleaved rounds."""

from __future__ import annotations

import re
from collections.abc import Callable, Hashable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from queue import SimpleQueue

from tvmscope.benchmark.entry import Entry
from tvmscope.benchmark.running_row import Reference, RunningRow
from tvmscope.core.measurement import Result
from tvmscope.core.options import MeasureOptions
from tvmscope.core.row import Task
from tvmscope.errors import RunError
from tvmscope.machine import cuda_device, gpu_state
from tvmscope.machine.cpu_features import usable_cores
from tvmscope.machine.load import disturbances, snapshot
from tvmscope.measure.confinement import scratch_folder
from tvmscope.measure.interleave import interleave
from tvmscope.measure.machine_lock import alone
from tvmscope.messages import Text, msg, msgn, word
from tvmscope.progress import Progress

Results = tuple[Result, ...]
FEWER_CORES = 0.8
CORES_PER_CHAIN = 2
"""Loading compiles too (torch.compile), so with fewer cores it would only queue up."""


def run(
    entries: Sequence[Entry],
    options: MeasureOptions,
    *,
    reference: Path,
    reference_name: str,
    tolerances: Callable[[Task], float],
    atol: float = 0.0,
    noise: Callable[[Task], Path | None] = lambda task: None,
    exact: Callable[[Task], Path | None] = lambda task: None,
    progress: Progress,
    on_update: Callable[[Results], None],
    log_dir: Path | None = None,
) -> Results:
    """Return one result per entry, in order; whatever happens to an entry is its result.

    `on_update` sees the results after each load and each round, rows that are not there yet as
    "interrupted". On Ctrl-C it sees them a last time before the interrupt is raised.
    """
    if not reference.is_file():
        raise RunError(
            msg("the reference outputs {file} are missing: prepare the model again", file=reference)
        )
    rows = [RunningRow(entry) for entry in entries]

    def against(row: RunningRow) -> Reference:
        task = row.entry.task
        return Reference(
            reference,
            reference_name,
            tolerances(task),
            atol,
            lambda: noise(task),
            lambda: exact(task),
        )

    def publish() -> Results:
        results = tuple(row.result() for row in rows)
        on_update(results)
        return results

    on_gpu = any(entry.key.device == "cuda" for entry in entries)
    gpu = cuda_device.find() if on_gpu else None
    state = gpu_state.connect(gpu.pci_bus) if gpu else None
    try:
        for number, row in enumerate(_load(rows, options, log_dir, against, progress)):
            progress.step(number + 1, len(rows), row.label)
            _tell(row, progress)
            publish()
        for row in rows:
            if state is not None and row.lane is not None and row.key.device == "cuda":
                row.watch(state)
        _measure(rows, options, progress, publish)
    except BaseException as e:  # no worker may outlive the run, however it ends
        for row in rows:
            row.end()
        if isinstance(e, KeyboardInterrupt):
            _mark_interrupted(rows)
            publish()
        raise
    for row in rows:
        row.close(state)
    return publish()


def pending(entries: Sequence[Entry]) -> Results:
    """Results for the entries that are not measured yet."""
    return tuple(RunningRow(entry).result() for entry in entries)


def _load(
    rows: Sequence[RunningRow],
    options: MeasureOptions,
    log_dir: Path | None,
    against: Callable[[RunningRow], Reference],
    progress: Progress,
) -> Iterator[RunningRow]:
    """Load and verify all rows, several chains at once where cores are plenty.

    Yields each row when it is done.
    """
    done: SimpleQueue[RunningRow | BaseException] = SimpleQueue()

    def go_through(chain: list[RunningRow]) -> None:
        try:
            for row in chain:
                _prepare(row, against(row), progress)
                done.put(row)
        except BaseException as e:  # reported in the thread that waits
            done.put(e)

    pool = ThreadPoolExecutor(max(1, usable_cores() // CORES_PER_CHAIN))
    for row in rows:
        if row.entry.unavailable is None and row.entry.failure is None:
            row.start(options, _log_path(log_dir, row))  # here: a worker dies with its thread
    for chain in _chains(rows):
        pool.submit(go_through, chain)
    try:
        for _ in rows:
            came = done.get()
            if isinstance(came, BaseException):
                raise came
            yield came
    finally:
        pool.shutdown(wait=False, cancel_futures=True)


def _chains(rows: Sequence[RunningRow]) -> list[list[RunningRow]]:
    chains: dict[Hashable, list[RunningRow]] = {}
    for number, row in enumerate(rows):
        key = number if row.entry.chain is None else (row.entry.chain,)
        chains.setdefault(key, []).append(row)
    return list(chains.values())


def _prepare(row: RunningRow, against: Reference, progress: Progress) -> None:
    if row.worker is not None:  # otherwise the reason why it cannot be measured is known
        progress.stage(msg("load and verify"), row.label)
        with scratch_folder() as folder:
            row.prepare(Path(folder) / "outputs.npz", against)


def _measure(
    rows: list[RunningRow],
    options: MeasureOptions,
    progress: Progress,
    publish: Callable[[], Results],
) -> None:
    lanes = [row.lane for row in rows if row.lane is not None]
    if not lanes:
        return
    pids = [row.worker.pid for row in rows if row.worker is not None and row.lane is not None]
    progress.stage(msg("measure"), msg("{count} in turns", count=len(lanes)))
    with alone(progress.note):
        before = snapshot(pids)
        for _ in interleave(lanes, options):
            rounds = max(len(lane.rounds_s) for lane in lanes)
            now = msg("round {number}", number=rounds) if rounds else msg("warm-up")
            progress.step(*_done(rows, options), now)
            publish()
        found = disturbances(before, snapshot(pids))
    for text in found:
        progress.note(text)
    for row in rows:
        if row.lane is not None:
            row.warnings.extend(found)
            if row.gpu is not None and row.gpu.held_down:
                why = [word(reason) for reason in row.gpu.held_down]
                row.warnings.append(msg("the GPU's clock was held down: {why}", why=why))
            row.finish()
            if row.lane.failure is not None:
                _tell(row, progress)
    _warn_of_idle_cores(rows)


def _warn_of_idle_cores(rows: Sequence[RunningRow]) -> None:
    """Warn if a row left cores idle that another row used: the two are not quite comparable."""
    used = {r.key: r.cores for r in rows if r.cores and r.key.device == "cpu"}
    if not used:
        return
    busiest = max(used, key=lambda key: used[key])
    for row in rows:
        if row.key in used and used[row.key] < FEWER_CORES * used[busiest]:
            row.warnings.append(
                msg(
                    "used {cores:.1f} cores; {busiest} used {most:.1f}",
                    cores=used[row.key],
                    busiest=busiest.label,
                    most=used[busiest],
                )
            )


def _done(rows: list[RunningRow], options: MeasureOptions) -> tuple[float, float]:
    """Return the progress: in runs if the user counts them, else in time."""
    lanes = [row.lane for row in rows if row.lane is not None and row.lane.failure is None]
    usual = [lane for lane in lanes if lane.pace is None or not lane.pace.slow]
    if options.iterations is not None:
        return sum(len(r) for x in usual for r in x.rounds_s), options.iterations * len(usual)
    return sum(min(x.used_s, options.duration_s) for x in usual), options.duration_s * len(usual)


def _mark_interrupted(rows: list[RunningRow]) -> None:
    for row in rows:
        if row.lane is not None and row.lane.rounds_s:
            row.warnings.append(
                msgn(
                    "interrupted after {count} round",
                    "interrupted after {count} rounds",
                    count=len(row.lane.rounds_s),
                )
            )


def _tell(row: RunningRow, progress: Progress) -> None:
    """Report at once why a row is not a plain result."""
    result = row.result()
    if result.status in ("failed", "unavailable"):
        _tell_why(row, result.status, result.reason, progress)
    elif row.accuracy is not None and not row.accuracy.passed:
        _tell_why(row, "wrong", row.accuracy.detail, progress)


def _tell_why(row: RunningRow, status: str, why: Text | None, progress: Progress) -> None:
    progress.note(msg("{row}: {status}: {why}", row=row.label, status=word(status), why=why or ""))


def _log_path(folder: Path | None, row: RunningRow) -> Path | None:
    if folder is None:
        return None
    return folder / (re.sub(r"[^A-Za-z0-9._-]+", "-", row.label) + ".log")
