"""Batches whose activations leave the caches run in parts, and give the same; others stay whole."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from tvm import relax

from support.paired_graph import Graph, Node
from support.references import PREPARE
from tvmscope.compiler.build import build
from tvmscope.compiler.rewrites.cpu.split_batch import PARTS, split_batch
from tvmscope.core.model import Prepared
from tvmscope.core.options import CompileOptions, LoadOptions
from tvmscope.core.target import Target
from tvmscope.measure.worker import run_isolated
from tvmscope.runtime.loaded_artifact import load_callable

SIDE = 72
"""Two maps of 64 such channels take 2.6 MB: more than both caches hold."""


def body(graph: Graph, x: Node) -> Node:
    """Enough to leave the caches."""
    return graph.relu(graph.bias(graph.conv2d(graph.conv2d(x, 64, padding=1), 64, padding=1)))


def parts(graph: Graph, *outputs: Node, target: Target) -> int:
    """Into how many parts the first pass cuts the batch."""
    main = split_batch(target)(graph.module(*outputs))["main"]
    return int(main.attrs[PARTS]) if main.attrs and PARTS in main.attrs else 1


def mean(graph: Graph, x: Node, axes: list[int]) -> Node:
    return graph.apply(lambda v: relax.op.mean(v, axes), lambda v: v.mean(axes), x)


def linear(graph: Graph, x: Node, outputs: int) -> Node:
    weight = graph.constant(graph.random(x.value.shape[-1], outputs, scale=0.2))
    return graph.bias(graph.apply(relax.op.matmul, torch.matmul, x, weight))


@pytest.mark.parametrize("batch", [2, 3, 8])
def test_each_image_gives_what_it_gives_in_the_batch(batch: int, host: Target) -> None:
    graph = Graph()
    x = body(graph, graph.input(batch, 3, SIDE, SIDE))
    head = linear(graph, mean(graph, x, [2, 3]), 5)
    scores = graph.apply(lambda v: relax.op.nn.softmax(v, -1), lambda v: torch.softmax(v, -1), head)
    assert parts(graph, scores, x, target=host) == batch
    graph.check(scores, x, target=host)


def test_several_inputs_are_cut_at_the_same_image(host: Target) -> None:
    graph = Graph()
    x = body(graph, graph.input(4, 3, SIDE, SIDE))
    y = graph.add(x, graph.input(4, 64, SIDE, SIDE))
    assert parts(graph, y, target=host) == 4
    graph.check(y, target=host)


def test_small_images_stay_together_as_far_as_the_caches_hold_them(host: Target) -> None:
    graph = Graph()
    y = graph.conv2d(graph.input(32, 16, 32, 32), 32, padding=1)  # 192 KiB an image
    assert parts(graph, y, target=host) == 4
    graph.check(y, target=host)


def test_what_the_caches_hold_is_not_split(host: Target) -> None:
    graph = Graph()
    assert parts(graph, graph.conv2d(graph.input(8, 3, 16, 16), 16), target=host) == 1


def test_a_single_image_is_not_split(host: Target) -> None:
    graph = Graph()
    assert parts(graph, body(graph, graph.input(1, 3, SIDE, SIDE)), target=host) == 1


def shaped(graph: Graph, x: Node) -> Node:
    """Reshapes, transposes, slices and a broadcast, as a detector's head has them."""
    batch = x.value.shape[0]
    x = graph.reshape(x, batch, 2, 32, SIDE * SIDE)
    x = graph.apply(
        lambda v: relax.op.permute_dims(v, [0, 3, 1, 2]), lambda v: v.permute(0, 3, 1, 2), x
    )
    x = graph.apply(
        lambda v: relax.op.strided_slice(v, [1, 3], [5, 1], [999, 30]),
        lambda v: v[:, 5:999, :, 1:30],
        x,
    )
    same = graph.apply(
        lambda v: relax.op.broadcast_to(v, (batch, 994, 2, 1)),
        lambda v: v.expand(batch, 994, 2, 1),
        graph.constant(graph.random(1, 1, 2, 1)),
    )
    return graph.apply(lambda *v: relax.op.concat(list(v), 3), lambda *v: torch.cat(v, 3), x, same)


