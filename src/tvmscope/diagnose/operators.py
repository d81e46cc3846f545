"""Determines what a kernel computes from its name: TVM names kernels after the operators they
fuse."""

from __future__ import annotations

import re
from itertools import islice

_MOVEMENT = {
    "scatter": r"scatter(?:_nd|_elements|nd|_box|_rows|_copy|_each|_fold|_table|_places)?|"
    r"index_put|slice_scatter",
    "gather": r"gather(?:_nd|_elements|nd)?|take|index_tensor|embedding",
    "resize": r"resize[123]d|upsample|interpolate",
    "sort": r"argsort|sort|topk|nonzero|unique|cumsum",
    "transpose": r"transpose|permute(?:_dims)?|layout_transform|from_blocks|to_blocks",
    "copy": r"strided_slice|slice|concatenate|concat|split|stack|tile|repeat|pad|copy|flip|"
    r"expand_dims|squeeze|reshape|broadcast_to",
    "cast": r"cast|astype",
}
_ELEMENTWISE = (
    r"add|subtract|multiply|divide|relu|relu6|gelu|silu|sigmoid|tanh|exp|log|sqrt|rsqrt|power|"
    r"negative|abs|maximum|minimum|clip|erf|leaky_relu|prelu|hardswish|hardsigmoid|where|floor|"
    r"ceil|round|sin|cos|square|mod|less|greater|equal|less_equal|greater_equal|not_equal|"
    r"logical_and|logical_or|logical_not|full|full_like|zeros|ones|floor_divide|tir_[a-z]+"
)
_TVM_SCATTER = re.compile(r"(?:^|_)(?:scatter_(?:nd|elements)|index_put|slice_scatter)\d*(?:_|$)")
_FREE = ("transpose", "copy", "cast")
_MOST_WORDS = 3
"""The most words in an operator's name."""
_OPERATOR = re.compile(
    "|".join(
        f"(?P<{group}>(?:{words})\\d*)"
        for group, words in {**_MOVEMENT, "elementwise": _ELEMENTWISE}.items()
    )
)


def families(name: str) -> tuple[str, ...] | None:
    """Return the kind of each operator in a kernel's name, in order; None if one is heavier work.

    `fused_cast1_add_relu` is ("cast", "elementwise", "elementwise"); a convolution, a matmul or a
    reduction is heavier work.
    """
    rest = name.removeprefix("fused_").lower()
    found: list[str] = []
    while rest:
        match = _longest(rest)
        if match is None:
            return None
        found.append(match[0])
        rest = rest[match[1] :].removeprefix("_")
    return tuple(found)


def _longest(rest: str) -> tuple[str, int] | None:
    """Return the longest operator at the start of `rest` that ends at a word's end."""
    best: tuple[str, int] | None = None
    for end in (m.start() for m in islice(re.finditer(r"_|$", rest), _MOST_WORDS)):
        match = _OPERATOR.fullmatch(rest[:end])
        if match and match.lastgroup:
            best = match.lastgroup, end
    return best


def movement(name: str) -> str | None:
    """Return the family of a kernel that moves data; the costliest one of several.

    Elementwise work beside a scatter or a resize does not change what the kernel is. A transpose, a
    copy or a cast fused with elementwise work costs nothing extra: such a kernel moves data anyway.
    """
    found = families(name) or ()
    moves = sorted({f for f in found if f != "elementwise"}, key=list(_MOVEMENT).index)
    if not moves or (moves[0] in _FREE and "elementwise" in found):
        return None
    return moves[0]


def is_tvm_scatter(name: str) -> bool:
    """Whether a kernel has TVM's own scatter, which processes the indices one by one."""
    return _TVM_SCATTER.search(name) is not None


def is_elementwise(name: str) -> bool:
    """Whether every operator in the name is elementwise."""
    found = families(name)
    return bool(found) and all(f == "elementwise" for f in found or ())
