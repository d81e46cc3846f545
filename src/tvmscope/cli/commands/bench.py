"""`tvmscope bench`: measure models on every backend."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from tvmscope.cli.command import MEASURE, Command
from tvmscope.cli.flags import groups as flags
from tvmscope.cli.show import Show, exit_code, refuse_overwrite
from tvmscope.stages.options import Options

if TYPE_CHECKING:
    from tvmscope.core.session import Session


def bench(models: flags.Models, *, options: Options, show: Show) -> int:
    """Measure models on every backend, verified and side by side."""
    from tvmscope.workflow.bench import bench_folder, bench_models, expand

    options = replace(options, profile=False)
    found = expand(models)
    if show.dry_run:
        return show.plans(found, options)
    refuse_overwrite(show.export_times, options.force)
    done: list[Session] = []
    with show.working(done) as progress:
        if len(found) == 1:
            sessions = bench_models(found, options, progress)
        else:
            sessions = bench_folder(models, options, progress, done=done)
    show.sessions(sessions)
    return exit_code(sessions, options.backends)


COMMAND = Command(bench, flags.MEASURING, panel=MEASURE, needs=("tvm",))
