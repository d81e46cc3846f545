"""The list of CPU rules: one rule for each kernel, and no wrong or broken one goes unseen."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch
import tvm
from tvm import relax, s_tir, tirx

from support.paired_graph import Graph, Node
from tvmscope.benchmark.verify import verify
from tvmscope.compiler import build, pipeline, targets
from tvmscope.compiler.kernels.recurrence import Layer, recurrence
from tvmscope.compiler.manifest.rule import ScheduleRule
from tvmscope.compiler.schedules import cpu
from tvmscope.core.model import Prepared
from tvmscope.core.options import CompileOptions
from tvmscope.core.target import Target
from tvmscope.runtime.loaded_artifact import load_callable

Schedule = Callable[[tirx.PrimFunc, Target], s_tir.Schedule | None]


def convolution(graph: Graph) -> Node:
    return graph.relu(graph.conv2d(graph.input(1, 5, 9, 7), 17))


def depthwise(graph: Graph) -> Node:
    return graph.relu(graph.conv2d(graph.input(1, 7, 9, 7), 7, groups=7))


def winograd(graph: Graph) -> Node:
    return graph.relu(graph.conv2d(graph.conv2d(graph.input(1, 5, 20, 20), 17, 1), 17))


def product(graph: Graph, height: int = 7) -> Node:
    weight = graph.constant(graph.random(31, 17))
    return graph.relu(graph.apply(relax.op.matmul, torch.matmul, graph.input(height, 31), weight))


def tall_product(graph: Graph) -> Node:
    return product(graph, 53)


def rows(graph: Graph) -> Node:
    return graph.apply(
        lambda v: relax.op.nn.softmax(v, -1), lambda v: v.softmax(-1), graph.input(7, 31)
    )


def attention(graph: Graph) -> Node:
    def weigh(q: relax.Expr, k: relax.Expr, v: relax.Expr) -> relax.Expr:
        return relax.op.matmul(relax.op.nn.softmax(relax.op.matmul(q, k), -1), v)

    return graph.apply(
        weigh,
        lambda q, k, v: torch.softmax(q @ k, -1) @ v,
        graph.input(2, 7, 5),
        graph.input(2, 5, 9),
        graph.input(2, 9, 3),
    )


def pooling(graph: Graph) -> Node:
    return graph.apply(
        lambda v: relax.op.nn.max_pool2d(v, 3, 2, 1),
        lambda v: torch.nn.functional.max_pool2d(v, 3, 2, 1),
        graph.input(1, 7, 9, 13),
    )


def reduction(graph: Graph) -> Node:
    return graph.apply(lambda v: relax.op.sum(v, [-1]), lambda v: v.sum(-1), graph.input(7, 512))


def movement(graph: Graph) -> Node:
    return graph.apply(relax.op.permute_dims, lambda v: v.T, graph.input(7, 31))


def recurrent(graph: Graph) -> Node:
    def limit(x: tirx.Expr) -> tirx.Expr:
        return tirx.max(x, tirx.const(0, "float32"))

    layer = Layer(kind="RNN", steps=3, batch=2, hidden=5, activations=(limit,))
    nothing = (relax.const(np.zeros(n, np.float32)) for n in ((2, 5), (2, 5), (5,)))

    def steps(given: relax.Expr, weight: relax.Expr) -> relax.Expr:
        lengths = relax.const(np.full(2, 3, np.int32))
        call_te = relax.BlockBuilder.current().call_te
        compute = partial(recurrence, layer=layer)
        made = call_te(compute, given, weight, *nothing, lengths, primfunc_name_hint="rnn")
        return relax.TupleGetItem(relax.BlockBuilder.current().emit(made), 0)

    def reference(given: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        states = [torch.zeros(2, 5)]
        for step in given:
            states.append(torch.relu(step + states[-1] @ weight))
        return torch.stack(states[1:])

    return graph.apply(steps, reference, graph.input(3, 2, 5), graph.input(5, 5))


def elementwise(graph: Graph) -> Node:
    return graph.relu(graph.add(graph.input(7, 31), graph.input(31)))


def library_call(graph: Graph) -> Node:
    return graph.apply(lambda v: relax.op.sort(v), lambda v: v.sort().values, graph.input(7, 31))


FOR_SOME_CORES = {"matmul-chunks": (tall_product, "cpu:emeraldrapids", ["matmul"])}
"""Rules that only some CPUs need: an operator and a CPU that have them, and who else would take it.
"""
CONVERTED = (convolution, depthwise, winograd, attention)
"""To change the layout, or to pack an operand, is to move data."""


def takers(graph: Graph, node: Node, target: Target) -> list[str]:
    """The rules, apart from the fallback, that would take a kernel of the graph."""
    tvm_target = tvm.target.Target(targets.to_tvm(target))
    options = CompileOptions(disabled_passes=("cpu-rules",))
    kernels = pipeline.run(graph.module(node), target, tvm_target, options).module.functions
    return [
        rule.name
        for kernel in kernels.values()
        for rule in cpu.RULES
        if isinstance(kernel, tirx.PrimFunc)
        and rule.name != "fallback"
        and rule.schedule(kernel, target) is not None
    ]


def test_each_rule_takes_its_own_operator_and_declines_the_others(host: Target) -> None:
    expected = {
        convolution: ["conv2d"],
        depthwise: ["depthwise"],
        winograd: ["conv2d", "winograd"],
        product: ["matmul"],
        rows: ["rows"],
        attention: ["attention"],
        pooling: ["pooling"],
        reduction: ["reduction"],
        movement: ["movement"],
        recurrent: ["steps"],
        elementwise: [],
        library_call: [],
    }
    for make, names in expected.items():
        graph = Graph()
        found = set(takers(graph, make(graph), host))
        assert sorted(found - {"movement"} if make in CONVERTED else found) == names
    covered = {name for names in expected.values() for name in names} | set(FOR_SOME_CORES)
    assert covered == {rule.name for rule in cpu.RULES} - {"fallback"}


@pytest.mark.parametrize("name", FOR_SOME_CORES)
def test_a_rule_for_some_cores_comes_before_the_rule_for_all(name: str) -> None:
    graph = Graph()
    make, arch, others = FOR_SOME_CORES[name]
    found = takers(graph, make(graph), targets.resolve(arch, cores=2))
    assert found == [name, *others]


def test_the_fallback_comes_last() -> None:
    assert [rule.name for rule in cpu.RULES].index("fallback") == len(cpu.RULES) - 1


def a_rule(name: str, schedule: Schedule) -> ScheduleRule:
    return ScheduleRule(name=name, devices=("cpu",), version=1, words="A test.", schedule=schedule)


def test_a_rule_that_raises_costs_a_remark_and_not_the_result(
    monkeypatch: pytest.MonkeyPatch, host: Target
) -> None:
    def broken(func: tirx.PrimFunc, target: Target) -> s_tir.Schedule | None:
        raise RuntimeError("no such loop")

    monkeypatch.setattr(cpu, "RULES", (a_rule("broken", broken), *cpu.RULES))
    graph = Graph()
    node = product(graph)
    ran = graph.run(node, target=host)
    assert ran.remarks == ("schedule rule 'broken' failed on fused_matmul_relu: no such loop",)
    assert ran.rules == {"fused_matmul_relu": "matmul"}
    np.testing.assert_allclose(ran.outputs[0], node.value.numpy(), rtol=1e-4, atol=1e-5)


def wrong(func: tirx.PrimFunc, target: Target) -> s_tir.Schedule | None:
    """A rule with a bug: it makes min(x, 0) of max(x, 0)."""
    text = func.script()
    if "T.max(" not in text:
        return None
    return s_tir.Schedule(tvm.script.from_source(text.replace("T.max(", "T.min(")))


@pytest.mark.parametrize("extra", [(), (a_rule("wrong", wrong),)], ids=["ours", "wrong"])
def test_a_wrong_schedule_does_not_pass_verification(
    extra: tuple[ScheduleRule, ...],
    monkeypatch: pytest.MonkeyPatch,
    conv_net: Prepared,
    host: Target,
    tmp_path: Path,
) -> None:
    monkeypatch.setattr(cpu, "RULES", (*extra, *cpu.RULES))
    build.build(conv_net, tmp_path / "artifact", host, host, CompileOptions())
    with np.load(conv_net.inputs_path) as inputs:
        outputs = load_callable(tmp_path / "artifact")(**inputs)
    np.savez(tmp_path / "outputs.npz", **outputs)
    found = verify(tmp_path / "outputs.npz", conv_net.reference_path, 1e-4, "torch")
    assert found.passed == (not extra), found
