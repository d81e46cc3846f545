"""The flags for images."""

from __future__ import annotations

import inspect
from dataclasses import fields
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from tvmscope.cli.flags.option import given, option
from tvmscope.core.options import PictureOptions
from tvmscope.core.vision import PRESETS
from tvmscope.errors import UsageError
from tvmscope.messages import _, msg
from tvmscope.parsing import parse_numbers

_PICTURES = msg("Images")
_OF_RUN = ("more", "save_vis")
"""Flags of a command that runs one artifact on images."""


def pictures(
    more: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="PICTURE",
            help=_("Process more images, folders or addresses."),
            show_default=False,
        ),
    ] = None,
    image: Annotated[
        list[str] | None,
        option(
            _PICTURES,
            "--image",
            metavar="PATH|URL",
            help=_(
                "Process this image or folder, or the image at this http(s) address; repeatable. "
                "Without a file of that name, cat is a picture that comes with tvmscope."
            ),
        ),
    ] = None,
    preset: Annotated[
        str | None,
        option(
            _PICTURES,
            "--preprocess",
            metavar="NAME",
            help=_(
                "Prepare pixels as the model was trained: imagenet (PyTorch's), inception (-1 to "
                "1), unit (0 to 1) or raw; other flags change parts of it."
            ),
            default=_("the artifact's, else by its shapes"),
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
    offline: Annotated[bool, option(_PICTURES, "--offline", help=_("Download no image."))] = False,
) -> dict[str, Any]:
    scale = parse_numbers(input_scale) if input_scale else ()
    if len(scale) > 1:
        raise UsageError(msg("--input-scale takes one number; give --std for one per channel"))
    preprocess = _preset(preset) | given(
        scale=scale[0] if scale else None,
        mean=parse_numbers(mean) if mean else None,
        std=parse_numbers(std) if std else None,
        layout=layout,
        fit=fit,
    )
    if 0.0 in preprocess.get("std", ()):
        raise UsageError(msg("--std divides: it cannot be 0"))
    found = tuple(_place(text) for text in (*(image or ()), *(more or ())))
    others = given(
        task=task, head=head, labels=labels, score_threshold=score_threshold, nms_iou=nms_iou,
        save_vis=save_vis, preprocess=preprocess,
    )  # fmt: skip
    if not found:
        if others:
            flag = next(iter(others)).replace("_", "-")
            raise UsageError(msg("--{flag} needs an image: give --image PATH", flag=flag))
        return {}
    return {"pictures": PictureOptions(pictures=found, offline=offline, **others)}


def _place(text: str) -> Path | str:
    """Return a URL as text, because a path would lose one of its slashes."""
    return text if text.startswith(("http://", "https://")) else Path(text)


def _preset(name: str | None) -> dict[str, Any]:
    """Return every field of a preset, so that none of the artifact's settings remains."""
    if name is None:
        return {}
    if name not in PRESETS:
        raise UsageError(
            msg("--preprocess {name} is none of {known}", name=name, known=list(PRESETS))
        )
    preset = PRESETS[name]
    return {field.name: getattr(preset, field.name) for field in fields(preset)}


class _BothSides:
    """The same group for a command whose arguments are two artifacts."""

    def __call__(self, **flags: Any) -> dict[str, Any]:
        return pictures(**flags)

    @property
    def __signature__(self) -> inspect.Signature:
        """What `inspect` reads: evaluated anew, in the language of that moment."""
        every = inspect.signature(pictures, eval_str=True)
        kept = [p for name, p in every.parameters.items() if name not in _OF_RUN]
        return every.replace(parameters=kept)


both_sides = _BothSides()
