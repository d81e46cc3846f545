"""Queries about a kernel's loop nest."""

from __future__ import annotations

import math
from collections.abc import Iterator

from tvmscope.core.profile import KernelIR, Loop

Path = tuple[Loop, ...]
_BLOCKS = ("blockIdx.x", "blockIdx.y", "blockIdx.z")
_TENSOR_WORDS = ("wmma", "mma_sync", "ptx_mma", "ldmatrix", "tensorize")


def statements(tree: tuple[Loop, ...], above: Path = ()) -> Iterator[tuple[Path, Loop]]:
    """Yield every statement with the loops around it, outermost first."""
    for node in tree:
        if node.extent is None and not node.body:
            yield above, node
        else:
            yield from statements(node.body, above if node.extent is None else (*above, node))


def hottest(ir: KernelIR) -> Path:
    """Return the loops around the statement that runs most often; the first one of equals."""
    paths = [path for path, _ in statements(ir.tree)]
    return max(paths, key=iterations, default=())


def iterations(path: Path, *modes: str) -> int:
    """Return how often the loops run their body; with `modes`, only loops of these modes count."""
    return math.prod(loop.extent or 1 for loop in path if not modes or loop.mode in modes)


def is_plain(ir: KernelIR) -> bool:
    """Whether every loop runs as written: no thread, vector or unrolling anywhere."""

    def serial(nodes: tuple[Loop, ...]) -> bool:
        return all(node.mode == "serial" and serial(node.body) for node in nodes)

    return serial(ir.tree)


def parallelism(ir: KernelIR) -> int:
    """Return on how many threads (blocks, on a GPU) the hottest statement can run at once."""
    return iterations(hottest(ir), "parallel", *_BLOCKS)


def is_vectorized(ir: KernelIR) -> bool:
    """Whether the hottest statement is inside a vector loop."""
    return any(loop.mode == "vectorized" for loop in hottest(ir))


def uses_tensor_cores(ir: KernelIR) -> bool:
    """Whether its code has matrix instructions; if the code is unknown, whether a buffer is in
    fragments, or the schedule says so."""
    if ir.code is not None:
        return ir.code.matrix is not None
    if ir.has_fragments:
        return True
    lines = [*ir.trace, *(node.text for _, node in statements(ir.tree))]
    return any(word in line.lower() for line in lines for word in _TENSOR_WORDS)
