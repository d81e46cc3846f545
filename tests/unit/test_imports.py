"""No module of the package needs itself: its imports, also those in functions, have no cycle."""

from __future__ import annotations

from collections.abc import Mapping

import grimp
import pytest

Graph = Mapping[str, set[str]]


def cycles(imports: Graph) -> list[list[str]]:
    """Groups of modules that import each other, directly or through others (Tarjan's algorithm)."""
    number: dict[str, int] = {}
    lowest: dict[str, int] = {}
    waiting: list[str] = []
    found: list[list[str]] = []

    def visit(module: str) -> None:
        number[module] = lowest[module] = len(number)
        waiting.append(module)
        for imported in sorted(imports[module]):
            if imported not in number:
                visit(imported)
                lowest[module] = min(lowest[module], lowest[imported])
            elif imported in waiting:
                lowest[module] = min(lowest[module], number[imported])
        if lowest[module] == number[module]:
            start = waiting.index(module)
            group = sorted(waiting[start:])
            del waiting[start:]
            if len(group) > 1:
                found.append(group)

    for module in sorted(imports):
        if module not in number:
            visit(module)
    return found


def test_the_package_has_no_import_cycle() -> None:
    graph = grimp.build_graph("tvmscope", cache_dir=None)
    imports = {m: graph.find_modules_directly_imported_by(m) for m in graph.modules}
    assert len(imports) > 300
    assert cycles(imports) == []


@pytest.mark.parametrize(
    "imports, expected",
    [
        ({"a": {"b"}, "b": set()}, []),
        ({"a": {"b"}, "b": {"a"}}, [["a", "b"]]),
        ({"a": {"b"}, "b": {"c"}, "c": {"a"}, "d": {"a"}}, [["a", "b", "c"]]),
        ({"a": {"c"}, "b": {"c"}, "c": set()}, []),
    ],
)
def test_a_cycle_is_found(imports: Graph, expected: list[list[str]]) -> None:
    assert cycles(imports) == expected
