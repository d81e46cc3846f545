"""`tvmscope ablate`: what each optimisation is worth on this model and machine."""

from __future__ import annotations

from typing import Annotated

from tvmscope.cli.command import MEASURE, Command
from tvmscope.cli.flags import groups as flags
from tvmscope.cli.flags.option import names, option
from tvmscope.cli.show import Show, exit_code, refuse_overwrite, write
from tvmscope.messages import _, msg
from tvmscope.stages.options import Options
from tvmscope.workflow.ablating import switches

_WHAT = msg("What to measure or build")
_KNOWN = (*switches.built_in("cpu"), *switches.built_in("cuda"))


def ablate(
    model: flags.Model,
    only: Annotated[
        list[str] | None,
        option(
            _WHAT,
            "--only",
            metavar="A,B",
            help=_("Switch off these optimisations only; they are {names}.").format(
                names=", ".join(dict.fromkeys(each.name for each in _KNOWN))
            ),
            default=_("all"),
        ),
    ] = None,
    alone: Annotated[
        bool,
        option(
            _WHAT,
            "--alone",
            help=_("Also measure each optimisation alone, however slow that is."),
            default=_("where it is quick"),
        ),
    ] = False,
    *,
    options: Options,
    show: Show,
) -> int:
    """Switch each optimisation off in turn, and on alone; show what it is worth, measured."""
    from tvmscope.analysis.ablation import effects
    from tvmscope.core.session import to_json
    from tvmscope.report.formats import json_
    from tvmscope.report.sections.ablation import render
    from tvmscope.storage.codec import encode
    from tvmscope.workflow.ablating.ablate import ablate as run

    refuse_overwrite(show.export_times, options.force)
    with show.working() as progress:
        session = run(model, options, only=names(only), alone=alone, progress=progress)
    (shown,) = show.presentable([session])
    show.text(render(shown))
    if show.json:
        show.machine(to_json(shown) | {"effects": encode(effects(shown))})
    if show.export_times is not None:
        write(json_.times([shown]), show.export_times)
    return exit_code([session])


COMMAND = Command(
    ablate,
    (
        *flags.SUBJECT,
        flags.compilation,
        flags.database,
        flags.measurement,
        flags.tolerances,
        flags.place,
        flags.speech,
        flags.results,
    ),
    panel=MEASURE,
    needs=("tvm",),
)
