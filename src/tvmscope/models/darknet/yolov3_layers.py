"""The layer lists of YOLOv3 and YOLOv3-tiny (Redmon and Farhadi, 2018), written as .cfg text."""

from __future__ import annotations

from collections.abc import Iterable

SIZE, CLASSES = 416, 80
_HEAD_FILTERS = 3 * (5 + CLASSES)
_ANCHORS = "10,13, 16,30, 33,23, 30,61, 62,45, 59,119, 116,90, 156,198, 373,326"
_TINY_ANCHORS = "10,14, 23,27, 37,58, 81,82, 135,169, 344,319"


def _section(name: str, **values: object) -> str:
    return "\n".join([f"[{name}]", *(f"{key}={value}" for key, value in values.items()), ""])


def _conv(filters: int, size: int, stride: int = 1) -> str:
    return _section(
        "convolutional", batch_normalize=1, filters=filters, size=size, stride=stride, pad=1,
        activation="leaky",
    )  # fmt: skip


def _pair(filters: int) -> list[str]:
    """Return the building block of YOLOv3: half as many filters of 1x1, then 3x3."""
    return [_conv(filters // 2, 1), _conv(filters, 3)]


def _stage(filters: int, blocks: int) -> list[str]:
    """Return a stage of Darknet-53: halve the size, then residual blocks."""
    block = [*_pair(filters), _section("shortcut", **{"from": -3}, activation="linear")]
    return [_conv(filters, 3, 2), *block * blocks]


def _head(mask: str, anchors: str) -> list[str]:
    count = anchors.count(",") // 2 + 1
    return [
        _section("convolutional", size=1, stride=1, pad=1, filters=_HEAD_FILTERS,
                 activation="linear"),
        _section("yolo", mask=mask, anchors=anchors, classes=CLASSES, num=count),
    ]  # fmt: skip


def _upward(filters: int, layers: str) -> list[str]:
    """Return the path to the next scale: back before the head, up by two, joined with a layer."""
    return [
        _section("route", layers=-4),
        _conv(filters, 1),
        _section("upsample", stride=2),
        _section("route", layers=layers),
    ]


def _text(layers: Iterable[str]) -> str:
    return "\n".join([_section("net", width=SIZE, height=SIZE, channels=3), *layers])


def yolov3() -> str:
    """Return Darknet-53 with heads at strides 32, 16 and 8: 107 layers."""
    backbone = [_conv(32, 3)]
    for filters, blocks in ((64, 1), (128, 2), (256, 8), (512, 8), (1024, 4)):
        backbone += _stage(filters, blocks)
    return _text([
        *backbone,
        *_pair(1024) * 3, *_head("6,7,8", _ANCHORS),
        *_upward(256, "-1,61"), *_pair(512) * 3, *_head("3,4,5", _ANCHORS),
        *_upward(128, "-1,36"), *_pair(256) * 3, *_head("0,1,2", _ANCHORS),
    ])  # fmt: skip


def yolov3_tiny() -> str:
    """Return alternating convolutions and poolings, with heads at strides 32 and 16: 24 layers."""
    pool = _section("maxpool", size=2, stride=2)
    layers = []
    for filters in (16, 32, 64, 128, 256):
        layers += [_conv(filters, 3), pool]
    layers += [_conv(512, 3), _section("maxpool", size=2, stride=1)]
    return _text([
        *layers,
        _conv(1024, 3), _conv(256, 1), _conv(512, 3), *_head("3,4,5", _TINY_ANCHORS),
        *_upward(128, "-1,8"), _conv(256, 3), *_head("0,1,2", _TINY_ANCHORS),
    ])  # fmt: skip
