"""The manifest of a renderer, and the discovery of renderers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from tvmscope.core.session import Session
from tvmscope.errors import UsageError
from tvmscope.messages import msg
from tvmscope.plugins import Merged, discover, merged
from tvmscope.report.format_names import FORMATS
from tvmscope.storage.files import write_compressed, write_text_atomic


@dataclass(frozen=True)
class Renderer:
    """A format: `render` turns sessions (one, or those of several models) into a document."""

    name: str
    suffix: str
    render: Callable[[list[Session]], str]
    files: Callable[[list[Session], str], dict[str, str]] | None = None
    """For a document of several files: returns all of them by their path beside the document, given
    its file name."""
    packed: tuple[str, ...] = ()
    """For a document whose file is compressed: the allowed suffixes of its name."""

    def write(self, sessions: list[Session], file: Path, *, force: bool = True) -> list[Path]:
        """Write the document and the files beside it; the document comes first."""
        documents = {file.name: ""}  # keeps its position in the order
        if self.files is None:
            documents[file.name] = self.render(sessions)
        else:
            documents |= self.files(sessions, file.name)
        there = [name for name in documents if (file.parent / name).exists()]
        if there and not force:
            raise UsageError(
                msg(
                    "{file} exists; will not overwrite without --force",
                    file=file.parent / there[0],
                )
            )
        write = write_compressed if self.packed else write_text_atomic
        for name, text in documents.items():
            write(file.parent / name, text)
        return [file.parent / name for name in documents]


def known() -> Merged[Renderer]:
    """Return every renderer by the name of its format, and the failures."""
    found, failures = discover(FORMATS, "RENDERER")
    built_in = {renderer.name: renderer for renderer in found.values()}
    every = merged("format", built_in, Renderer, lambda renderer: renderer.name)
    return Merged(every.manifests, every.plugins, (*failures, *every.failures))


def renderers() -> dict[str, Renderer]:
    """Return every renderer, by the name of its format."""
    return known().manifests


def by_file(file: Path) -> str | None:
    """Return the format of a file's name: the longest suffix that fits."""
    fitting = [r for r in renderers().values() if file.name.endswith((r.suffix, *r.packed))]
    return max(fitting, key=lambda r: len(r.suffix)).name if fitting else None


def renderer(name: str) -> Renderer:
    """Return the renderer of a format."""
    known = renderers()
    if name not in known:
        raise UsageError(
            msg("unknown format '{name}'; there are {known}", name=name, known=sorted(known))
        )
    return known[name]
