"""`tvmscope export`: writes a model as an ONNX file."""

from __future__ import annotations

from pathlib import Path

from tvmscope.cli.command import DEPLOY, Command
from tvmscope.cli.flags import groups as flags
from tvmscope.cli.show import Show
from tvmscope.messages import _
from tvmscope.quantities import format_bytes
from tvmscope.stages.options import Options


def export(model: flags.Model, *, options: Options, show: Show) -> int:
    """Write a model as ONNX, in the form that the other runtimes run."""
    from tvmscope.models.resolve import classify
    from tvmscope.workflow.export import export_onnx

    output = options.output or Path(f"{classify(model).name}.onnx")
    with show.working() as progress:
        file = export_onnx(model, output, options, progress)
    size = file.stat().st_size
    show.text(_("{file}: {size}").format(file=file, size=format_bytes(size)))
    if show.json:
        show.machine({"file": str(file), "size_bytes": size})
    return 0


COMMAND = Command(
    export,
    (flags.shapes, flags.network, flags.inputs, flags.place, flags.speech),
    panel=DEPLOY,
    needs=("onnx", "onnxscript", "onnxruntime"),
)
