"""The stubs in typings/ and the installed TVM say the same about every name that is in use."""

from __future__ import annotations

import ast
import importlib
import inspect
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tvmscope.runtime import tvm_compat

TYPINGS = Path(__file__).parents[2] / "typings"
STUBS = sorted(TYPINGS.rglob("*.pyi"))
WIDER = {
    "tvm.ir.expr.Expr.__int__": "a size; of anything but a constant it is a TypeError",
    "tvm.relax.Binding.value": "every kind of binding has one, their common class has not",
}
"""What the stubs allow beyond TVM's classes, and why."""


@pytest.fixture(scope="module", autouse=True)
def _tensor_intrinsics() -> None:
    tvm_compat.import_tensor_intrinsics()  # by itself the import takes half a minute


def _module_name(stub: Path) -> str:
    parts = stub.relative_to(TYPINGS).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


@pytest.mark.parametrize("stub", STUBS, ids=_module_name)
def test_every_name_of_a_stub_is_one_of_tvm(stub: Path) -> None:
    name = _module_name(stub)
    module = importlib.import_module(name)
    assert list(_differences(name, module, ast.parse(stub.read_text()).body)) == []


def test_every_exception_is_still_needed() -> None:
    for path in WIDER:
        owner, _, name = path.rpartition(".")
        package, _, owner_name = owner.rpartition(".")
        assert not hasattr(getattr(importlib.import_module(package), owner_name), name), path


def _differences(path: str, owner: Any, body: list[ast.stmt]) -> Iterator[str]:
    """Names that the owner, a module or a class, lacks; parameters that no function takes."""
    for node in body:
        match node:
            case ast.ImportFrom():  # one that is handed on
                names = [alias.asname for alias in node.names if alias.asname == alias.name]
            case ast.FunctionDef() | ast.ClassDef():
                names = [node.name]
            case ast.AnnAssign(target=ast.Name(id=name), annotation=annotation):
                names = [] if ast.unparse(annotation) == "TypeAlias" else [name]
            case _:
                continue
        for name in names:
            here = f"{path}.{name}"
            if here in WIDER:
                continue
            if not _has(owner, name):
                if name.startswith("_") and not name.startswith("__") and inspect.ismodule(owner):
                    continue  # a base that the stubs have for themselves
                yield f"{here} is not in TVM"
            elif isinstance(node, ast.ClassDef):
                yield from _differences(here, getattr(owner, name), node.body)
            elif isinstance(node, ast.FunctionDef):
                yield from _parameters(here, getattr(owner, name), node)


def _has(owner: Any, name: str) -> bool:
    """Also an attribute that instances get in their constructor, which a class does not have."""
    return hasattr(owner, name) or (inspect.isclass(owner) and _assigned(owner, name))


def _assigned(owner: type, name: str) -> bool:
    """Whether Python code of the class, or of one that it is made from, assigns it to `self`."""
    for base in owner.__mro__:
        try:
            source = inspect.getsource(base)
        except (OSError, TypeError):  # written in C
            continue
        if f"self.{name} =" in source or f"self.{name}:" in source or f"    {name}:" in source:
            return True
    return False


def _parameters(path: str, function: Any, node: ast.FunctionDef) -> Iterator[str]:
    try:
        taken = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):  # a property, or written in C
        return
    if any(p.kind in (p.VAR_KEYWORD, p.VAR_POSITIONAL) for p in taken):
        return
    known = {p.name for p in taken}
    written = [a.arg for a in (*node.args.args, *node.args.kwonlyargs) if a.arg != "self"]
    for name in written:
        if name not in known and not _is_operator(node.name):
            yield f"{path} does not take {name}: {sorted(known)}"
    needed = {p.name for p in taken if p.default is p.empty} - {"self", *written}
    if needed and not _is_operator(node.name):
        yield f"{path} needs {sorted(needed)}"


def _is_operator(name: str) -> bool:
    """These are called by position."""
    return name.startswith("__") and name != "__init__"
