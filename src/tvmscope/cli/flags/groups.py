"""Every flag, once: a group is a function whose parameters are flags and whose result is options.

Keys of the result are fields of `stages.options.Options` (or its parts) and of `cli.show.Show`.
A flag that was not given is left out, so that each default has one home: the options' dataclass.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from tvmscope import plugins
from tvmscope.cli.flags.accuracy import tolerances as tolerances
from tvmscope.cli.flags.option import given, names, option
from tvmscope.cli.flags.output import place as place
from tvmscope.cli.flags.output import planning as planning
from tvmscope.cli.flags.output import results as results
from tvmscope.cli.flags.output import speech as speech
from tvmscope.cli.flags.tuning import database as database
from tvmscope.compiler.passes import PASSES
from tvmscope.errors import UsageError
from tvmscope.messages import _, msg
from tvmscope.parsing import parse_duration_s, parse_shapes, split_targets

Models = Annotated[
    list[str],
    typer.Argument(
        metavar="MODEL",
        help=msg(
            "Give a built-in name, .onnx, .pt2, .cfg, file.py[:factory], torchvision:NAME, "
            "hf:NAME, or a folder."
        ),
        show_default=False,
    ),
]
Model = Annotated[
    str,
    typer.Argument(
        metavar="MODEL",
        help=msg(
            "Give a built-in name, .onnx, .pt2, .cfg, file.py[:factory], torchvision:NAME or "
            "hf:NAME."
        ),
        show_default=False,
    ),
]


_WHAT = msg("What to measure or build")


def target(
    target: Annotated[
        list[str] | None,
        option(
            _WHAT,
            "--target",
            metavar="TARGET",
            help=_(
                "Compile for auto, cpu, cuda, cpu:skylake-avx512, arm64:cortex-a72, cuda:sm_90, "
                "target JSON or 'llvm -mcpu=...'. Repeat, or join by commas, for several."
            ),
            default="auto",
        ),
    ] = None,
    precision: Annotated[
        list[str] | None,
        option(
            _WHAT,
            "--precision",
            metavar="NAME",
            help=_(
                "float32, tf32 (on CUDA: in convolutions, as PyTorch does by default), float16 or "
                "bfloat16; join several with commas."
            ),
            default="float32",
        ),
    ] = None,
) -> dict[str, Any]:
    return given(targets=split_targets(target or []), precisions=names(precision))


def cores(
    threads: Annotated[
        int | None,
        option(
            _WHAT,
            "--threads",
            metavar="N",
            min=1,
            help=_("Run every backend with this many threads."),
            default=_("cores"),
        ),
    ] = None,
) -> dict[str, Any]:
    return given(threads=threads)


def shapes(
    shapes: Annotated[
        list[str] | None,
        option(
            _WHAT, "--shapes", metavar="NAME:1x3x224x224", help=_("Fix input shapes; repeatable.")
        ),
    ] = None,
    batch_size: Annotated[
        int | None,
        option(
            _WHAT,
            "--batch-size",
            metavar="N",
            min=1,
            help=_("Set the inputs' first dimension."),
        ),
    ] = None,
) -> dict[str, Any]:
    return given(shapes=parse_shapes(shapes or []), batch_size=batch_size)


def varying(
    dynamic: Annotated[
        str | None,
        option(
            _WHAT,
            "--dynamic",
            metavar="NAME:0=1..32",
            help=_(
                "Compile for all sizes of a dimension (CPU), with kernels for powers of two or for "
                "those behind @: x:0=1..32@1,8,32. Join inputs by commas: ids:1,mask:1=8..256."
            ),
        ),
    ] = None,
) -> dict[str, Any]:
    return given(dynamic=dynamic)


def network(
    offline: Annotated[
        bool,
        option(
            _WHAT,
            "--offline",
            help=_("Download nothing; replace missing weights by seeded random ones."),
        ),
    ] = False,
) -> dict[str, Any]:
    return given(offline=offline)


def inputs(
    inputs: Annotated[
        Path | None,
        option(
            _WHAT,
            "--inputs",
            metavar="FILE.npz",
            exists=True,
            dir_okay=False,
            help=_("Read the inputs by name from this file."),
            default=_("seeded random"),
        ),
    ] = None,
    seed: Annotated[
        int | None,
        option(
            _WHAT,
            "--seed",
            metavar="N",
            help=_("Seed the inputs, random weights and the order of rounds."),
            default=_("0"),
        ),
    ] = None,
) -> dict[str, Any]:
    return given(inputs_file=None if inputs is None else str(inputs), seed=seed)


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
                "On CUDA: let cuBLASLt compute what it was measured to compute fastest; loading "
                "the model then needs it too."
            ),
            default=_("where this machine has it"),
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


_TIME = msg("How to measure")
Iterations = Annotated[
    int | None,
    option(
        _TIME,
        "--iterations",
        metavar="N",
        min=1,
        help=msg("Time exactly this many runs per backend."),
    ),
]
Warmup = Annotated[
    int | None,
    option(
        _TIME,
        "--warmup",
        metavar="N",
        min=0,
        help=msg("Do exactly this many warm-up runs."),
        default=msg("until steady"),
    ),
]


def measurement(
    iterations: Iterations = None,
    warmup: Warmup = None,
    duration: Annotated[
        str | None,
        option(
            _TIME,
            "--duration",
            metavar="TIME",
            help=_("Measure each backend for this time: 5s, 1m."),
            default=_("8s"),
        ),
    ] = None,
    mode: Annotated[
        Literal["latency", "throughput"] | None,
        option(
            _TIME,
            "--mode",
            help=_(
                "Measure latency or throughput; throughput also shows items per second (see "
                "--batch-size)."
            ),
            default=_("latency"),
        ),
    ] = None,
    cache: Annotated[
        Literal["warm", "cold"] | None,
        option(
            _TIME,
            "--cache",
            help=_(
                "Measure with warm or cold caches; cold flushes the CPU caches before each run."
            ),
            default=_("warm"),
        ),
    ] = None,
) -> dict[str, Any]:
    duration_s = None if duration is None else parse_duration_s(duration)
    if duration_s == 0:
        raise UsageError(msg("--duration must be more than 0; use --iterations 1 for a single run"))
    return given(
        iterations=iterations, warmup=warmup, duration_s=duration_s, mode=mode, cache=cache
    )


def backends(
    backends: Annotated[
        list[str] | None,
        option(
            _WHAT,
            "--backends",
            metavar="A,B",
            help=_("Run only these backends."),
            default=_("tvmscope"),
        ),
    ] = None,
) -> dict[str, Any]:
    return given(backends=names(backends))


def comparison(
    backends: Annotated[
        list[str] | None,
        option(
            _WHAT, "--backends", metavar="A,B", help=_("Run only these backends."), default=_("all")
        ),
    ] = None,
    tvm_budget: Annotated[
        str | None,
        option(
            _WHAT,
            "--tvm-budget",
            metavar="TIME",
            help=_(
                "How long MetaSchedule searches for the backend tvm-tuned; 0s uses what it found "
                "before."
            ),
            default=_("2m"),
        ),
    ] = None,
) -> dict[str, Any]:
    budget_s = None if tvm_budget is None else parse_duration_s(tvm_budget)
    return given(backends=names(backends), tvm_budget_s=budget_s)


SUBJECT = (target, cores, shapes, network, inputs)
"""The flags of every command that compiles a model: which model, and for which machine."""
MEASURING = (
    *SUBJECT,
    compilation,
    database,
    measurement,
    comparison,
    tolerances,
    place,
    speech,
    results,
    planning,
)
"""The flags of every command that measures a model."""
