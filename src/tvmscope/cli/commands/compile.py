"""`tvmscope compile`: compiles a model into an artifact folder."""

from __future__ import annotations

from pathlib import Path

from tvmscope.cli.command import DEPLOY, Command
from tvmscope.cli.flags import groups as flags
from tvmscope.cli.flags import tuning
from tvmscope.cli.show import Show
from tvmscope.messages import _, plural, render
from tvmscope.quantities import format_bytes, format_s
from tvmscope.stages.options import Options


def compile_(model: flags.Model, *, options: Options, show: Show) -> int:
    """Compile a model into an artifact that runs without its framework."""
    from tvmscope.models.resolve import classify
    from tvmscope.storage.codec import encode
    from tvmscope.workflow.compile import compile_model
    from tvmscope.workflow.examining.dry_run import compile_lines

    output = options.output or Path(f"{classify(model).name}.artifact")
    if show.dry_run:
        return show.planned([compile_lines(model, output, options)])
    with show.working() as progress:
        artifact = compile_model(model, output, options, progress)
    text = _("{path}: {model} for {target}, {precision}, {size}, built in {time}, ").format(
        path=artifact.path,
        model=artifact.model,
        target=artifact.target.label,
        precision=str(artifact.precision),
        size=format_bytes(artifact.size_bytes),
        time=format_s(artifact.build_s),
    )
    count = len(artifact.kernels)
    show.text(text + plural("{n} kernel call", "{n} kernel calls", count).format(n=count))
    show.text(*(_("warning: ") + render(warning) for warning in artifact.warnings))
    if show.verbose:
        show.text(*(f"  {name}: {format_s(s)}" for name, s in artifact.pass_times_s.items()))
    if show.json:
        show.machine(encode(artifact))
    return 0


COMMAND = Command(
    compile_,
    (
        *flags.SUBJECT,
        flags.varying,
        flags.compilation,
        tuning.first,
        tuning.database,
        flags.place,
        flags.speech,
        flags.planning,
    ),
    panel=DEPLOY,
    needs=("tvm",),
)
