"""Spellings known from other TVM scripts, turned into ours before the command line is parsed.

`--onnx m.onnx --out_dir x` means `m.onnx --output x`. None of them shows in `--help`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

from tvmscope.errors import UsageError
from tvmscope.messages import msg

_RENAMED = {
    "compile": {"--out-dir": "--output"},
    "run": {
        "--out-dir": "--output",
        "--iters": "--iterations",
        "--score-thresh": "--score-threshold",
    },
}
_POSITIONAL = {"compile": "--onnx", "run": "--artifact-dir"}
"""The flag whose value is the command's first argument."""
_SWITCH = re.compile(r"0|1|true|false|on|off|yes|no", re.IGNORECASE)
_DEVICE = re.compile(r"cpu|(cuda|gpu)(:\d+)?")
_OFF = ("0", "false", "off", "no")
_USUAL = "10m"
_NUMBER = re.compile(r"\d*\.?\d+")

Words = list[str]


def modern(args: Sequence[str]) -> Words:
    """Translate the arguments to tvmscope's own; commands other than `compile` and `run` keep
    theirs."""
    if not args or args[0] not in _RENAMED:
        return list(args)
    command, words = args[0], list(args[1:])
    first: Words = []
    ours: Words = []
    while words:
        word = words.pop(0)
        if word == "--":
            ours += [word, *words]
            break
        if not word.startswith("--"):
            ours.append(word)
            continue
        name, equals, value = word.partition("=")
        name = name.replace("_", "-")
        if equals:
            words.insert(0, value)
        if name == _POSITIONAL[command]:
            first.append(words.pop(0) if words else "")
        elif name in _SPECIAL:
            ours += _SPECIAL[name](command, words)
        else:
            name = _RENAMED[command].get(name, name)
            ours.append(f"{name}={words.pop(0)}" if equals else name)
    return [command, *first, *ours]


def wants_average(args: Sequence[str]) -> bool:
    """Whether a script counts runs by `--iters`: such scripts read a line with the average."""
    return any(word.partition("=")[0] == "--iters" for word in args)


def _nms(command: str, words: Words) -> Words:
    """Suppression is always on; a number after the flag sets its overlap."""
    if words and _NUMBER.fullmatch(words[0]):
        return ["--nms-iou", words.pop(0)]
    return []


def _fast_scatter(command: str, words: Words) -> Words:
    """Translate the switch, which is the default when compiling and has no effect when running."""
    off = bool(words) and bool(_SWITCH.fullmatch(words[0])) and words.pop(0).lower() in _OFF
    if command != "compile":
        return []
    return ["--no-fast-scatter" if off else "--fast-scatter"]


def _profile_top(command: str, words: Words) -> Words:
    return ["--profile", "--top", *([words.pop(0)] if words else [])]


def _device(command: str, words: Words) -> Words:
    """Take another word than a device's as a target: older scripts name targets by this flag."""
    value = words.pop(0) if words else ""
    is_target = command == "compile" and not _DEVICE.fullmatch(value)
    return ["--target" if is_target else "--device", value]


def _tune(command: str, words: Words) -> Words:
    """Translate the switch: compiling tunes for the given time; a bare switch means the usual
    one."""
    if command != "compile":
        raise UsageError(
            msg(
                "--tune: run takes a compiled artifact; give --tune to compile, or "
                "use tvmscope tune"
            )
        )
    if words and _SWITCH.fullmatch(words[0]):
        return [] if words.pop(0).lower() in _OFF else ["--tune", _USUAL]
    if not words or words[0].startswith("-"):
        return ["--tune", _USUAL]
    return ["--tune", words.pop(0)]


_SPECIAL: dict[str, Callable[[str, Words], Words]] = {
    "--nms": _nms,
    "--fast-scatter-nd": _fast_scatter,
    "--profile-topk": _profile_top,
    "--device": _device,
    "--tune": _tune,
}
