"""`tvmscope analyze`: compiles, verifies, measures and explains a model, and saves a session."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tvmscope.cli.command import MEASURE, Command
from tvmscope.cli.flags import groups as flags
from tvmscope.cli.flags import tuning
from tvmscope.cli.flags.diagnosis import fixing, profiling
from tvmscope.cli.show import Show, exit_code, refuse_overwrite
from tvmscope.stages.options import Options

if TYPE_CHECKING:
    from tvmscope.core.session import Session


def analyze(models: flags.Models, *, options: Options, show: Show) -> int:
    """Compile, verify and measure models; say what is fast, what is not, and why."""
    from tvmscope.report.terminal import tuning_table
    from tvmscope.workflow.analyze import analyze as run
    from tvmscope.workflow.bench import bench_models, expand

    found = expand(models)
    if show.dry_run:
        return show.plans(found, options)
    refuse_overwrite(show.export_times, options.force)
    done: list[Session] = []
    with show.working(done) as progress:
        if len(found) == 1:
            sessions = [run(found[0], options, progress)]
        else:
            sessions = bench_models(found, options, progress, done=done)
    for session in sessions:
        if session.tuning:
            show.text(tuning_table.summary(session))
    show.sessions(sessions)
    return exit_code(sessions, options.backends)


COMMAND = Command(
    analyze,
    (*flags.MEASURING, profiling, fixing, tuning.first),
    panel=MEASURE,
    needs=("tvm",),
)
