"""Describes a schedule's trace: what each primitive did to which loop or stage of a kernel.

A trace is a list of Python calls on generated names (`l32, l33 = sch.split(loop=l27, ...)`). A
stage is shown by its name or its number, a loop by its stage and its number (2.4: the fourth loop
of stage 2), the parts of a split loop with letters (2.4a, 2.4b), joined loops with a sign between.
"""

from __future__ import annotations

import ast
import re
import string
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from tvmscope.messages import _, marked

Names = dict[str, str]
"""The displayed text of each name in the trace."""
_JOIN = "+"
_CHINESE_GAP = re.compile(r" (?=[\u4e00-\u9fff])|(?<=[\u4e00-\u9fff]) ")
"""The space between a Chinese word and a number, which a label does without."""


def in_words(trace: Iterable[str]) -> list[str]:
    """Return one sentence per primitive that changed something; unparsed lines are unchanged."""
    names: Names = {}
    sentences = []
    for line in trace:
        call = _parse(line)
        if call is None:
            sentences.append(line.strip())
            continue
        if call.is_note_to_the_search:
            continue
        sentence = _apply(call, names)
        if sentence is not None:
            sentences.append(sentence)
    return sentences


class _Call:
    """`a, b = sch.primitive(argument, key=value)`, with its parts by name."""

    def __init__(self, primitive: str, call: ast.Call, results: list[str]) -> None:
        self.primitive = primitive
        self.results = results
        self.positional = [_value(a) for a in call.args]
        self.named = {k.arg: _value(k.value) for k in call.keywords if k.arg}

    @property
    def is_note_to_the_search(self) -> bool:
        """Whether it annotates something for MetaSchedule's later steps, which then apply it."""
        key = str(self.get("ann_key", 1))
        return self.primitive.endswith("annotate") and key.startswith("meta_schedule.")

    def get(self, key: str, position: int = 0) -> Any:
        """Return an argument by its name, or by its index if it was given without one."""
        if key in self.named:
            return self.named[key]
        return self.positional[position] if position < len(self.positional) else None


def _parse(line: str) -> _Call | None:
    try:
        statement = ast.parse(line.strip()).body[0]
    except (SyntaxError, ValueError, IndexError, RecursionError, MemoryError):
        return None  # not the form that TVM writes
    value = getattr(statement, "value", None)
    if not isinstance(value, ast.Call) or not isinstance(value.func, ast.Attribute):
        return None
    results: list[str] = []
    if isinstance(statement, ast.Assign):
        target = statement.targets[0]
        parts = target.elts if isinstance(target, ast.Tuple) else [target]
        results = [p.id for p in parts if isinstance(p, ast.Name)]
    return _Call(value.func.attr, value, results)


def _value(node: ast.expr) -> Any:
    """Return a constant, a name as text, or a list of them."""
    if isinstance(node, ast.List | ast.Tuple):
        return [_value(e) for e in node.elts]
    if isinstance(node, ast.Name):
        return node.id
    return node.value if isinstance(node, ast.Constant) else ast.unparse(node)


def _apply(call: _Call, names: Names) -> str | None:
    """Name the results, and describe the effect; None for a primitive that changes nothing."""
    namer = _NAMERS.get(call.primitive, _name_plainly)
    namer(call, names)
    if call.primitive in _LOOKS:
        return None
    if call.primitive in ("fuse", "reorder") and len(call.positional) < 2:
        return None  # generic schedules write these without effect
    make = _SENTENCES.get(call.primitive)
    if make is None:
        given = [*call.positional, *(f"{k}={v}" for k, v in call.named.items())]
        return f"{call.primitive}({', '.join(_shown(names, g) for g in given)})"
    return make(call, names)


def _shown(names: Names, value: Any) -> str:
    if isinstance(value, list):
        return ", ".join(_shown(names, v) for v in value)
    return names.get(value, value) if isinstance(value, str) else str(value)


# ---- names of the results --------------------------------------------------------------------


def _name_plainly(call: _Call, names: Names) -> None:
    for result in call.results:
        names.setdefault(result, result)


def _name_block(call: _Call, names: Names) -> None:
    _name_plainly(call, names)
    if call.results and isinstance(call.get("name"), str):
        names[call.results[0]] = str(call.get("name"))


def _name_children(call: _Call, names: Names) -> None:
    for index, result in enumerate(call.results, start=1):
        names[result] = _("stage {n}").format(n=index)


def _name_neighbours(text: str) -> Callable[[_Call, Names], None]:
    def name(call: _Call, names: Names) -> None:
        for result in call.results:
            names[result] = _(text).format(stage=_shown(names, call.get("block")))

    return name


def _name_loops(call: _Call, names: Names) -> None:
    stage = _shown(names, call.get("block"))
    stage = stage.removeprefix(_("stage {n}").format(n="")).removeprefix(_("the "))
    stage = _CHINESE_GAP.sub("", stage).replace(" ", "-")
    for index, result in enumerate(call.results, start=1):
        names[result] = f"{stage}.{index}"


def _name_parts(call: _Call, names: Names) -> None:
    loop = _shown(names, call.get("loop"))
    loop = f"({loop})" if _JOIN in loop else loop
    for letter, result in zip(string.ascii_lowercase, call.results, strict=False):
        names[result] = loop + letter


