"""Translations: extracts the texts, brings catalogues up to date, compiles what gettext reads.

python scripts/catalogues.py update     # after texts have changed: new ones wait for translators
python scripts/catalogues.py compile    # the .mo files, which are built and never edited
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from io import BytesIO
from pathlib import Path

from babel.messages.catalog import Catalog
from babel.messages.extract import extract_from_dir
from babel.messages.mofile import write_mo
from babel.messages.pofile import read_po, write_po

PACKAGE = Path(__file__).parents[1] / "src" / "tvmscope"
LOCALE = PACKAGE / "locale"
ROOMS = (
    "learn",
    "cli/commands/learn.py",
    "cli/commands/lab.py",
    "machine/counters.py",
    "machine/load.py",
)
"""What is translated so far, below the package."""
_UNSAID = tuple(
    f'"{name}' for name in ("Report", "POT", "PO-", "Last", "Language-Team", "Generated")
)
"""Lines of a header that change with every run, or say nothing."""
KEYWORDS = {"_": None, "plural": (1, 2), "msg": None, "msgn": (1, 2), "marked": None}


def texts() -> Catalog:
    """Every text of the rooms, in the order of the files."""
    catalogue = Catalog(charset="utf-8")
    for room in ROOMS:
        for ids in _extracted(PACKAGE / room):
            catalogue.add(ids)
    return catalogue


def _extracted(place: Path) -> Iterator[str | tuple[str, ...]]:
    folder, names = (place, "**.py") if place.is_dir() else (place.parent, place.name)
    found = extract_from_dir(str(folder), [(names, "python")], keywords=KEYWORDS)
    for _file, _line, ids, _comments, _context in sorted(found, key=lambda item: item[:2]):
        yield tuple(ids) if isinstance(ids, tuple | list) else ids


def read(file: Path) -> Catalog:
    """A catalogue of translations."""
    with file.open("rb") as stream:
        return read_po(stream)


def update(file: Path) -> None:
    """Add new texts and drop those that are gone; a changed text is a new one."""
    catalogue = read(file)
    catalogue.update(texts(), no_fuzzy_matching=True)
    catalogue.obsolete.clear()
    stream = BytesIO()
    write_po(stream, catalogue, width=100, no_location=True)
    lines = stream.getvalue().decode().splitlines(keepends=True)
    file.write_text("".join(line for line in lines if not line.startswith(_UNSAID)), "utf-8")


def compile_to(file: Path, target: Path) -> None:
    """The form that gettext reads."""
    target.parent.mkdir(parents=True, exist_ok=True)
    with target.open("wb") as stream:
        write_mo(stream, read(file))


def main(verb: str) -> None:
    """Do it for every language."""
    for file in sorted(LOCALE.glob("*/LC_MESSAGES/tvmscope.po")):
        if verb == "update":
            update(file)
        else:
            compile_to(file, file.with_suffix(".mo"))


if __name__ == "__main__":
    main(sys.argv[1])
