"""Finds the problems of a suite: files below a folder, lines of a list, or names."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from fnmatch import fnmatch
from pathlib import Path

from tvmscope.errors import UsageError
from tvmscope.messages import msg

SUFFIXES = (".onnx", ".pt2", ".py", ".cfg")
HUGGING_FACE = "config.json"
"""A folder with this file is one model."""


@dataclass(frozen=True, kw_only=True)
class Problem:
    """One model to measure."""

    name: str
    """Its path below the given folder, or the given text; it is unique."""
    source: str
    """The loader's argument in the current folder."""
    file: Path | None = None
    """The absolute path of the file; None for a model that is known by name."""
    more: str = ""
    """The text after the file's path: a function's name."""

    @property
    def anywhere(self) -> str:
        """The loader's argument in any folder."""
        return self.source if self.file is None else f"{self.file}{self.more}"


def find(
    given: Iterable[str], include: tuple[str, ...] = (), exclude: tuple[str, ...] = ()
) -> list[Problem]:
    """Return all problems, in order of their names if they come from a folder.

    `include` and `exclude` are patterns such as `operators/*` for names.
    """
    found: dict[str, Problem] = {}
    for text in given:
        for problem in _expanded(text):
            name = problem.name
            if found.get(name, problem).anywhere != problem.anywhere:  # a.py of two folders
                name = problem.anywhere
            found[name] = replace(problem, name=name)
    chosen = [p for p in found.values() if _wanted(p.name, include, exclude)]
    if not chosen:
        raise UsageError(
            msg(
                "no problem is left of {count}; check --include and --exclude",
                count=len(found),
            )
        )
    return chosen


def _wanted(name: str, include: tuple[str, ...], exclude: tuple[str, ...]) -> bool:
    taken = not include or any(fnmatch(name, pattern) for pattern in include)
    return taken and not any(fnmatch(name, pattern) for pattern in exclude)


def _expanded(text: str) -> Iterator[Problem]:
    path = Path(text).expanduser()
    if path.is_dir() and not (path / HUGGING_FACE).exists():
        yield from _below(path)
    elif path.is_file() and path.suffix not in SUFFIXES:
        yield from _listed(path)
    else:
        yield _named(text, Path())


def _below(folder: Path) -> Iterator[Problem]:
    files = sorted(f for f in folder.rglob("*") if f.suffix in SUFFIXES and f.is_file())
    files = [f for f in files if not any(part[0] in "._" for part in f.relative_to(folder).parts)]
    if not files:
        raise UsageError(
            msg(
                "{model} holds no model files ({suffixes})",
                model=folder,
                suffixes=SUFFIXES,
            )
        )
    for file in files:
        name = file.relative_to(folder).as_posix()
        yield Problem(name=name, source=str(file), file=file.resolve())


def _listed(file: Path) -> Iterator[Problem]:
    """Yield a problem per line; paths are relative to the list."""
    try:
        lines = file.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as e:
        raise UsageError(
            msg(
                "{file} is neither a model nor a list of models: {reason}",
                file=file,
                reason=str(e),
            )
        ) from e
    for line in lines:
        text = line.split("#")[0].strip()
        if text:
            yield _named(text, file.parent)


def _named(text: str, folder: Path) -> Problem:
    """Return a file, perhaps with a function after a colon; else a name for `models.resolve`."""
    head, colon, rest = text.rpartition(":") if text.count(":") else (text, "", "")
    for path, more in ((text, ""), (head, colon + rest)):
        file = (folder / Path(path).expanduser()).resolve()
        if path and file.is_file():
            return Problem(name=text, source=str(folder / text), file=file, more=more)
    return Problem(name=text, source=text)
