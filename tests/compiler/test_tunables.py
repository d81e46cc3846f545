"""What tuning may choose: every candidate computes the same, and a choice reaches its kernel."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tvm
import tvm_ffi

from support.paired_graph import Graph
from tvmscope.compiler import pipeline, targets
from tvmscope.compiler.tunable import extract, knobs
from tvmscope.core.options import CompileOptions
from tvmscope.core.target import Target
from tvmscope.core.tuning import Candidate, Choice, TuningTask
from tvmscope.errors import BuildError

TRIED_PER_TASK = 8


def _run(library: Path, function: Path, seed: int = 0) -> np.ndarray[Any, Any]:
    rng = np.random.default_rng(seed)
    shapes = extract.arguments(function)
    args = [tvm.runtime.tensor(rng.standard_normal(s).astype(d)) for s, d in shapes]
    tvm.runtime.load_module(str(library))["main"](*args)
    return args[-1].numpy()


def test_a_model_gives_a_task_per_workload_with_the_untuned_candidate_first(
    tasks: list[TuningTask],
) -> None:
    keys = [task.key for task in tasks]
    assert len(keys) == len(set(keys))
    by_rule = {task.rule for task in tasks}
    assert {"conv2d", "winograd", "matmul"} <= by_rule
    for task in tasks:
        assert task.candidates[0] == Candidate()
        assert task.lowerings[0].params == {}
        assert len({c.id for c in task.candidates}) == len(task.candidates)
    (blocks,) = (task for task in tasks if task.rule == "winograd")
    assert blocks.calls == 2  # both residual blocks have this one shape
    assert any("conv" in op for op in blocks.source_ops)
    assert {"direct", "winograd4"} <= {str(low.params.get("kernel")) for low in blocks.lowerings}


@pytest.mark.parametrize("rule", ["conv2d", "winograd", "matmul"])
def test_candidates_of_a_rule_compute_what_the_kernel_says(
    tasks: list[TuningTask], host: Target, tmp_path: Path, rule: str
) -> None:
    task = next(task for task in tasks if task.rule == rule)
    drawn = random.Random(0).sample(task.candidates, min(TRIED_PER_TASK, len(task.candidates)))
    libraries = set()
    for candidate in drawn:
        function = Path(task.lowering_for(candidate).function)
        plain = tmp_path / f"{function.stem}.so"  # a library that is loaded keeps its name
        extract.build_plain(function, host, plain)
        built = tmp_path / f"{candidate.id}.so"
        extract.build_candidate(function, candidate, host, built)
        expected, found = _run(plain, function), _run(built, function)
        assert np.abs(found - expected).max() <= 1e-4 * np.abs(expected).max(), candidate
        libraries.add(extract.schedule_candidate(function, candidate, host).script())
    assert len(libraries) > 1  # the parameters do change the code


def test_a_trace_is_replayed_on_the_kernel(
    tasks: list[TuningTask], host: Target, tmp_path: Path
) -> None:
    task = next(task for task in tasks if task.rule == "matmul")
    function = Path(task.lowerings[0].function)
    sch = tvm.s_tir.Schedule(extract.read_function(function))
    block = sch.get_child_blocks(sch.get_sblock("root"))[0]
    sch.parallel(sch.get_loops(block)[0])
    recorded = Candidate(trace=_text(sch.trace))
    assert "T.parallel" in extract.schedule_candidate(function, recorded, host).script()
    extract.build_candidate(function, recorded, host, tmp_path / "traced.so")
    broken = Candidate(trace=_text(sch.trace).replace("Parallel", "Nonsense"))
    with pytest.raises(BuildError, match=broken.id):
        extract.build_candidate(function, broken, host, tmp_path / "broken.so")


def _text(trace: Any) -> str:
    import json

    def plain(value: Any) -> Any:
        if isinstance(value, str | int | float) or value is None:
            return value
        return [plain(v) for v in value]

    return json.dumps(plain(trace.as_json()))


def _network(host: Target, choices: dict[str, Choice]) -> Any:
    graph = Graph()
    x = graph.conv2d(graph.input(1, 17, 9, 13), 24, 1)
    result = graph.conv2d(x, 19, 3, padding=(1, 1, 1, 1))
    return graph.check(result, target=host, options=CompileOptions(choices=choices))


WORKLOAD = (
    "conv2d 1x24x9x13 19x24x3x3 stride 1x1 padding 1x1x1x1 dilation 1x1 groups 1 "
    "float32->float32 blocks"
)


@pytest.mark.parametrize(
    ("params", "rule"),
    [
        ({}, "winograd"),
        ({"kernel": "direct", "columns": 5, "chunk": 8}, "conv2d"),
        ({"kernel": "winograd4", "columns": 6}, "winograd"),
        ({"kernel": "winograd2", "unroll": 4, "order": "channels"}, "winograd"),
    ],
)
def test_a_choice_decides_the_kernel_and_the_result_stays_right(
    host: Target, params: dict[str, Any], rule: str
) -> None:
    choices = {WORKLOAD: Choice(candidate=Candidate(params=params), source="a test")}
    ran = _network(host, choices)
    assert ran.remarks == ()
    fast = ran.taken_by("winograd")
    assert bool(fast) == (rule == "winograd")


@pytest.mark.parametrize(
    ("params", "counts"),
    [
        ({"columns": 5, "chunk": 8}, False),  # of the Winograd kernel that is predicted
        ({"kernel": "winograd4", "columns": 6}, False),
        ({"kernel": "direct", "columns": 5}, True),
    ],
)
def test_without_winograd_only_what_was_found_for_a_direct_kernel_counts(
    host: Target, params: dict[str, Any], counts: bool
) -> None:
    choices = {WORKLOAD: Choice(candidate=Candidate(params=params), source="a test")}
    plain, chosen = (_lowered(host, c) for c in ({}, choices))
    assert tvm_ffi.structural_equal(plain, chosen) != counts


def _lowered(host: Target, choices: dict[str, Choice]) -> tvm.IRModule:
    """A network that is compiled without Winograd kernels."""
    graph = Graph()
    x = graph.conv2d(graph.input(1, 17, 9, 13), 24, 1)
    module = graph.module(graph.conv2d(x, 19, 3, padding=(1, 1, 1, 1)))
    options = CompileOptions(choices=choices, overrides={"winograd": False})
    return pipeline.run(module, host, tvm.target.Target(targets.to_tvm(host)), options).module


def test_ranks_stand_for_the_values_of_a_ranking() -> None:
    assert knobs.ranked({"rank": 1}, "columns", [7, 5, 4]) == {"columns": 5}
    assert knobs.ranked({"rank": 9}, "columns", [7, 5, 4]) == {"columns": 4}
    assert knobs.ranked({"rank": 1}, "columns", [7]) == {}
    assert knobs.ranked({"columns": 3, "rank": 1}, "columns", [7, 5]) == {"columns": 3}


@pytest.mark.parametrize("rule", ["conv2d", "winograd", "matmul"])
def test_weights_of_the_next_block_are_asked_for_and_nothing_changes(
    tasks: list[TuningTask], host: Target, tmp_path: Path, rule: str
) -> None:
    task = next(task for task in tasks if task.rule == rule)
    function = Path(task.lowerings[0].function)
    results = []
    for asked in (0, 1):
        candidate = Candidate(params={"prefetch": asked})
        script = extract.schedule_candidate(function, candidate, host).script()
        assert ("llvm.prefetch" in script) == bool(asked)
        built = tmp_path / f"{asked}.so"
        extract.build_candidate(function, candidate, host, built)
        results.append(_run(built, function))
    assert np.array_equal(*results)
