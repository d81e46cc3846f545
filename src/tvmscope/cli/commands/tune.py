"""`tvmscope tune`: search for faster kernels, prove them, and keep the records."""

from __future__ import annotations

from tvmscope.cli.command import MEASURE, Command
from tvmscope.cli.flags import groups as flags
from tvmscope.cli.flags import tuning
from tvmscope.cli.show import Show, exit_code, write
from tvmscope.messages import _, render
from tvmscope.stages.options import Options


def tune(model: flags.Model, *, options: Options, show: Show) -> int:
    """Search for faster kernels of a model; what is proven faster is used from then on."""
    from tvmscope.report.formats import json_
    from tvmscope.report.terminal import tuning_table
    from tvmscope.tuning.job.tune import tune as run

    with show.working() as progress:
        session = run(model, options, progress, dry_run=show.dry_run)
    show.text(tuning_table.plan(session) if show.dry_run else tuning_table.summary(session))
    if show.json:
        write(json_.render(show.presentable([session])))
    if show.dry_run:
        return 0
    if not session.results:
        show.text(*(_("warning: ") + render(warning) for warning in session.warnings))
        return 0
    show.sessions([session], json=False)
    return exit_code([session])


COMMAND = Command(
    tune,
    (
        *flags.SUBJECT,
        tuning.searching,
        tuning.trial,
        tuning.farm,
        tuning.database,
        flags.compilation,
        flags.place,
        flags.speech,
        flags.planning,
    ),
    panel=MEASURE,
    needs=("tvm",),
)
