"""Translations: extracts the texts, brings catalogues up to date, compiles what gettext reads.

python scripts/catalogues.py update         # after texts have changed: new ones wait
python scripts/catalogues.py missing        # those that wait, as JSON: a list of texts
python scripts/catalogues.py merge FILE     # translations from JSON: {text: translation, ...}
python scripts/catalogues.py compile        # the .mo files, which are built and never edited
"""

from __future__ import annotations

import ast
import inspect
import json
import re
import sys
from collections.abc import Iterator
from io import BytesIO
from pathlib import Path

from babel.messages.catalog import Catalog
from babel.messages.extract import extract_from_dir
from babel.messages.mofile import write_mo
from babel.messages.pofile import read_po, write_po

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "src" / "tvmscope"
LOCALE = PACKAGE / "locale"
TEMPLATES = [("**.j2", "jinja2.ext.babel_extract")]
COMMANDS = "cli/commands"
"""Where a command's help is its function's docstring."""
_UNSAID = re.compile(
    r'"(Report-Msgid-Bugs-To|POT-Creation-Date|PO-Revision-Date|Last-Translator|Language-Team'
    r'|Generated-By): [^\n]*\n(?:"[^:\n]*"\n)?'
)
"""Lines of a header that change with every run, or say nothing."""
KEYWORDS = {"_": None, "plural": (1, 2), "ngettext": (1, 2)}
"""Of templates."""
MAKERS = {"_": 1, "plural": 2, "msg": 1, "msgn": 2, "marked": 1}
"""The functions whose first arguments are texts."""

Ids = str | tuple[str, ...]


def texts() -> Catalog:
    """Every text of the package, in the order of the files."""
    catalogue = Catalog(charset="utf-8")
    for ids in (*_extracted(), *_docstrings()):
        catalogue.add(ids)
    return catalogue


def _extracted() -> Iterator[Ids]:
    found = [
        (str(file.relative_to(PACKAGE)), line, ids)
        for file in PACKAGE.rglob("*.py")
        for line, ids in _called(ast.parse(file.read_text("utf-8")))
    ]
    for file, line, ids, *_ in extract_from_dir(str(PACKAGE), TEMPLATES, keywords=KEYWORDS):
        found.append((file, line, tuple(ids) if isinstance(ids, tuple | list) else ids))
    for _file, _line, ids in sorted(found, key=lambda item: item[:2]):
        yield ids


def _called(tree: ast.AST) -> Iterator[tuple[int, Ids]]:
    """The texts that are given to a maker, also inside f-strings and other calls, where extractors
    that read tokens see none."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name | ast.Attribute):
            name = node.func.id if isinstance(node.func, ast.Name) else node.func.attr
            given = [
                a.value for a in node.args[: MAKERS.get(name, 0)] if isinstance(a, ast.Constant)
            ]
            texts = tuple(text for text in given if isinstance(text, str) and text)
            if texts and len(texts) == MAKERS[name]:
                yield node.lineno, texts if len(texts) > 1 else texts[0]


def _docstrings() -> Iterator[str]:
    """The help of every command: a function that takes `show`, and its docstring."""
    for file in sorted((PACKAGE / COMMANDS).glob("*.py")):
        for node in ast.parse(file.read_text("utf-8")).body:
            if isinstance(node, ast.FunctionDef) and not node.name.startswith("_"):
                named = {argument.arg for argument in node.args.kwonlyargs}
                if "show" in named and (doc := ast.get_docstring(node)):
                    yield inspect.cleandoc(doc)


def read(file: Path) -> Catalog:
    """A catalogue of translations."""
    with file.open("rb") as stream:
        return read_po(stream)


def write(file: Path, catalogue: Catalog) -> None:
    """Write it without what changes with every run."""
    stream = BytesIO()
    write_po(stream, catalogue, width=100, no_location=True, ignore_obsolete=True)
    head, gap, texts = stream.getvalue().decode().partition("\n\n")
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(_UNSAID.sub("", head + "\n") + gap[1:] + texts, "utf-8")


def update(file: Path) -> None:
    """Add new texts and drop those that are gone; a changed text is a new one."""
    catalogue = read(file)
    catalogue.update(texts(), no_fuzzy_matching=True)
    catalogue.obsolete.clear()
    write(file, catalogue)


def missing(file: Path) -> list[str]:
    """The texts without a translation; of one with a plural, the first form."""
    return [_first(m.id) for m in read(file) if m.id and not _first(m.string)]


def merge(file: Path, translations: dict[str, str]) -> list[str]:
    """Set translations; returns those whose text is not in the catalogue."""
    catalogue = read(file)
    by_text = {_first(m.id): m for m in catalogue if m.id}
    for text, translation in translations.items():
        if (entry := by_text.get(text)) is not None:
            entry.string = translation if isinstance(entry.id, str) else (translation,)
    write(file, catalogue)
    return sorted(translations.keys() - by_text.keys())


def _first(texts: Ids) -> str:
    return texts if isinstance(texts, str) else texts[0]


def compile_to(file: Path, target: Path) -> None:
    """The form that gettext reads."""
    target.parent.mkdir(parents=True, exist_ok=True)
    with target.open("wb") as stream:
        write_mo(stream, read(file))


def main(verb: str, *names: str) -> None:
    """Do it for every language."""
    for file in sorted(LOCALE.glob("*/LC_MESSAGES/tvmscope.po")):
        if verb == "update":
            update(file)
        elif verb == "missing":
            print(json.dumps(missing(file), ensure_ascii=False, indent=0))
        elif verb == "merge":
            for name in names:
                unknown = merge(file, json.loads(Path(name).read_text("utf-8")))
                print("".join(f"not in the catalogue: {text}\n" for text in unknown), end="")
        else:
            compile_to(file, file.with_suffix(".mo"))


if __name__ == "__main__":
    main(*sys.argv[1:])
