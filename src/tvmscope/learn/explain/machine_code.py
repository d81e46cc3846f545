"""Reads a kernel's assembly: finds the loop with the arithmetic, and counts its instructions."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from tvmscope.learn.facts import HotLoop

_LABEL = re.compile(r"^([.\w$]+):")
_JUMP = re.compile(r"^(?:j\w+|b|b\.\w+|cbn?z|tbn?z)$")
_FUSED = re.compile(r"^v?fn?m(?:add|sub)\w*?(p|s)([sdh])$")
_PLAIN = re.compile(r"^v?(?:add|sub|mul|max|min|div)(p|s)([sdh])$")
_DOT = re.compile(r"^vpdp|^vdpbf16ps|^[su]dot$|^bfdot$")
_ARM = re.compile(r"^(fmla|fmls|fmul|fadd|fsub|fmadd|fmax\w*|fmin\w*)$")
_SHUFFLE = re.compile(
    r"^v?(?:perm|unpck|shuf|insert|extract|blend|p?align|palign)|^(?:zip|uzp|trn)"
)
_GATHER = re.compile(r"^vp?gather")
_WIDTHS = {"zmm": 512, "ymm": 256, "xmm": 128}
_BITS = {"s": 32, "d": 64, "h": 16}


@dataclass(frozen=True)
class _Line:
    mnemonic: str
    operands: str

    @property
    def text(self) -> str:
        return f"{self.mnemonic} {self.operands}".strip()


def hot_loop(assembly: str) -> HotLoop | None:
    """The innermost loop with the most arithmetic per turn; None where there is no arithmetic.

    LLVM often makes two loops of a sum: one for its first term, one for the others, which also
    reads what was summed so far. Both have the same arithmetic; the one that reads more runs more.
    """
    found = [_count(lines) for lines in _innermost(assembly)]
    best = max(found, key=lambda loop: (loop.flops, loop.math, loop.loads), default=None)
    return best if best is not None and best.math else None


def same_code(a: str, b: str) -> bool:
    """Whether two kernels have the same instructions, ignoring their labels and names."""
    return _instructions(a) == _instructions(b)


def _instructions(assembly: str) -> list[str]:
    return [
        re.sub(r"\.?L?[A-Za-z_]\w*\(%rip\)|\.L\w+", "", line.text)
        for _, line in _numbered(assembly)
        if isinstance(line, _Line)
    ]


def _numbered(assembly: str) -> Iterator[tuple[int, _Line | str]]:
    """Yield instructions and labels in order, without comments, directives and debug data."""
    for place, raw in enumerate(assembly.splitlines()):
        line = raw.split("#")[0].rstrip() if "%" in raw else raw.split("//")[0].rstrip()
        if match := _LABEL.match(line):
            yield place, match[1]
        elif line.startswith(("\t", " ")) and not line.strip().startswith("."):
            mnemonic, _, operands = line.strip().partition("\t")
            if not operands:
                mnemonic, _, operands = line.strip().partition(" ")
            if mnemonic:
                yield place, _Line(mnemonic, operands.strip())


def _innermost(assembly: str) -> Iterator[list[_Line]]:
    """Yield loops without an inner loop; a function without any loop counts as one."""
    items = list(_numbered(assembly))
    labels = {item: at for at, (_, item) in enumerate(items) if isinstance(item, str)}
    spans = []
    for at, (_, item) in enumerate(items):
        if isinstance(item, _Line) and _JUMP.match(item.mnemonic):
            start = labels.get(item.operands.split(",")[-1].strip())
            if start is not None and start < at:
                spans.append((start, at))
    inner = [s for s in spans if not any(o != s and s[0] <= o[0] and o[1] <= s[1] for o in spans)]
    for start, end in inner or [(0, len(items) - 1)]:
        yield [item for _, item in items[start : end + 1] if isinstance(item, _Line)]


def _count(lines: Sequence[_Line]) -> HotLoop:
    vector = scalar = loads = stores = spills = gathers = shuffles = 0
    widest, flops, sums = 0, 0.0, set()
    for line in lines:
        parts = _operands(line.operands)
        reads, writes = _memory(line.mnemonic, parts)
        loads, stores = loads + reads, stores + writes
        spills += (reads + writes) if _on_stack(line.operands) else 0
        gathers += bool(_GATHER.match(line.mnemonic))
        shuffles += bool(_SHUFFLE.match(line.mnemonic))
        width, work, accumulates = _arithmetic(line)
        if not work:
            continue
        vector, scalar = vector + (width > 0), scalar + (width == 0)
        widest, flops = max(widest, width), flops + work
        if accumulates and parts:
            sums.add(parts[0] if _is_arm(line) else parts[-1])
    return HotLoop(
        instructions=len(lines),
        vector_math=vector,
        scalar_math=scalar,
        vector_bits=widest,
        loads=loads,
        stores=stores,
        spills=spills,
        gathers=gathers,
        shuffles=shuffles,
        sums=len(sums),
        flops=flops,
        text=tuple(line.text for line in lines),
    )


def _is_arm(line: _Line) -> bool:
    return "%" not in line.operands and bool(re.search(r"\b[vszdxw]\d+\b", line.operands))


def _arithmetic(line: _Line) -> tuple[int, float, bool]:
    """Return the bits of the vector (0: a scalar), the flops, and whether it accumulates."""
    if _is_arm(line):
        if not _ARM.match(line.mnemonic):
            return 0, 0.0, False
        adds_up = line.mnemonic in ("fmla", "fmls", "fmadd")
        lanes = re.search(r"\.(\d+)([sdh])\b", line.operands)
        count = int(lanes[1]) if lanes else 1
        return (128 if lanes else 0), count * (2.0 if adds_up else 1.0), adds_up
    if _DOT.match(line.mnemonic):
        width = _width(line.operands)
        return width, width / 32 * 8.0, True
    fused, plain = _FUSED.match(line.mnemonic), _PLAIN.match(line.mnemonic)
    match = fused or plain
    if match is None:
        return 0, 0.0, False
    width = _width(line.operands) if match[1] == "p" else 0
    lanes_of = width / _BITS[match[2]] if width else 1.0
    adds = "add" in line.mnemonic
    return width, lanes_of * (2.0 if fused else 1.0), bool(fused) or adds


def _width(operands: str) -> int:
    return max((bits for name, bits in _WIDTHS.items() if f"%{name}" in operands), default=0)


def _operands(text: str) -> list[str]:
    """Split at commas outside brackets."""
    return [part.strip() for part in re.split(r",(?![^(\[{]*[)\]}])", text) if part.strip()]


def _memory(mnemonic: str, parts: Sequence[str]) -> tuple[int, int]:
    """Return the reads and writes of memory."""
    if mnemonic.startswith(("lea", "nop", "prefetch", "prfm", "j", "call")):
        return 0, 0
    if any(re.search(r"\[(?:x|sp)", part) for part in parts):
        store = mnemonic.startswith("st")
        return int(not store), int(store)
    inside = ["(" in part for part in parts]
    if not any(inside):
        return 0, 0
    is_move = re.match(r"v?mov|vextract|push", mnemonic) is not None
    if inside[-1] and is_move:
        return 0, 1
    return 1, int(inside[-1] and not mnemonic.startswith(("cmp", "test", "vucom")))


def _on_stack(operands: str) -> bool:
    return bool(re.search(r"\(%rsp|\[sp", operands))
