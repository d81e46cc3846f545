"""The documentation says what the code does: links, layers, paths, exit codes, fields, API."""

from __future__ import annotations

import ast
import dataclasses
import inspect
import json
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import tvmscope
from tvmscope import errors
from tvmscope.cli.show import InterruptedWork
from tvmscope.core.options import CompileOptions, LoadOptions, MeasureOptions, TuneOptions
from tvmscope.plugins import discover
from tvmscope.stages.options import Options
from tvmscope.workflow.ablating.switches import built_in

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PACKAGE = ROOT / "src" / "tvmscope"
READMES = [ROOT / "README.md", ROOT / "README.zh-CN.md"]
PAGES = [*READMES, *sorted(DOCS.rglob("*.md")), *sorted(ROOT.glob("benchmarks/**/*.md"))]

pytestmark = pytest.mark.skipif(not DOCS.is_dir(), reason="a source distribution has no docs")


def text_of(page: Path) -> str:
    return page.read_text(encoding="utf-8")


def links(page: Path) -> Iterator[tuple[Path, str]]:
    """The files that a page links to, and the heading inside; not those on the web."""
    for link in re.findall(r"\]\(([^)\s]+)\)|<img src=\"([^\"]+)\"", text_of(page)):
        address = link[0] or link[1]
        if not re.match(r"[a-z]+:", address):
            file, _, anchor = address.partition("#")
            yield ((page.parent / file).resolve() if file else page), anchor


