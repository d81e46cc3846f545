"""Builds the documentation site in English and Chinese, offline, with lessons measured here.

python scripts/site.py                         # build/site: every lesson is run, some minutes
python scripts/site.py --lessons split,tile    # only these; --lessons none leaves them out
python scripts/site.py --update                # only docs/locale: texts that have changed
"""

from __future__ import annotations

import argparse
import re
import shutil
import sys
from datetime import date
from itertools import filterfalse
from pathlib import Path
from tempfile import TemporaryDirectory

import catalogues
from babel.messages.catalog import Catalog
from babel.messages.mofile import write_mo
from babel.messages.pofile import read_po

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
SITE = ROOT / "build" / "site"
LOCALE = DOCS / "locale" / "zh_CN" / "LC_MESSAGES"
LANGUAGES = {"en": "en", "zh": "zh_CN"}
"""As the command line calls them, and as Sphinx does."""
_TITLES = {"en": "Lessons", "zh": "课程"}


def sources(folder: Path) -> None:
    """A copy of the pages to build from: README.md is a site's index."""
    shutil.copytree(DOCS, folder, dirs_exist_ok=True)
    (folder / "README.md").rename(folder / "index.md")
    for page in folder.rglob("*.md"):
        depth = len(page.relative_to(folder).parts) - 1
        text = page.read_text("utf-8")
        if depth == 0:
            text = text.replace("](README.md", "](index.md")
        page.write_text(text, "utf-8")


def sphinx(*arguments: str) -> None:
    """Run Sphinx; a warning is a failure."""
    import jieba
    from sphinx.cmd.build import main

    jieba.setLogLevel("WARNING")

    if code := main(["-q", "-W", "--keep-going", *arguments]):
        sys.exit(code)


def extracted(scratch: Path) -> dict[Path, Catalog]:
    """The texts of every page, by its catalogue's place."""
    sources(scratch / "docs")
    sphinx("-b", "gettext", str(scratch / "docs"), str(scratch / "pot"))
    found = {}
    for template in sorted((scratch / "pot").rglob("*.pot")):
        with template.open("rb") as stream:
            place = LOCALE / template.relative_to(scratch / "pot").with_suffix(".po")
            found[place] = read_po(stream)
    return found


def read(file: Path) -> Catalog:
    """A catalogue of translations."""
    with file.open("rb") as stream:
        return read_po(stream, locale="zh_CN")


def update() -> None:
    """Bring the guides' catalogues up to date: new texts wait for translators."""
    with TemporaryDirectory() as scratch:
        for file, texts in extracted(Path(scratch)).items():
            if file.is_file():
                known = read(file)
                known.update(texts, no_fuzzy_matching=True)
                known.obsolete.clear()
            else:
                known = texts
                known.locale = "zh_CN"
            if _page(file) in MEASURED:
                for text in [m.id for m in known if m.id and not m.string and _has_data(m.id)]:
                    known.delete(text)
            catalogues.write(file, known)


def check() -> int:
    """Print texts of the pages that have no translation, and translations without a text."""
    faults = []
    with TemporaryDirectory() as scratch:
        for file, texts in extracted(Path(scratch)).items():
            page = _page(file)
            wanted = {m.id for m in texts if m.id}
            known = {m.id: m.string for m in read(file) if m.id} if file.is_file() else {}
            missing, stale = ({t for t in wanted if not known.get(t)}, known.keys() - wanted)
            if page in MEASURED:
                missing, stale = (set(filterfalse(_has_data, found)) for found in (missing, stale))
            faults += [f"{page}: no translation: {t}" for t in sorted(missing)]
            faults += [f"{page}: stale: {t}" for t in sorted(stale)]
    print("\n".join(faults))
    return 1 if faults else 0


MEASURED = frozenset({"benchmarks", "coverage"})
"""Pages that measurements write again. Titles and general texts must be translated; what holds a
number or a name changes with each run, and is read in English until it is translated too."""


def _page(file: Path) -> str:
    """The name of the page that a catalogue belongs to."""
    return str(file.relative_to(LOCALE).with_suffix(""))


def _has_data(text: str) -> bool:
    return " " not in text or bool(re.search(r"\d|\w_\w|'[\w#]+'", text))


def lessons(names: list[str], folders: dict[str, Path], *, small: bool = False) -> None:
    """Run each lesson once and write it in every language."""
    from tvmscope import messages
    from tvmscope.compiler.targets import host_target
    from tvmscope.learn import catalog
    from tvmscope.learn.pages.document import blocks
    from tvmscope.learn.pages.markdown import to_markdown
    from tvmscope.learn.run import run
    from tvmscope.learn.setting import Setting
    from tvmscope.stages.places import cache_folder

    target, when = host_target(cache=cache_folder()), date.today().isoformat()
    for name in names:
        lesson = catalog.find(name)
        made = run(lesson, Setting(target=target, size=lesson.smallest if small else None))
        print(name, flush=True)
        for language, folder in folders.items():
            messages.use_language(language)
            text, figures = to_markdown(blocks(made, lesson, when), name)
            folder.mkdir(parents=True, exist_ok=True)
            (folder / f"{name}.md").write_text(text, "utf-8")
            for file, picture in figures.items():
                (folder / file).write_text(picture, "utf-8")
    for language, folder in folders.items():
        entries = "\n".join(names)
        index = f"# {_TITLES[language]}\n\n```{{toctree}}\n:maxdepth: 1\n\n{entries}\n```\n"
        (folder / "index.md").write_text(index, "utf-8")
    messages.use_language(None)


def build(names: list[str], output: Path, *, small: bool = False) -> None:
    """The site: English at the top, Chinese in zh/."""
    catalogues.main("compile")
    with TemporaryDirectory() as scratch:
        folders = {language: Path(scratch) / language for language in LANGUAGES}
        for folder in folders.values():
            sources(folder)
        if names:
            places = {language: folder / "lessons" for language, folder in folders.items()}
            lessons(names, places, small=small)
        for file in (folders["zh"] / "locale").rglob("*.po"):
            with file.open("rb") as po, file.with_suffix(".mo").open("wb") as mo:
                write_mo(mo, read_po(po))
        for language, folder in folders.items():
            place = output if language == "en" else output / language
            sphinx(
                "-b", "html", "-d", f"{scratch}/doctrees-{language}",
                "-D", f"language={LANGUAGES[language]}", str(folder), str(place),
            )  # fmt: skip


def main() -> None:
    """Parse and build."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--lessons", default="all")
    parser.add_argument("--output", type=Path, default=SITE)
    parser.add_argument("--small", action="store_true", help="lessons at their smallest size")
    parser.add_argument("--update", action="store_true")
    parser.add_argument("--check", action="store_true", help="are the guides translated?")
    given = parser.parse_args()
    if given.update:
        update()
        return
    if given.check:
        sys.exit(check())
    from tvmscope.learn import catalog

    every = list(catalog.lessons())
    names = {"all": every, "none": []}.get(given.lessons, given.lessons.split(","))
    build(names, given.output, small=given.small)


if __name__ == "__main__":
    main()