def _name_joined(call: _Call, names: Names) -> None:
    for result in call.results:
        names[result] = _JOIN.join(_shown(names, loop) for loop in call.positional)


def _name_decision(call: _Call, names: Names) -> None:
    """Show the value that a search chose instead of the name of the choice."""
    decision = call.named.get("decision")
    chosen = decision if isinstance(decision, list) else [decision]
    for result, value in zip(call.results, chosen, strict=False):
        names[result] = str(value)
    _name_plainly(call, names)


_NAMERS: Mapping[str, Callable[[_Call, Names], None]] = {
    "get_sblock": _name_block,
    "get_block": _name_block,
    "get_child_blocks": _name_children,
    "get_producers": _name_neighbours(marked("the input of {stage}")),
    "get_loops": _name_loops,
    "split": _name_parts,
    "fuse": _name_joined,
    "cache_read": _name_neighbours(marked("the read cache of {stage}")),
    "cache_write": _name_neighbours(marked("the write cache of {stage}")),
    "decompose_reduction": _name_neighbours(marked("the zeroing of {stage}")),
    "rfactor": _name_neighbours(marked("the partial sums of {stage}")),
    "blockize": _name_neighbours(marked("the tile of {stage}")),
    "sample_perfect_tile": _name_decision,
    "sample_categorical": _name_decision,
    "sample_compute_location": _name_decision,
}

# ---- descriptions ----------------------------------------------------------------------------


def _say(text: str, *keys: str) -> Callable[[_Call, Names], str]:
    """Make a sentence with arguments in it, each by its own name."""

    def sentence(call: _Call, names: Names) -> str:
        return _(text).format(
            **{key: _shown(names, call.get(key, index)) for index, key in enumerate(keys)}
        )

    return sentence


def _split(call: _Call, names: Names) -> str:
    factors = call.get("factors", 1) or []
    sizes = [_("the rest") if f is None else _shown(names, f) for f in factors]
    text = _("split loop {loop} into {sizes}: work goes tile by tile")
    return text.format(loop=_shown(names, call.get("loop")), sizes=" x ".join(sizes))


def _fuse(call: _Call, names: Names) -> str:
    loops = _(" and ").join(_shown(names, loop) for loop in call.positional)
    return _("joined loops {loops}: more iterations to distribute").format(loops=loops)


def _reorder(call: _Call, names: Names) -> str:
    loops = " > ".join(_shown(names, loop) for loop in call.positional)
    return _("ordered the loops from outside to inside: {loops}").format(loops=loops)


_LOOKS = frozenset(
    {
        "get_sblock", "get_block", "get_child_blocks", "get_loops", "get_producers",
        "get_consumers", "get_output_blocks", "sample_perfect_tile", "sample_categorical",
        "sample_compute_location", "enter_postproc",
    }
)  # fmt: skip
"""Primitives that find or choose something, and change nothing."""

_SENTENCES: Mapping[str, Callable[[_Call, Names], str]] = {
    "split": _split,
    "fuse": _fuse,
    "reorder": _reorder,
    "parallel": _say(marked("ran loop {loop} in parallel on all threads"), "loop"),
    "vectorize": _say(marked("computed loop {loop} in vector registers"), "loop"),
    "unroll": _say(marked("unrolled loop {loop}: values stay in registers"), "loop"),
    "bind": _say(marked("spread loop {loop} over the GPU's {thread_axis}"), "loop", "thread_axis"),
    "compute_inline": _say(
        marked("computed {block} where it is used: it needs no buffer"), "block"
    ),
    "reverse_compute_inline": _say(marked("computed {block} where its input is made"), "block"),
    "compute_at": _say(
        marked("computed {block} inside loop {loop}, just before it is used"), "block", "loop"
    ),
    "reverse_compute_at": _say(
        marked("computed {block} inside loop {loop}, while its input is still in the cache"),
        "block", "loop",
    ),
    "decompose_reduction": _say(
        marked("set the sums of {block} to zero before loop {loop}, not inside it"), "block", "loop"
    ),
    "rfactor": _say(marked("gave each iteration of loop {loop} a partial sum of its own"), "loop"),
    "cache_read": _say(
        marked("read an input of {block} through a copy in {storage_scope}"), "block",
        "read_buffer_index", "storage_scope",
    ),
    "cache_write": _say(
        marked("collected the result of {block} in {storage_scope}"), "block", "write_buffer_index",
        "storage_scope",
    ),
    "set_scope": _say(
        marked("moved a buffer of {block} to {storage_scope}"), "block", "buffer_index",
        "storage_scope",
    ),
    "tensorize": _say(
        marked("replaced {block_or_loop} by the instruction {tensor_intrin}"), "block_or_loop",
        "tensor_intrin",
    ),
    "blockize": _say(marked("turned the loops below {target} into one tile"), "target"),
    "transform_layout": _say(marked("changed the data layout of {block}"), "block"),
    "transform_block_layout": _say(marked("re-indexed the iterations of {block}"), "block"),
    "storage_align": _say(marked("padded rows of {block} against bank conflicts"), "block"),
    "pad_einsum": _say(marked("padded {block} to whole tiles: {padding}"), "block", "padding"),
    "annotate": _say(
        marked("annotated {block_or_loop} with {ann_key} = {ann_val}"), "block_or_loop", "ann_key",
        "ann_val",
    ),
}  # fmt: skip
