"""Resolves a user's text to a source: a built-in model, a file, a URL or a model of a hub."""

from __future__ import annotations

import difflib
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Literal
from urllib.parse import urlsplit

from tvmscope.errors import UsageError
from tvmscope.messages import Text, did_you_mean, msg
from tvmscope.models.catalog import built_ins
from tvmscope.models.darknet.cfg import Parts, parse_parts

Kind = Literal["builtin", "torchvision", "hf", "onnx", "pt2", "python", "pickled", "darknet"]

_WEIGHTS_ONLY = {".pt", ".pth", ".safetensors", ".bin", ".ckpt"}


@dataclass(frozen=True)
class Source:
    """What was named; `ref` is a name, an absolute path or a URL, usable in any process."""

    kind: Kind
    text: str
    name: str
    ref: str
    attribute: str | None = None
    """The factory function in a Python file; the weights and form of a darknet model."""

    @property
    def format(self) -> Literal["torch", "onnx"]:
        return "onnx" if self.kind == "onnx" else "torch"

    @property
    def is_url(self) -> bool:
        return self.ref.startswith(("http://", "https://"))

    @classmethod
    def pickled(cls, text: str, path: Path) -> Source:
        """Return the source of an in-memory module that was pickled to `path`."""
        return cls("pickled", text, text.rpartition(":")[2] or "module", str(path.resolve()))


def classify(text: str) -> Source:
    """Return the source that `text` names. It reads no model and imports neither torch nor onnx."""
    text = text.strip()
    prefix, colon, rest = text.partition(":")
    if prefix in ("http", "https"):
        return _url(text)
    if colon and prefix in ("torchvision", "hf"):
        return _hub(text, prefix, rest)
    if text in built_ins():
        return Source("builtin", text, text, text)
    if colon and prefix in built_ins() and built_ins()[prefix].load_form:
        return _darknet("builtin", text, prefix, prefix, rest)
    if match := re.fullmatch(r"(.+?\.cfg)(?::(.+))?", text):
        path = _existing(match[1])
        return _darknet("darknet", text, path.stem, str(path), match[2] or "")
    if match := re.fullmatch(r"(.+\.py)(?::(\w+))?", text):
        path = _existing(match[1])
        name = f"{path.stem}-{match[2]}" if match[2] else path.stem
        return Source("python", text, name, str(path), match[2])
    if Path(text).suffix in (".onnx", ".pt2"):
        path = _existing(text)
        return Source("onnx" if path.suffix == ".onnx" else "pt2", text, path.stem, str(path))
    raise UsageError(_unknown(text))


def _darknet(kind: Kind, text: str, stem: str, ref: str, rest: str) -> Source:
    parts = parse_parts(rest)
    name = stem if parts.form == Parts.form else f"{stem}-{parts.form}"
    return Source(kind, text, name, ref, str(parts) or None)


def _url(text: str) -> Source:
    path = Path(urlsplit(text).path)
    if path.suffix != ".onnx":
        raise UsageError(
            msg("'{text}' does not end in .onnx; only ONNX models are read from a URL", text=text)
        )
    return Source("onnx", text, path.stem, text)


def _hub(text: str, prefix: str, rest: str) -> Source:
    if not rest:
        raise UsageError(
            msg("'{text}' names no model; write {prefix}:NAME", text=text, prefix=prefix)
        )
    if prefix == "torchvision":
        return Source("torchvision", text, rest, rest)
    folder = Path(rest).expanduser()
    return Source("hf", text, folder.name, str(folder.resolve()) if folder.is_dir() else rest)


def _existing(text: str) -> Path:
    path = Path(text).expanduser()
    if path.is_file():
        return path.resolve()
    siblings = [p.name for p in path.parent.glob(f"*{path.suffix}")]
    raise UsageError(
        msg("there is no file '{text}'{suggest}", text=text, suggest=_suggest(path.name, siblings))
    )


def _unknown(text: str) -> Text:
    path, names = Path(text), list(built_ins())
    if path.is_dir():
        return msg("'{text}' is a folder; for a Hugging Face model write hf:{text}", text=text)
    if path.suffix in _WEIGHTS_ONLY:
        return msg(
            "'{text}' contains weights without a graph; write a file.py whose function builds the "
            "module and loads them (file.py:function), or save it with torch.export.save",
            text=text,
        )
    return msg(
        "'{text}' is not a model{hint}; built-in models: {names}; or give torchvision:NAME, "
        "hf:NAME, a .onnx, .pt2, .cfg or .py file",
        text=text,
        hint=_suggest(text, names),
        names=names,
    )


def _suggest(text: str, names: list[str]) -> Text:
    close = difflib.get_close_matches(text, names, n=3, cutoff=0.5)
    return did_you_mean(close)
