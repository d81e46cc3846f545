"""The flags for images."""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from tvmscope.cli.flags.option import given, option
from tvmscope.core.options import PictureOptions
from tvmscope.errors import UsageError
from tvmscope.messages import _, msg
from tvmscope.parsing import parse_numbers

_PICTURES = _("Images")
_OF_RUN = ("more", "save_vis")
"""Flags of a command that runs one artifact on images."""


def pictures(
    more: Annotated[
        list[Path] | None,
        typer.Argument(
            metavar="PICTURE", help=_("Process more images or folders."), show_default=False
        ),
    ] = None,
    image: Annotated[
        list[Path] | None,
        option(
            _PICTURES,
            "--image",
            metavar="PATH",
            help=_("Process this image or folder; repeatable."),
        ),
    ] = None,
    task: Annotated[
        Literal["classify", "detect"] | None,
        option(
            _PICTURES,
            "--task",
            help=_("Interpret the outputs as this task."),
            default=_("by its output shapes"),
        ),
    ] = None,
    labels: Annotated[
        Path | None,
        option(
            _PICTURES,
            "--labels",
            metavar="FILE",
            help=_("Read the class names from this file, one per line or as JSON."),
            default=_("the model's own, ImageNet or COCO"),
        ),
    ] = None,
    score_threshold: Annotated[
        float | None,
        option(
            _PICTURES,
            "--score-threshold",
            metavar="X",
            min=0.0,
            max=1.0,
            help=_("Show boxes with at least this score."),
            default="0.25",
        ),
    ] = None,
    nms_iou: Annotated[
        float | None,
        option(
            _PICTURES,
            "--nms-iou",
            metavar="X",
            min=0.0,
            max=1.0,
            help=_("Drop the weaker of two boxes of a class that overlap by more than this."),
            default="0.45",
        ),
    ] = None,
    head: Annotated[
        str | None,
        option(
            _PICTURES,
            "--head",
            metavar="NAME",
            help=_(
                "Decode a detector's outputs in this layout: yolov5, yolov8, "
                "darknet[:model.cfg], nms, end2end."
            ),
            default=_("by its output shapes"),
        ),
    ] = None,
    save_vis: Annotated[
        Path | None,
        option(
            _PICTURES,
            "--save-vis",
            metavar="PATH",
            help=_(
                "Write the image with the result drawn into it; give a folder for several images."
            ),
        ),
    ] = None,
    input_scale: Annotated[
        str | None,
        option(
            _PICTURES,
            "--input-scale",
            metavar="1/255",
            help=_("Multiply pixels by this factor."),
            default=_("the artifact's, else 1"),
        ),
    ] = None,
    mean: Annotated[
        str | None,
        option(
            _PICTURES,
            "--mean",
            metavar="R,G,B",
            help=_("Subtract this mean from scaled pixels."),
        ),
    ] = None,
    std: Annotated[
        str | None,
        option(
            _PICTURES,
            "--std",
            metavar="R,G,B",
            help=_("Divide the difference by this standard deviation."),
        ),
    ] = None,
    layout: Annotated[
        Literal["NCHW", "NHWC"] | None,
        option(
            _PICTURES,
            "--layout",
            help=_("Take the input to have this layout."),
            default=_("by its shape"),
        ),
    ] = None,
    fit: Annotated[
        Literal["stretch", "letterbox", "crop"] | None,
        option(
            _PICTURES,
            "--fit",
            help=_("Fit an image to the input's size in this way."),
            default=_("the artifact's, else stretch"),
        ),
    ] = None,
) -> dict[str, Any]:
    scale = parse_numbers(input_scale) if input_scale else ()
    if len(scale) > 1:
        raise UsageError(msg("--input-scale takes one number; give --std for one per channel"))
    preprocess = given(
        scale=scale[0] if scale else None,
        mean=parse_numbers(mean) if mean else None,
        std=parse_numbers(std) if std else None,
        layout=layout,
        fit=fit,
    )
    if 0.0 in preprocess.get("std", ()):
        raise UsageError(msg("--std divides: it cannot be 0"))
    found = (*(image or ()), *(more or ()))
    others = given(
        task=task, head=head, labels=labels, score_threshold=score_threshold, nms_iou=nms_iou,
        save_vis=save_vis, preprocess=preprocess,
    )  # fmt: skip
    if not found:
        if others:
            flag = next(iter(others)).replace("_", "-").replace("preprocess", "input-scale")
            raise UsageError(msg("--{flag} needs an image: give --image PATH", flag=flag))
        return {}
    return {"pictures": PictureOptions(pictures=found, **others)}


def both_sides(**flags: Any) -> dict[str, Any]:
    """Return the same group for a command whose arguments are two artifacts."""
    return pictures(**flags)


_all = inspect.signature(pictures, eval_str=True)
# `inspect` reads this attribute, which the type of functions does not have
both_sides.__signature__ = _all.replace(  # type: ignore[attr-defined]
    parameters=[p for name, p in _all.parameters.items() if name not in _OF_RUN]
)
