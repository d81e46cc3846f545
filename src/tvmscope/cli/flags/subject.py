"""The flags that say what to measure or build: the model, the machine, the backends."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from tvmscope.cli.flags.option import given, names, option
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


def device(
    device: Annotated[
        str | None,
        option(
            _WHAT,
            "--device",
            metavar="DEVICE",
            help=_("Run on this device: cpu, cuda, or cuda:1 for the second GPU."),
            default=_("what the target runs on"),
        ),
    ] = None,
) -> dict[str, Any]:
    return given(device=device)


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