def anchors(page: Path) -> set[str]:
    """The headings of a page, as GitHub names them."""
    headings = re.findall(r"^#+ (.+)$", text_of(page), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", h.lower()).replace(" ", "-") for h in headings}


@pytest.mark.parametrize("page", PAGES, ids=lambda p: str(p.relative_to(ROOT)))
def test_links_resolve(page: Path) -> None:
    found = list(links(page))
    missing = [file for file, _ in found if not file.exists()]
    headings = [
        f"{file.name}#{anchor}"
        for file, anchor in found
        if anchor and file.suffix == ".md" and file.exists() and anchor not in anchors(file)
    ]
    assert (missing, headings) == ([], [])


def test_every_page_is_in_the_index() -> None:
    linked = {file for file, _ in links(DOCS / "README.md")}
    pages = {page.resolve() for page in DOCS.rglob("*.md")} - {(DOCS / "README.md").resolve()}
    assert sorted(p.name for p in pages - linked) == []


@pytest.mark.parametrize("page", READMES, ids=lambda p: p.name)
def test_the_readme_links_to_the_index(page: Path) -> None:
    assert (DOCS / "README.md").resolve() in {file for file, _ in links(page)}


def test_both_readmes_name_the_same_commands() -> None:
    def commands(page: Path) -> set[str]:
        block = text_of(page).split("tvmscope analyze resnet50  ")[1].split("```")[0]
        return set(re.findall(r"^tvmscope ([a-z]+)", block, re.MULTILINE))

    english, chinese = map(commands, READMES)
    assert chinese <= english
    assert {"analyze", "tune", "learn", "lab", "lint"} <= chinese


def test_the_layers_are_those_of_the_contract() -> None:
    project = tomllib.loads(text_of(ROOT / "pyproject.toml"))
    contract = project["tool"]["importlinter"]["contracts"][0]["layers"]
    layers = [name.strip() for line in contract for name in line.split("|")]
    block = text_of(DOCS / "architecture.md").split("```text\n")[1].split("```")[0]
    documented = [line.split()[0] for line in block.splitlines()]
    assert [f"tvmscope.{name}" for name in documented] == layers


FOLDERS = "|".join(sorted(p.name for p in PACKAGE.iterdir() if p.is_dir() and p.name[0] != "_"))
OF_PACKAGE = re.compile(rf"`((?:{FOLDERS})/[\w/]*(?:\.py|\.json|/))(?:`| )")


@pytest.mark.parametrize("page", PAGES, ids=lambda p: str(p.relative_to(ROOT)))
def test_paths_of_the_package_exist(page: Path) -> None:
    named = {path for path in OF_PACKAGE.findall(text_of(page)) if not path.endswith("/x.py")}
    assert sorted(path for path in named if not (PACKAGE / path).exists()) == []


ROOMS = {p.name for p in PACKAGE.rglob("*") if p.is_dir() and p.name[0] != "_"}
TOP = {p.stem for p in PACKAGE.iterdir() if p.name[0] != "_"} | {"tvmscope"}
NOT_OURS = {"tvmscope.op", "runtime.NumThreads", "file.py"}
"""An attribute of kernels, a function of TVM's runtime, a file of the user's."""


def docstrings(file: Path) -> Iterator[str]:
    """Docstrings of a module, and the strings below its constants."""
    for node in ast.walk(ast.parse(text_of(file))):
        match node:
            case ast.Expr(value=ast.Constant(value=str(text))):
                yield text


def defines(module: Path, name: str) -> bool:
    """Whether a module has the name at its top level, defined or imported."""
    return (
        re.search(rf"^(class |def |from .*|import .*)?{name}\b", text_of(module), re.M) is not None
    )


def resolves(dotted: list[str], folder: Path) -> bool:
    """Whether a dotted name leads from a folder to a module, or to what one defines."""
    if not dotted:
        return True
    head, *rest = dotted
    if (folder / head).is_dir():
        return resolves(rest, folder / head)
    module = folder / f"{head}.py"
    if not module.exists():
        return (folder / "__init__.py").exists() and defines(folder / "__init__.py", head)
    return not rest or defines(module, rest[0])


def stale(name: str, file: Path) -> bool:
    """Whether a docstring names a file, a room or a definition that the package lacks."""
    around = [folder for folder in (file.parent, *file.parents) if folder.is_relative_to(PACKAGE)]
    if name.endswith(".py") or "/" in name:
        ours = name.endswith(".py") or name.split("/")[0] in ROOMS
        return ours and not any((folder / name).exists() for folder in around)
    parts = name.removeprefix("tvmscope.").split(".")
    return name.split(".")[0] in TOP and not any(resolves(parts, folder) for folder in around)


@pytest.mark.parametrize(
    "name, wrong",
    [
        ("cuda.cubins.kernel_compiler", False),
        ("cuda.kernel_compiler", True),
        ("core.stats.ratio_interval", False),
        ("core.stats.no_such_statistic", True),
        ("cuda/cubins/", False),
        ("cuda/no_such_room/", True),
        ("subprocess.Popen", False),
    ],
)
def test_stale_names_are_told_apart(name: str, wrong: bool) -> None:
    assert stale(name, PACKAGE / "core" / "stats.py") == wrong


def test_docstrings_name_what_exists() -> None:
    found = [
        f"{file.relative_to(PACKAGE)}: {name}"
        for file in sorted(PACKAGE.rglob("*.py"))
        for text in docstrings(file)
        for name in re.findall(r"`([\w/]+[./][\w./]*)(?:: ?\w+)?`", text)
        if name not in NOT_OURS and stale(name, file)
    ]
    assert found == []


def cells(page: str, column: int) -> list[str]:
    """A column of every table of a reference page, headings left out."""
    rows = re.findall(r"^\| (.+) \|$", text_of(DOCS / "reference" / page), re.MULTILINE)
    return [re.split(r"(?<!\\) \| ", row)[column] for row in rows]


def names(cell: str) -> list[str]:
    return re.findall(r"`([^`]+)`", cell)


def errors_of(base: type[errors.TvmscopeError]) -> Iterator[type[errors.TvmscopeError]]:
    yield base
    for each in base.__subclasses__():
        yield from errors_of(each)


def test_exit_codes() -> None:
    first, second = cells("exit-codes.md", 0), cells("exit-codes.md", 1)
    documented = {names(a)[0]: int(b) for a, b in zip(first, second, strict=True) if names(a)}
    own = [e for e in errors_of(errors.TvmscopeError) if e.__module__ == errors.__name__]
    assert documented == {e.__name__: e.exit_code for e in own}
    codes = {int(cell) for cell in first if cell.isdigit()}
    assert codes == {0, *documented.values(), InterruptedWork.exit_code}


def first_column(page: str) -> set[str]:
    """The names in the first column of every table of a page."""
    rows = re.findall(r"^\| (`.+?) \| ", text_of(DOCS / page), re.MULTILINE)
    return {name for row in rows for name in names(row)}


def test_every_optimisation_is_explained() -> None:
    known = {switch.name for device in ("cpu", "cuda") for switch in built_in(device)}
    kinds = {name for name in known if not name.endswith("-schedule")}
    assert sorted(kinds - first_column("ablation.md")) == []


def test_every_diagnosis_rule_is_explained() -> None:
    found, failures = discover("tvmscope.diagnose.rules", "RULE")
    assert failures == []
    ids = {rule.id for rule in found.values()}
    assert first_column("diagnosis.md") == ids


def schema() -> dict[str, Any]:
    found: dict[str, Any] = json.loads(text_of(PACKAGE / "report" / "session.schema.json"))
    return found


@pytest.mark.parametrize(
    "heading, part",
    [("Top level", None), ("A result", "result"), ("A comparison", "comparison")],
)
def test_session_fields(heading: str, part: str | None) -> None:
    page = text_of(DOCS / "reference" / "session.md")
    section = page.split(f"## {heading}\n")[1].split("\n## ")[0]
    rows = re.findall(r"^\| (`.+?) \| ", section, re.MULTILINE)
    documented = {name for row in rows for name in names(row)}
    fields = (schema() if part is None else schema()["$defs"][part])["properties"]
    assert documented == {name for name in fields if not name.startswith("device_")}


def test_the_schema_version() -> None:
    version = schema()["properties"]["schema_version"]["const"]
    assert f"| `schema_version` | {version} |" in text_of(DOCS / "reference" / "session.md")


def test_signatures() -> None:
    block = text_of(DOCS / "reference" / "api.md").split("```python\n")[1].split("```")[0]
    written = [
        f"tvmscope.{name}{inspect.signature(getattr(tvmscope, name))}".replace("'", "")
        for name in tvmscope.__all__
    ]
    assert block.splitlines() == written


def keywords() -> Iterator[tuple[str, str]]:
    """What `Options.of` takes, with its default as a reader would write it."""
    nested = {"load", "compile", "measure", "tune", "command", "example_inputs", "pictures"}
    of_rows = {"precision", "threads", "graph"}  # the rows say them
    for owner in (Options, LoadOptions, CompileOptions, MeasureOptions, TuneOptions):
        hidden = {Options: nested, CompileOptions: of_rows}.get(owner, set[str]())
        for field in dataclasses.fields(owner):
            if field.name not in hidden:
                made = field.default_factory
                value = field.default if made is dataclasses.MISSING else made()
                yield field.name, "float32" if field.name == "precisions" else repr(value)


def test_options() -> None:
    pairs = zip(cells("api.md", 0), cells("api.md", 1), strict=True)
    documented = {names(a)[0]: names(b)[0] for a, b in pairs if names(a)}
    assert documented == dict(keywords())
