"""Writes the IR after each phase or pass into a folder, and what each pass changed.

For each pass it writes three things: the module after it, a `.diff` of the functions that it
changed, and a section of `passes.md` with its sentence; without changes, only the section.
"""

from __future__ import annotations

import difflib
import re
from dataclasses import dataclass
from pathlib import Path

import tvm
import tvm_ffi

from tvmscope.messages import Text, msg, msgn, render, sentences, word
from tvmscope.quantities import format_s

INDEX = "passes.md"
_MOST_SHOWN = 40
"""Lines of a difference in the index; the whole one is in its own file."""
_CONSTANT = re.compile(r'metadata\["[\w.]*"\]\[\d+\]')
_LONGEST = 20_000
"""Lines of a function up to which it is compared: the comparison takes quadratic time."""


@dataclass(frozen=True)
class Ran:
    """A pass that has run."""

    phase: str
    name: str
    words: str
    """What the pass does to a model, in a sentence; empty if it has no description."""
    time_s: float


@dataclass(frozen=True)
class Difference:
    """The changes of a pass to the functions of a module."""

    added: tuple[str, ...]
    removed: tuple[str, ...]
    changed: tuple[str, ...]
    lines: tuple[str, ...]
    """A unified difference of all of them."""

    def __bool__(self) -> bool:
        return bool(self.added or self.removed or self.changed)

    @property
    def words(self) -> Text:
        """Which functions, and how many lines."""
        if not self:
            return msg("It changed nothing.")
        plus = sum(x.startswith("+") and not x.startswith("+++") for x in self.lines)
        minus = sum(x.startswith("-") and not x.startswith("---") for x in self.lines)
        return sentences(*(words for words in self._counted() if words), _lines(plus, minus))

    def _counted(self) -> tuple[Text, ...]:
        found: list[Text] = []
        if self.added:
            found.append(
                msgn(
                    "It added {count} function: {names}.",
                    "It added {count} functions: {names}.",
                    len(self.added),
                    names=self.added,
                )
            )
        if self.removed:
            found.append(
                msgn(
                    "It removed {count} function: {names}.",
                    "It removed {count} functions: {names}.",
                    len(self.removed),
                    names=self.removed,
                )
            )
        if self.changed:
            found.append(
                msgn(
                    "It changed {count} function: {names}.",
                    "It changed {count} functions: {names}.",
                    len(self.changed),
                    names=self.changed,
                )
            )
        return tuple(found)


def difference(before: tvm.IRModule, after: tvm.IRModule) -> Difference:
    """Return the changes by a pass, function by function."""
    old = {var.name_hint: func for var, func in before.functions_items()}
    new = {var.name_hint: func for var, func in after.functions_items()}
    added = tuple(sorted(new.keys() - old.keys()))
    removed = tuple(sorted(old.keys() - new.keys()))
    changed = tuple(
        name
        for name in sorted(new.keys() & old.keys())
        if not tvm_ffi.structural_equal(old[name], new[name])
    )
    lines: list[str] = []
    for name in (*changed, *removed, *added):
        lines += _compared(name, old.get(name), new.get(name))
    return Difference(added, removed, changed, tuple(lines))


def _compared(name: str, old: tvm.ir.BaseFunc | None, new: tvm.ir.BaseFunc | None) -> list[str]:
    one, other = ([] if func is None else _text(func) for func in (old, new))
    if max(len(one), len(other)) > _LONGEST:
        return [f"--- {name}", f"+++ {name}", "@@ too long to be compared @@"]
    return list(difflib.unified_diff(one, other, name, name, n=2, lineterm=""))


def _text(func: tvm.ir.BaseFunc) -> list[str]:
    """Return TVMScript, without the lines that say how to parse it.

    Constants lose their numbers: a removed one would change the line of every later one.
    """
    lines = _CONSTANT.sub("constant", func.script()).splitlines()
    return [line for line in lines if line and not line.startswith("# from")]


class PassDump:
    """A folder that receives the IR while a pipeline runs."""

    def __init__(self, folder: Path, *, each_pass: bool) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._folder, self._each_pass = folder, each_pass
        self._index = [f"# {render(msg('What each pass did'))}", ""]
        self._count = 0

    def begin(self, module: tvm.IRModule) -> None:
        """Write the module as it was imported."""
        if self._each_pass:
            self._write("imported", module)

    def passed(
        self, ran: Ran, before: tvm.IRModule, after: tvm.IRModule, *, ends_phase: bool
    ) -> None:
        """Write the state after a pass; without `each_pass` only at the end of its phase."""
        self._count += 1
        if not self._each_pass:
            if ends_phase:
                self._write(ran.phase, after)
            return
        found = difference(before, after)
        if found:
            self._write(ran.name, after)
            file = self._folder / f"{self._stem(ran.name)}.diff"
            file.write_text("\n".join(found.lines) + "\n", encoding="utf-8")
        self._index += self._section(ran, found)
        text = "\n".join(self._index) + "\n"  # after each pass: the next one may fail
        (self._folder / INDEX).write_text(text, encoding="utf-8")

    def _section(self, ran: Ran, found: Difference) -> list[str]:
        shown = list(found.lines[:_MOST_SHOWN])
        lines = [f"## {self._stem(ran.name)} ({ran.phase}, {format_s(ran.time_s)})", ""]
        lines += [f"{render(_sentence(ran))} {render(found.words)}", ""]
        if shown:
            lines += ["```diff", *shown, "```", ""]
        if more := len(found.lines) - len(shown):
            rest = msgn(
                "{count} more line: {file}",
                "{count} more lines: {file}",
                more,
                file=f"{self._stem(ran.name)}.diff",
            )
            lines += [render(rest), ""]
        return lines

    def _write(self, name: str, module: tvm.IRModule) -> None:
        file = self._folder / f"{self._stem(name)}.py"
        file.write_text(module.script(), encoding="utf-8")

    def _stem(self, name: str) -> str:
        return f"{self._count:02d}-{name}"


def _sentence(ran: Ran) -> Text:
    """Return the manifest's words, which are translated with the manifests."""
    return word(ran.words) if ran.words else msg("A pass of the user's own pipeline.")


def _lines(plus: int, minus: int) -> Text:
    return msg("Lines: +{plus} -{minus}.", plus=plus, minus=minus)
