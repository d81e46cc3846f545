"""No text that a session stores is put together as a string: translators would never see it."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import get_args

import pytest

import tvmscope
from tvmscope.core.comparison import Verdict
from tvmscope.core.diagnosis.findings import Outcome
from tvmscope.core.measurement import Status

ROOT = Path(tvmscope.__file__).parent
STORED = (
    "analysis/ablation.py", "analysis/changes.py", "backends", "benchmark",
    "compiler/build.py", "compiler/codegen", "compiler/describe/kernel_ir.py",
    "compiler/frontends", "compiler/passes/__init__.py", "compiler/pipeline.py",
    "compiler/rewrites", "compiler/schedules/apply.py", "compiler/tunable", "compiler/units",
    "core/comparison.py", "core/diagnosis/findings.py", "core/diagnosis/remarks.py", "diagnose",
    "machine/load.py",
    "measure", "models/api.py", "models/darknet", "models/download.py", "models/flat.py",
    "models/loaders", "models/prepare.py", "profiling", "runtime", "stages", "tuning",
    "workflow/ablating", "workflow/analyze.py", "workflow/bench.py",
    "workflow/bisecting", "workflow/comparing/artifacts.py", "workflow/fixing",
    "workflow/profile.py", "workflow/run.py", "workflow/sizing/measure_sizes.py",
    "workflow/suiting",
)  # fmt: skip
"""Modules and folders whose findings, reasons, warnings, notes and remarks end up in a session."""
FIELDS = frozenset(
    {"title", "evidence", "advice", "reason", "note", "detail", "unavailable", "failure", "problem"}
    | {"warnings", "notes"}
)
LISTS = frozenset({"warnings", "remarks", "notes", "problems", "troubles"})
REFUSING = ("compiler/frontends", "tuning/search", "tuning/trials")
"""Where all errors are reasons that people read: why a node is refused, why a trial failed."""
FOREIGN = frozenset(
    {"ValueError", "TypeError", "AssertionError", "OSError", "UsageError", "LoadError"}
)
"""Errors that no session keeps: other libraries' own, those that end a command at once, and that of
the loader in an artifact, which runs without this package."""
MAKERS = {"msg": 1, "msgn": 2, "marked": 1}
"""Whose first arguments extractors read."""
_WORDS = re.compile(r"[A-Za-z]{2,} [A-Za-z]{2,}|: [a-z]{2,}")


def files(places: tuple[str, ...]) -> list[Path]:
    found = [ROOT / place for place in places]
    assert all(place.exists() for place in found)
    return sorted(f for p in found for f in (p.rglob("*.py") if p.is_dir() else [p]))


def name(node: ast.expr) -> str:
    return node.id if isinstance(node, ast.Name) else getattr(node, "attr", "")


def is_sentence(node: ast.expr | None) -> bool:
    """Whether an expression makes words: a text, an f-string, a sum or a format of texts."""
    if isinstance(node, ast.Constant):
        return isinstance(node.value, str) and bool(_WORDS.search(node.value))
    if isinstance(node, ast.JoinedStr):
        shown = "".join(str(v.value) if isinstance(v, ast.Constant) else "{}" for v in node.values)
        return bool(_WORDS.search(shown))
    if isinstance(node, ast.BinOp):
        return is_sentence(node.left) or is_sentence(node.right)
    if isinstance(node, ast.BoolOp):
        return any(map(is_sentence, node.values))
    if isinstance(node, ast.IfExp):
        return is_sentence(node.body) or is_sentence(node.orelse)
    if isinstance(node, ast.Tuple | ast.List):
        return any(map(is_sentence, node.elts))
    if isinstance(node, ast.ListComp | ast.GeneratorExp):
        return is_sentence(node.elt)
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        return node.func.attr in ("format", "join") and is_sentence(node.func.value)
    return False


def told(tree: ast.AST, foreign: frozenset[str] = FOREIGN) -> Iterator[ast.expr]:
    """The expressions whose value people will read in a session."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            yield from (k.value for k in node.keywords if k.arg in FIELDS)
            if isinstance(node.func, ast.Attribute) and node.args:
                kind, owner = node.func.attr, name(node.func.value)
                if kind in ("append", "extend") and owner in LISTS:
                    yield node.args[0]
        elif isinstance(node, ast.Raise) and isinstance(node.exc, ast.Call) and node.exc.args:
            if name(node.exc.func) not in foreign:
                yield node.exc.args[0]
        elif isinstance(node, ast.Assign | ast.AnnAssign | ast.AugAssign) and node.value:
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            if any(name(target) in FIELDS | LISTS for target in targets):
                yield node.value
        elif isinstance(node, ast.FunctionDef) and _says(node):
            returns = (n for n in ast.walk(node) if isinstance(n, ast.Return))
            yield from (n.value for n in returns if n.value)


