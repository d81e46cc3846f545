"""Weights of an ONNX model that stay in files beside it: a model over 2 GiB keeps its own there.

One protobuf message holds 2 GiB, and whatever checks, infers or simplifies a graph writes one. So
the graph travels with references to its large weights, and these are read where they are needed.
Nothing here imports onnx: it is given its messages.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

MOST_BYTES = 1_900_000_000
"""Of weights inside one message, with some room for the graph itself."""
SMALL_BYTES = 1 << 20
"""Smaller ones are read at once: sizes and other constants that shapes depend on."""
FILES = "weights_*.bin"
"""Their names in a prepared folder."""
_EXTERNAL = 1
_MOST_ELEMENT_BYTES = 8


def is_outside(tensor: Any) -> bool:
    """Whether a tensor's values lie in another file."""
    return bool(tensor.data_location == _EXTERNAL)


def most_bytes(tensor: Any) -> int:
    """A tensor's size: as its file entry says, or what it can be at most."""
    said = {entry.key: entry.value for entry in tensor.external_data}.get("length")
    if said is not None:
        return int(said)
    size = _MOST_ELEMENT_BYTES
    for dim in tensor.dims:
        size *= dim
    return size


def outside(graph: Any) -> list[Any]:
    """The weights of a graph whose values lie in other files."""
    return [tensor for tensor in graph.initializer if is_outside(tensor)]


def files_of(tensors: Iterable[Any]) -> dict[str, str]:
    """The files of these weights, with the names that they get in a prepared folder."""
    places = (e.value for t in tensors for e in t.external_data if e.key == "location")
    return {place: FILES.replace("*", str(n)) for n, place in enumerate(dict.fromkeys(places))}


def rename(tensors: Iterable[Any], names: dict[str, str]) -> None:
    """Let the weights name other files."""
    for tensor in tensors:
        for entry in tensor.external_data:
            if entry.key == "location":
                entry.value = names[entry.value]


def bytes_beside(folder: Path) -> int:
    """The size of all weights in files of a prepared folder."""
    return sum(file.stat().st_size for file in folder.glob(FILES))


def take_out(graph: Any) -> list[Any]:
    """Make inputs of the weights in other files: what simplifies a graph must not ask for values.

    Returns these weights for `put_back`.
    """
    taken = outside(graph)
    kept = [tensor for tensor in graph.initializer if not is_outside(tensor)]
    if not taken:
        return []
    del graph.initializer[:]
    graph.initializer.extend(kept)
    for tensor in taken:
        value = graph.input.add()
        value.name = tensor.name
        value.type.tensor_type.elem_type = tensor.data_type
        value.type.tensor_type.shape.SetInParent()
        for size in tensor.dims:
            value.type.tensor_type.shape.dim.add().dim_value = size
    return taken


def put_back(graph: Any, taken: list[Any]) -> None:
    """Make weights of those inputs again."""
    names = {tensor.name for tensor in taken}
    kept = [value for value in graph.input if value.name not in names]
    del graph.input[:]
    graph.input.extend(kept)
    graph.initializer.extend(taken)
