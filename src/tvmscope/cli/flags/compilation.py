"""The flags of compiling."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

from tvmscope import plugins
from tvmscope.cli.flags.option import given, names, option
from tvmscope.compiler.passes import PASSES
from tvmscope.errors import UsageError
from tvmscope.messages import _, msg

_HOW = msg("How to compile")


def compilation(
    pipeline: Annotated[
        str | None,
        option(
            _HOW,
            "--pipeline",
            metavar="NAME",
            help=_("Compile with these passes: tvmscope, tvm or file.py:function."),
            default=_("tvmscope"),
        ),
    ] = None,
    exec_mode: Annotated[
        Literal["bytecode", "compiled"] | None,
        option(
            _HOW,
            "--exec-mode",
            help=_("How the VM runs the program: bytecode or compiled code."),
            default=_("bytecode"),
        ),
    ] = None,
    graph: Annotated[
        bool | None,
        option(
            _HOW,
            "--graph/--no-graph",
            help=_("Run only with CUDA graphs, or only without."),
            default=_("both, as separate rows"),
        ),
    ] = None,
    disable_pass: Annotated[
        list[str] | None,
        option(
            _HOW,
            "--disable-pass",
            metavar="NAME",
            help=_("Leave a pass out; repeatable. The passes are {names}.").format(
                names=", ".join(
                    [*(p.name for p in PASSES if p.ours and not p.required), *plugins.names("pass")]
                )
            ),
        ),
    ] = None,
    fast_scatter: Annotated[
        bool,
        option(
            _HOW,
            "--fast-scatter/--no-fast-scatter",
            help=_("Replace scatters by faster kernels."),
            default="on",
        ),
    ] = True,
    fallback: Annotated[
        bool | None,
        option(
            _HOW,
            "--fallback/--no-fallback",
            help=_(
                "Run operators without a kernel in ONNX Runtime or PyTorch, or refuse the model."
            ),
            default="on",
        ),
    ] = None,
    library: Annotated[
        bool | None,
        option(
            _HOW,
            "--library/--no-library",
            help=_(
                "On CUDA: let cuBLASLt and cuDNN compute what they were measured to compute "
                "fastest; loading the model then needs them too."
            ),
            default=_("those that this machine has"),
        ),
    ] = None,
    dump_ir: Annotated[
        Path | None,
        option(
            _HOW,
            "--dump-ir",
            metavar="DIR",
            file_okay=False,
            help=_("Write the IR after each phase into this folder."),
        ),
    ] = None,
    each_pass: Annotated[
        bool,
        option(
            _HOW,
            "--each-pass",
            help=_("With --dump-ir: write it after each pass, with what the pass does and did."),
        ),
    ] = False,
) -> dict[str, Any]:
    if each_pass and dump_ir is None:
        raise UsageError(msg("--each-pass says how --dump-ir writes: give --dump-ir DIR too"))
    return given(
        pipeline=pipeline,
        exec_mode=exec_mode,
        graph=graph,
        fallback=fallback,
        library=library,
        disabled_passes=(*names(disable_pass), *(() if fast_scatter else ("fast-scatter",))),
        dump_ir=None if dump_ir is None else str(dump_ir),
        dump_each_pass=each_pass or None,
    )