def _says(function: ast.FunctionDef) -> bool:
    """By the type of what it returns, or by its name."""
    made = ast.unparse(function.returns) if function.returns else ""
    named = re.search(r"unavailable|problem|reason|why|misfit|mismatch", function.name)
    return bool(named or re.search(r"\b(Text|Message)\b", made))


@pytest.mark.parametrize("file", files(STORED), ids=lambda f: str(f.relative_to(ROOT)))
def test_stored_texts_are_messages(file: Path) -> None:
    tree = ast.parse(file.read_text(encoding="utf-8"))
    plain = [f"line {n.lineno}: {ast.unparse(n)}" for n in told(tree) if is_sentence(n)]
    assert plain == [], "make it with messages.msg"


@pytest.mark.parametrize("file", files(REFUSING), ids=lambda f: str(f.relative_to(ROOT)))
def test_reasons_of_refusals_are_messages(file: Path) -> None:
    tree = ast.parse(file.read_text(encoding="utf-8"))
    plain = [f"line {n.lineno}" for n in told(tree, frozenset()) if is_sentence(n)]
    assert plain == [], "raise an error of ours, made with messages.msg"


def extracted() -> Iterator[tuple[str, ast.expr]]:
    """Where a text is given to one of the functions that extractors know, and the text."""
    for file in files((".",)):
        if file == ROOT / "messages.py":
            continue
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and name(node.func) in MAKERS:
                for text in node.args[: MAKERS[name(node.func)]]:
                    yield f"{file.relative_to(ROOT)}:{node.lineno}", text


def test_extractors_find_every_message() -> None:
    hidden = [
        where
        for where, text in extracted()
        if not (isinstance(text, ast.Constant) and isinstance(text.value, str))
    ]
    assert hidden == [], "a message's text is a literal"


@pytest.mark.parametrize("vocabulary", [Verdict, Status, Outcome])
def test_extractors_find_the_words_that_are_chosen_at_run_time(vocabulary: object) -> None:
    known = {text.value for _, text in extracted() if isinstance(text, ast.Constant)}
    assert set(get_args(vocabulary)) <= known


@pytest.mark.parametrize(
    ("code", "found"),
    [
        ('Finding(title=f"{a} takes much time")', True),
        ('Finding(title=msg("{a} takes much time", a=a))', False),
        ('row.warnings.append(f"noisy: {x} of it")', True),
        ('remarks.append("no loop found: " + why)', True),
        ('raise RunError("no such thing here")', True),
        ('raise RunError("no such {}".format(thing))', True),
        ('raise UsageError("no such thing here")', False),
        ('def why() -> Text | None:\n    return "no such thing"', True),
        ('def why() -> str:\n    return "no such thing"', True),
        ('def text() -> str:\n    return "no such thing"', False),
        ('reason = "it broke down" if x else ""', True),
        ('reason = f"{a} @ {b}"', False),
        ('lane.notes += ("only two rounds",)', True),
    ],
)
def test_the_check_itself(code: str, found: bool) -> None:
    assert any(is_sentence(node) for node in told(ast.parse(code))) == found
