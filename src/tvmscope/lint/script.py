"""A parsed script: the meaning of its names, its calls, and the parts that it times."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tvmscope.errors import UsageError
from tvmscope.messages import msg

CLOCKS = ("time.time", "time.perf_counter", "time.perf_counter_ns", "time.monotonic",
          "time.time_ns", "time.process_time", "timeit.default_timer")  # fmt: skip


@dataclass(frozen=True)
class Call:
    """A call with the full name of the callee."""

    path: str
    node: ast.Call

    @property
    def line(self) -> int:
        return self.node.lineno

    def argument(self, name: str, position: int | None = None) -> ast.expr | None:
        """Return an argument by its name, or by its position."""
        named = next((k.value for k in self.node.keywords if k.arg == name), None)
        if named is not None or position is None or position >= len(self.node.args):
            return named
        return self.node.args[position]


@dataclass(frozen=True)
class Region:
    """Statements between two readings of a clock."""

    line: int
    calls: tuple[Call, ...]
    repeats: int | None
    """The iterations of the loop around the timed calls; None if the number is not known."""


@dataclass
class Script:
    """The facts about a script that rules use."""

    path: Path
    tree: ast.Module
    names: dict[str, str] = field(default_factory=dict)
    """The meaning of a name: an imported path, or the call that made it."""
    constants: dict[str, object] = field(default_factory=dict)
    calls: list[Call] = field(default_factory=list)
    imports: list[tuple[str, int]] = field(default_factory=list)
    uses: list[tuple[str, int]] = field(default_factory=list)
    """Every dotted name that is read, with its line."""
    regions: list[Region] = field(default_factory=list)

    @property
    def uses_tvm(self) -> bool:
        roots = {name.partition(".")[0] for name, _ in self.imports}
        return bool(roots & {"tvm", "nnvm", "topi", "vta"})

    def resolve(self, node: ast.expr) -> str:
        """Return the full name of an expression: `relay.build` is `tvm.relay.build`."""
        if isinstance(node, ast.Name):
            return self.names.get(node.id, node.id)
        if isinstance(node, ast.Attribute):
            return f"{self.resolve(node.value)}.{node.attr}"
        if isinstance(node, ast.Call):
            return f"{self.resolve(node.func)}()"
        if isinstance(node, ast.Subscript):
            return f"{self.resolve(node.value)}[]"
        return "?"

    def value(self, node: ast.expr | None) -> object:
        """Return a constant, or a name or dictionary of constants; None for anything else."""
        if isinstance(node, ast.Constant):
            return node.value
        if isinstance(node, ast.Name):
            return self.constants.get(node.id)
        if isinstance(node, ast.Dict):
            return {
                self.value(k): self.value(v) for k, v in zip(node.keys, node.values, strict=True)
            }
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
            inner = self.value(node.operand)
            return -inner if isinstance(inner, int | float) else None
        return None

    def text_has(self, *words: str) -> bool:
        """Whether a name, an attribute or a string of the script contains any of the words."""
        return any(word in text for text in self._texts() for word in words)

    def _texts(self) -> Iterator[str]:
        for node in ast.walk(self.tree):
            if isinstance(node, ast.Attribute):
                yield node.attr
            elif isinstance(node, ast.Name):
                yield node.id
            elif isinstance(node, ast.alias):
                yield node.name
            elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                yield node.value


def parse(file: Path) -> Script:
    """Read a script; it is not run."""
    try:
        tree = ast.parse(file.read_bytes(), filename=str(file))
    except OSError as e:
        reason = e.strerror or str(e)
        raise UsageError(msg("{file} cannot be read: {reason}", file=file, reason=reason)) from e
    except (SyntaxError, ValueError, RecursionError, MemoryError) as e:
        reason = str(e)
        raise UsageError(msg("{file} is not Python: {reason}", file=file, reason=reason)) from e
    script = Script(path=file, tree=tree)
    _read(script, tree.body)
    return script


def _read(script: Script, body: Sequence[ast.stmt]) -> None:
    """Read statements in order, so that a name has its latest meaning."""
    for statement in body:
        _imports(script, statement)
        for node in _expressions(statement):
            _expression(script, node)
        _assignment(script, statement)
        for block in _blocks(statement):
            _read(script, block)
    script.regions += list(_regions(script, body))


def _imports(script: Script, s: ast.stmt) -> None:
    if isinstance(s, ast.Import):
        for alias in s.names:
            script.imports.append((alias.name, s.lineno))
            root = alias.name.partition(".")[0]
            script.names[alias.asname or root] = alias.name if alias.asname else root
    elif isinstance(s, ast.ImportFrom) and s.module and not s.level:
        for alias in s.names:
            path = f"{s.module}.{alias.name}"
            script.imports.append((path, s.lineno))
            script.names[alias.asname or alias.name] = path


def _blocks(s: ast.stmt) -> Iterator[list[ast.stmt]]:
    for name in ("body", "orelse", "finalbody"):
        found = getattr(s, name, None)
        if isinstance(found, list):
            yield found
    for handler in getattr(s, "handlers", ()):
        yield handler.body


def _expressions(s: ast.stmt) -> Iterator[ast.expr]:
    """Yield the expressions of a statement itself, without those of statements inside it."""
    for _, value in ast.iter_fields(s):
        items = value if isinstance(value, list) else [value]
        for item in items:
            if isinstance(item, ast.expr):
                yield from (n for n in ast.walk(item) if isinstance(n, ast.expr))
            elif isinstance(item, ast.withitem):
                yield from (n for n in ast.walk(item.context_expr) if isinstance(n, ast.expr))


def _expression(script: Script, node: ast.expr) -> None:
    if isinstance(node, ast.Call):
        script.calls.append(Call(script.resolve(node.func), node))
    elif isinstance(node, ast.Attribute | ast.Name):
        script.uses.append((script.resolve(node), node.lineno))


def _assignment(script: Script, s: ast.stmt) -> None:
    if isinstance(s, ast.With):
        pairs = [(i.optional_vars, i.context_expr) for i in s.items if i.optional_vars is not None]
    elif isinstance(s, ast.Assign) and len(s.targets) == 1:
        pairs = [(s.targets[0], s.value)]
    else:
        return
    for target, value in pairs:
        if isinstance(target, ast.Name):
            script.constants[target.id] = script.value(value)
            if isinstance(value, ast.Call | ast.Subscript | ast.Attribute):
                script.names[target.id] = script.resolve(value)
            else:
                script.names.pop(target.id, None)


# ---- timed regions -----------------------------------------------------------------------------


def _regions(script: Script, body: Sequence[ast.stmt]) -> Iterator[Region]:
    start: int | None = None
    for place, statement in enumerate(body):
        if not _reads_clock(script, statement):
            continue
        if start is not None and start + 1 < place:
            timed = body[start + 1 : place]
            calls = tuple(c for s in timed for c in _calls_in(script, s))
            yield Region(body[start].lineno, calls, _repeats(script, timed))
        start = place


def _reads_clock(script: Script, s: ast.stmt) -> bool:
    if next(_blocks(s), None) is not None:
        return False
    nodes = (n for n in ast.walk(s) if isinstance(n, ast.Call))
    return any(script.resolve(n.func) in CLOCKS for n in nodes)


def _calls_in(script: Script, s: ast.stmt) -> Iterator[Call]:
    for node in ast.walk(s):
        if isinstance(node, ast.Call):
            yield Call(script.resolve(node.func), node)


def _repeats(script: Script, timed: Sequence[ast.stmt]) -> int | None:
    loops = [s for s in timed if isinstance(s, ast.For)]
    if not loops:
        return 1
    turns = loops[0].iter
    if isinstance(turns, ast.Call) and script.resolve(turns.func) == "range" and turns.args:
        count = script.value(turns.args[-1] if len(turns.args) < 3 else turns.args[1])
        return count if isinstance(count, int) else None
    return None