def test_moving_data_within_an_image_does_not_keep_images_together(host: Target) -> None:
    graph = Graph()
    y = shaped(graph, body(graph, graph.input(3, 3, SIDE, SIDE)))
    assert parts(graph, y, target=host) == 3
    graph.check(y, target=host)


Mixing = Callable[[Graph, Node], Node]
MIXED: dict[str, Mixing] = {
    "a mean over images": lambda g, x: g.add(x, mean(g, x, [0])),
    "a reshape that joins images": lambda g, x: g.reshape(x, 4 * 64, SIDE, SIDE),
    "a transpose of images": lambda g, x: g.apply(
        lambda v: relax.op.permute_dims(v, [1, 0, 2, 3]), lambda v: v.permute(1, 0, 2, 3), x
    ),
    "a slice of images": lambda g, x: g.apply(
        lambda v: relax.op.strided_slice(v, [0], [1], [3]), lambda v: v[1:3], x
    ),
    "a constant per image": lambda g, x: g.add(x, g.constant(g.random(4, 1, 1, 1))),
    "a softmax over images": lambda g, x: g.apply(
        lambda v: relax.op.nn.softmax(v, 0), lambda v: torch.softmax(v, 0), x
    ),
    "images side by side": lambda g, x: g.apply(
        lambda v: relax.op.concat([v, v], 0), lambda v: torch.cat([v, v], 0), x
    ),
    "an unknown operator": lambda g, x: g.apply(
        lambda v: relax.op.flip(v, 0), lambda v: torch.flip(v, [0]), x
    ),
    "a product of images": lambda g, x: g.apply(
        relax.op.matmul,
        torch.matmul,
        g.constant(g.random(4, 4)),
        g.reshape(x, 4, 64 * SIDE * SIDE),
    ),
}


@pytest.mark.parametrize("how", MIXED)
def test_images_that_meet_are_not_parted(how: str, host: Target) -> None:
    graph = Graph()
    x = body(graph, graph.input(4, 3, SIDE, SIDE))
    assert parts(graph, MIXED[how](graph, x), target=host) == 1


NET = f"""
import torch

class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.one = torch.nn.Conv2d(3, 64, 3, padding=1)
        self.two = torch.nn.Conv2d(64, 64, 3, padding=1)
        self.head = torch.nn.Linear(64, 700)

    def forward(self, x):
        x = torch.relu(self.two(torch.relu(self.one(x))))
        return self.head(x.mean((2, 3)))

get_inputs = lambda: [torch.randn(3, 3, {SIDE}, {SIDE})]
"""


def test_an_artifact_holds_the_weights_of_its_parts_once(tmp_path: Path, host: Target) -> None:
    source = tmp_path / "net.py"
    source.write_text(NET)
    model = run_isolated(PREPARE, str(source), str(tmp_path / "p"), LoadOptions())
    ready = Prepared(tmp_path / "p", model)
    made = build(ready, tmp_path / "a", host, host, CompileOptions())
    with np.load(ready.inputs_path) as inputs, np.load(ready.reference_path) as expected:
        found = load_callable(tmp_path / "a")(**inputs)
        for name in expected.files:
            np.testing.assert_allclose(found[name], expected[name], rtol=1e-3, atol=1e-4)
    weights = 4 * sum(int(np.prod(t.shape)) for t in made.stored)
    assert 4 * (64 * 64 * 9 + 64 * 700) <= weights < 2 * 4 * (64 * 64 * 16 + 64 * 704)
    assert any("conv2d" in op for kernel in made.kernels for op in kernel.source_ops)
