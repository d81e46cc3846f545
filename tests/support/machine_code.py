"""Reads the inner loops out of assembly that LLVM wrote: their multiply-adds, loads and stores."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

_LABEL = re.compile(r"(\.L\w+):")
_X86_JUMP = re.compile(r"\s+j\w+\s+(\.L\w+)")
_ARM_JUMP = re.compile(r"\s+(?:b\.\w+|cbn?z\s+\w+,|tbn?z\s+\w+, #\d+,|b)\s*(\.L\w+)")
_X86_FMA = re.compile(r"\s+vfn?m(?:add|sub)\d+ps\s")
_ARM_FMA = re.compile(r"\s+fml[as]\s+v\d+\.4s")
_X86_MEMORY = re.compile(r"-?\w*\([^)]*\)")
_X86_STORE = re.compile(r"\s+v\w+\s.*\)$")
_ARM_LOAD = re.compile(r"\s+(ldr|ldp|ld1r?|ldur)\s+(?:\{\s*)?([qvs]\d+)")
_ARM_STORE = re.compile(r"\s+(?:str|stp|stur)\s+[qvs]\d+")


@dataclass(frozen=True)
class Loop:
    """An innermost loop."""

    lines: tuple[str, ...]
    arm: bool

    @property
    def fmas(self) -> int:
        """Multiply-adds of vectors."""
        return sum(bool((_ARM_FMA if self.arm else _X86_FMA).match(line)) for line in self.lines)

    @property
    def loads(self) -> int:
        """Loads into vector registers, also those that are part of an arithmetic instruction."""
        return sum(self._loads(line) for line in self.lines)

    def _loads(self, line: str) -> int:
        if self.arm:
            found = _ARM_LOAD.match(line)
            return 0 if found is None else 2 if found[1] == "ldp" else 1
        name, _, operands = line.strip().partition("\t")
        memory = _X86_MEMORY.search(operands)
        stores = memory is not None and operands.endswith(memory[0])
        return int(name.startswith("v") and memory is not None and not stores)

    @property
    def stores(self) -> int:
        """Vector registers that are written to memory, also those that are spilled."""
        if self.arm:
            return sum(bool(_ARM_STORE.match(line)) for line in self.lines)
        return sum(bool(_X86_STORE.match(line)) for line in self.lines)

    @property
    def registers(self) -> set[str]:
        """The kinds of registers that multiply-adds name: xmm, ymm, zmm or v."""
        if self.arm:
            return {"v"} if self.fmas else set()
        fmas = (line for line in self.lines if _X86_FMA.match(line))
        return {kind for line in fmas for kind in re.findall(r"%([xyz]mm)", line)}


def inner_loops(assembly: str) -> list[Loop]:
    """The innermost loops with vector multiply-adds, in order."""
    arm = ".arch\tarmv8" in assembly or "aarch64" in assembly or "fmla" in assembly
    return [loop for loop in _innermost(assembly.splitlines(), arm) if loop.fmas]


def _innermost(lines: list[str], arm: bool) -> Iterator[Loop]:
    jump = _ARM_JUMP if arm else _X86_JUMP
    labels: dict[str, int] = {}
    last_end = -1
    for number, line in enumerate(lines):
        if label := _LABEL.match(line):
            labels[label[1]] = number
        elif (found := jump.match(line)) and found[1] in labels:
            start = labels[found[1]]
            if start > last_end:
                body = [text for text in lines[start + 1 : number + 1] if not _LABEL.match(text)]
                yield Loop(tuple(text for text in body if not text.lstrip().startswith(".")), arm)
            last_end = number
