"""Settings of the documentation site; scripts/site.py builds it in both languages."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

project = "tvmscope"
author = "tvmscope developers"
copyright = author  # noqa: A001  # Sphinx's name
root_doc = "index"
extensions = ["myst_parser"]
myst_heading_anchors = 4
exclude_patterns = ["locale", "h200/*.xz"]
suppress_warnings = ["misc.highlighting_failure"]  # generated code is more than a lexer knows
html_theme = "furo"
html_title = "tvmscope"
html_show_sphinx = False
html_copy_source = False
html_theme_options = {"navigation_with_keys": True}
locale_dirs = ["locale"]
gettext_compact = False
gettext_uuid = False
gettext_location = False
templates_path: list[str] = []
html_static_path: list[str] = []

_OUTSIDE = re.compile(r"(!?)\[([^\]]*)\]\(\.\./(?:\.\./)?(?!reference|images)[^)]*\)")
_LINK = re.compile(r"\]\(([\w/-]+)\.md\)")


def _read(app: Any, page: str, source: list[str]) -> None:
    """Files outside the documentation stay names; the index gets its table of contents.

    The pages are read on a forge as well, where Sphinx's own notation would be noise.
    """
    source[0] = _OUTSIDE.sub(r"\2", source[0])
    if page == root_doc:
        source[0] += _contents(source[0], Path(app.srcdir))


def _contents(text: str, folder: Path) -> str:
    """Every page that the index names, by its headings, and the lessons that were measured."""
    parts = []
    for section in re.split(r"^## ", text, flags=re.MULTILINE)[1:]:
        title, _, body = section.partition("\n")
        parts.append(_toctree(title.strip(), _LINK.findall(body)))
    lessons = folder / "lessons" / "index.md"
    if lessons.is_file():
        parts.insert(0, _toctree("", ["lessons/index"]))
    return "\n\n" + "\n\n".join(parts) + "\n"


def _toctree(title: str, pages: list[str]) -> str:
    caption = f":caption: {title}\n" if title else ""
    return "```{toctree}\n:hidden:\n" + caption + "\n" + "\n".join(dict.fromkeys(pages)) + "\n```"


def _other_language(app: Any, page: str, template: str, context: dict[str, Any], tree: Any) -> None:
    """A link to the same page in the other language, above it."""
    up = "../" * page.count("/")
    if app.config.language == "en":
        link, name = f"{up}zh/{page}.html", "简体中文"
    else:
        link, name = f"{up}../{page}.html", "English"
    context["theme_announcement"] = f'<a href="{link}">{name}</a>'


def setup(app: Any) -> dict[str, bool]:
    app.connect("source-read", _read)
    app.connect("html-page-context", _other_language)
    # Sphinx 9.0's Chinese search asks for a class by this name, and defines the English one.
    stemmer = "function ChineseStemmer() { return new EnglishStemmer(); }"
    app.add_js_file(None, body=stemmer, priority=100)
    return {"parallel_read_safe": True}
