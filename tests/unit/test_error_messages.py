"""Errors of this package are made of messages: data that can be stored and translated."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Iterator
from pathlib import Path

import pytest

import tvmscope
from tvmscope import errors
from tvmscope.errors import TvmscopeError
from tvmscope.messages import did_you_mean

ROOT = Path(tvmscope.__file__).parent
BELOW = ("errors.py",)
"""What `messages` itself is made of."""


def our_errors() -> set[str]:
    """The names of all error classes, also of those that are defined beside what raises them."""
    known = {
        name
        for name, value in inspect.getmembers(errors, inspect.isclass)
        if issubclass(value, TvmscopeError)
    }
    classes = [
        (node.name, {base.id for base in node.bases if isinstance(base, ast.Name)})
        for _file, tree in trees()
        for node in ast.walk(tree)
        if isinstance(node, ast.ClassDef)
    ]
    while more := {name for name, bases in classes if bases & known} - known:
        known |= more
    return known


def trees() -> Iterator[tuple[Path, ast.Module]]:
    for file in sorted(ROOT.rglob("*.py")):
        if file.name not in BELOW:
            yield file, ast.parse(file.read_text(encoding="utf-8"))


def raw_text(node: ast.expr) -> bool:
    """Whether an argument is words of ours that no catalogue could translate."""
    if isinstance(node, ast.Constant):
        return isinstance(node.value, str)
    if isinstance(node, ast.BinOp):
        return raw_text(node.left) or raw_text(node.right)
    if isinstance(node, ast.IfExp):
        return raw_text(node.body) or raw_text(node.orelse)
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        return node.func.attr == "format"
    return isinstance(node, ast.JoinedStr)


def untranslatable(tree: ast.AST, names: set[str]) -> list[int]:
    """The lines where an error is made of a plain text."""
    return [
        node.lineno
        for node in ast.walk(tree)
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Name)
        and node.func.id in names
        and any(raw_text(argument) for argument in node.args)
    ]


def test_every_error_is_made_of_a_message() -> None:
    names = our_errors()
    assert {"UsageError", "NoTracker", "WorkerDied"} <= names
    found = [
        f"{file.relative_to(ROOT)}:{line}"
        for file, tree in trees()
        for line in untranslatable(tree, names)
    ]
    assert not found, f"write msg('... {{name}} ...', name=...) instead of a plain text: {found}"


def flattened(tree: ast.AST, names: set[str]) -> list[int]:
    """The lines where a caught error of ours becomes a plain text: its message would be lost."""
    found = []
    for handler in ast.walk(tree):
        if not isinstance(handler, ast.ExceptHandler) or not handler.name or not handler.type:
            continue
        caught = {getattr(n, "id", "") for n in ast.walk(handler.type)}
        for node in ast.walk(handler) if caught & names else ():
            whole = isinstance(node, ast.Call) and getattr(node.func, "id", "") == "str"
            part = node.args[0] if whole and node.args else getattr(node, "value", None)
            if (whole or isinstance(node, ast.FormattedValue)) and (
                getattr(part, "id", "") == handler.name
            ):
                found.append(node.lineno)
    return found


def test_errors_are_passed_on_with_their_messages() -> None:
    names = our_errors()
    found = [
        f"{file.relative_to(ROOT)}:{line}"
        for file, tree in trees()
        for line in flattened(tree, names)
    ]
    assert not found, f"write e.message, or one_line(e): str(e) cannot be translated: {found}"


@pytest.mark.parametrize(
    ("code", "seen"),
    [
        ("f(reason=str(e))", True), ("f(f'no: {e}')", True), ("f(reason=e.message)", False),
        ("f(reason=one_line(e))", False), ("f(str(x))", False),
    ],
)  # fmt: skip
@pytest.mark.parametrize("caught", ["UsageError", "(OSError, UsageError)"])
def test_flattened_errors_are_seen(code: str, seen: bool, caught: str) -> None:
    tree = ast.parse(f"try: g()\nexcept {caught} as e: {code}")
    assert bool(flattened(tree, {"UsageError"})) == seen
    assert not flattened(tree, {"TuneError"})


@pytest.mark.parametrize(
    "code",
    [
        "raise UsageError(f'no file {x}')", "raise UsageError('no file')",
        "raise UsageError('no ' + x)", "raise UsageError(_('no {x}').format(x=x))",
        "raise UsageError(f'{x}' if x else y)",
    ],
)  # fmt: skip
def test_plain_texts_are_seen(code: str) -> None:
    assert untranslatable(ast.parse(code), {"UsageError"}) == [1]


@pytest.mark.parametrize(
    "code",
    ["raise UsageError(msg('no file {x}', x=f'{y}.onnx'))", "raise UsageError(reason)",
     "raise ValueError('no file')"],
)  # fmt: skip
def test_messages_and_foreign_errors_are_let_through(code: str) -> None:
    assert untranslatable(ast.parse(code), {"UsageError"}) == []


def test_near_names_become_a_question() -> None:
    assert did_you_mean([]) == ""
    assert did_you_mean(["a"]) == "; did you mean a?"
    assert did_you_mean(["a", "b", "c"]) == "; did you mean a or b or c?"
