"""Winograd convolution: right on odd shapes within its bound, and chosen only where it pays."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import tvm_ffi
from hypothesis import given
from hypothesis import strategies as st
from tvm import te, tirx
from tvm.ir import Call, Range
from tvm.sym import Analyzer

from support.paired_graph import Graph, assert_close, drawn
from tvmscope.compiler import targets
from tvmscope.compiler.kernels import winograd
from tvmscope.compiler.kernels.blocked import Window
from tvmscope.compiler.kernels.winograd_transforms import F2, F4, Transform, six_points
from tvmscope.compiler.schedules import requests
from tvmscope.compiler.schedules.cpu import winograd as winograd_rule
from tvmscope.compiler.tunable import knobs
from tvmscope.core.options import CompileOptions
from tvmscope.core.target import Target

AVX512 = Target(kind="llvm", arch="x86-64-v4", features=("avx", "avx2", "avx512f", "fma"))
"""For expectations that follow from 32 registers of 512 bits; its code is not run."""
BOUND = 5e-5
"""Of F(4x4, 3x3), whose transforms lose some digits; of the largest value."""


def _check(graph: Graph, output, target: Target, expected: int = 1) -> None:
    ran = graph.run(output, target=target)
    assert ran.remarks == ()
    assert len(ran.taken_by("winograd")) == expected
    assert_close(ran.outputs[0], output.value.numpy(), BOUND)


def _blocked_input(graph: Graph, batch: int, channels: int, rows: int, columns: int):
    """A value in blocks: the result of a 1x1 convolution."""
    return graph.conv2d(graph.input(batch, channels, rows, columns), channels, 1)


@drawn(12)
@given(
    batch=st.sampled_from([1, 3]),
    inputs=st.sampled_from([1, 5, 16, 17, 48]),
    outputs=st.sampled_from([3, 16, 31, 32]),
    rows=st.integers(8, 27),
    columns=st.integers(8, 27),
    padding=st.sampled_from([0, 1, 2, (0, 1, 2, 1)]),
    epilogue=st.sampled_from(["bias", "relu", "residual", "clip"]),
)
def test_drawn_shapes_match_pytorch(
    host: Target, batch, inputs, outputs, rows, columns, padding, epilogue
) -> None:
    graph = Graph()
    x = _blocked_input(graph, batch, inputs, rows, columns)
    _check(graph, graph.epilogue(graph.conv2d(x, outputs, padding=padding), epilogue), host)


@pytest.mark.parametrize("side", [14, 28])  # of 28: 49 tiles, for registers that hold six
def test_fewer_registers_match_pytorch(narrow: Target, side: int) -> None:
    graph = Graph()
    x = _blocked_input(graph, 1, 32, side, side)
    _check(graph, graph.relu(graph.bias(graph.conv2d(x, 48, padding=1))), narrow)


@pytest.mark.parametrize("machine", ["host", "narrow"])
@pytest.mark.parametrize("side", [28, 52, 68])  # 7, 13 and 17 tiles across, all of them prime
def test_the_rule_takes_tiles_that_no_register_tile_divides(
    request: pytest.FixtureRequest, machine: str, side: int
) -> None:
    target = request.getfixturevalue(machine)
    kernel = np.zeros((16, 16, 3, 3), np.float32)
    data = te.placeholder((1, 1, side, side, 16), name="data")
    weight = te.placeholder(winograd.pack_weight(kernel, F4).shape, name="weight")
    result = winograd.conv2d(data, weight, Window((1, 1), (1, 1, 1, 1), (1, 1)), F4)
    func = te.create_prim_func([data, weight, result])
    assert winograd_rule.schedule_winograd(func, target) is not None


@pytest.mark.parametrize(
    "near_miss",
    [{"stride": 2}, {"dilation": 2}, {"kernel": 5}, {"groups": 2}],
    ids=str,
)
def test_other_convolutions_are_left_to_other_rules(host: Target, near_miss) -> None:
    graph = Graph()
    x = _blocked_input(graph, 1, 32, 24, 24)
    ran = graph.check(graph.conv2d(x, 32, **near_miss), target=host)
    assert ran.taken_by("winograd") == []


@pytest.mark.parametrize(("rows", "columns"), [(7, 7), (6, 9), (9, 6)])
def test_small_tiles_match_pytorch(host: Target, rows: int, columns: int) -> None:
    assert winograd.best(1, rows, columns, host) is F2
    graph = Graph()
    x = _blocked_input(graph, 1, 31, rows, columns)
    _check(graph, graph.relu(graph.bias(graph.conv2d(x, 17, padding=1))), host)


@pytest.mark.parametrize("machine", ["host", "narrow"])
@pytest.mark.parametrize(
    ("batch", "rows", "columns", "strips", "epilogue"),
    [
        (1, 56, 48, 1, "relu"),
        (1, 53, 55, 2, "residual"),
        (2, 32, 41, 4, "bias"),
        (3, 23, 93, 1, "residual"),
        (1, 56, 48, 9, "relu"),  # found elsewhere, and not possible here
    ],
)
def test_tasks_that_do_all_stages_match_pytorch(
    request: pytest.FixtureRequest,
    machine: str,
    batch: int,
    rows: int,
    columns: int,
    strips: int,
    epilogue: str,
) -> None:
    target = replace(request.getfixturevalue(machine), cores=1)
    graph = Graph()
    x = _blocked_input(graph, batch, 31, rows, columns)
    output = graph.epilogue(graph.conv2d(x, 48, padding=1), epilogue)
    options = CompileOptions(overrides={"params": {"strips": strips}})
    ran = graph.run(output, target=target, options=options)
    assert ran.remarks == ()
    assert len(ran.taken_by("winograd")) == 1
    assert_close(ran.outputs[0], output.value.numpy(), BOUND)


@pytest.mark.parametrize("machine", ["host", "narrow"])
@pytest.mark.parametrize(
    ("batch", "rows", "columns", "cores", "epilogue"),
    [
        (1, 28, 28, 2, "relu"),  # 49 tiles: one is computed in vain
        (1, 27, 25, 2, "residual"),
        (2, 20, 21, 2, "bias"),  # a core's share ends with its image
        (3, 18, 23, 2, "clip"),  # and inside an image
        (3, 26, 20, 2, "relu"),  # 105 tiles: of 108 each core has 54
        (4, 20, 20, 4, "residual"),
    ],
)
def test_each_core_takes_its_share_of_the_tiles(
    request: pytest.FixtureRequest,
    machine: str,
    batch: int,
    rows: int,
    columns: int,
    cores: int,
    epilogue: str,
) -> None:
    target = replace(request.getfixturevalue(machine), cores=cores)
    count = winograd.tile_count(batch, rows, columns, F4)
    assert winograd.even_share(count, (36, 3, 32, 16), target) * cores >= count
    graph = Graph()
    x = _blocked_input(graph, batch, 31, rows, columns)
    output = graph.epilogue(graph.conv2d(x, 48, padding=1), epilogue)
    options = CompileOptions(overrides={"params": {"share": 1, "prefetch": 1}})
    ran = graph.run(output, target=target, options=options)
    assert ran.remarks == ()
    assert len(ran.taken_by("winograd")) == 1
    assert_close(ran.outputs[0], output.value.numpy(), BOUND)


def _shared(target: Target) -> tirx.PrimFunc:
    """A kernel of 64 channels at 28x28 whose 49 tiles the cores share."""
    shape = (36, 4, 64, 16)
    share = winograd.even_share(49, shape, target)
    data = te.placeholder((1, 4, 28, 28, 16), name="data")
    weight = te.placeholder(shape, name="weight")
    window = Window((1, 1), (1, 1, 1, 1), (1, 1))
    notes = knobs.notes("", {"share": 1})
    result = winograd.conv2d(data, weight, window, F4, share * target.cores, notes)
    sch = winograd_rule.schedule_winograd(te.create_prim_func([data, weight, result]), target)
    assert sch is not None
    return sch.mod["main"]


def test_with_shares_the_cores_meet_only_at_the_end(host: Target) -> None:
    script = _shared(replace(host, cores=2)).script()
    assert script.count("T.parallel(") == script.count("T.parallel(2)") == 1


def test_every_share_fetches_the_next_weights_and_no_others(host: Target) -> None:
    func = requests.insert(_shared(replace(host, cores=2)))
    known, offsets = Analyzer(), []

    def enter(loop: tirx.For) -> tirx.For:
        known.bind(loop.loop_var, Range.from_min_extent(loop.min, loop.extent))
        return loop

    def see(call: Call) -> Call:
        if getattr(call.op, "name", "") == "tirx.handle_add_byte_offset":
            offsets.append(call.args[1])
        return call

    tvm_ffi.structural_map(func.body, [(tirx.For, enter), (Call, see)])
    bounds, block_bytes = [known.const_int_bound(offset) for offset in offsets], 64 * 16 * 4
    assert bounds  # one, or one between each two sums on cores with two 512-bit multiply-adds
    assert all(bound.min_value == 0 for bound in bounds)
    assert all(bound.max_value < 1.1 * block_bytes for bound in bounds)  # parts of whole lines


@pytest.mark.parametrize(
    ("cores", "channels", "side", "strips"),
    [
        (2, 64, 56, 1),  # what lies between the stages is 3.6 MB
        (2, 64, 28, 0),  # fits the caches of two cores
        (2, 256, 56, 0),  # weights of 9 MB would come from memory for each strip
        (2, 64, 68, 0),  # 17 tiles a strip do not fill the registers evenly
        (12, 64, 56, 0),  # 14 strips for 12 cores: two rounds, the second nearly idle
    ],
)
def test_tasks_do_all_stages_where_that_pays(
    cores: int, channels: int, side: int, strips: int
) -> None:
    found = winograd_rule.space(_whole(channels, side), replace(AVX512, cores=cores))
    assert found is not None
    assert found["strips"][0] == strips


def _whole(channels: int, side: int) -> tirx.PrimFunc:
    kernel = np.zeros((channels, channels, 3, 3), np.float32)
    shape = winograd.pack_weight(kernel, F4).shape
    data = te.placeholder((1, channels // 16, side, side, 16), name="data")
    weight = te.placeholder(shape, name="weight")
    window = Window((1, 1), (1, 1, 1, 1), (1, 1))
    result = winograd.conv2d(data, weight, window, F4)
    return te.create_prim_func([data, weight, result])


def test_a_fast_core_does_not_read_weights_beyond_its_caches_again_for_each_strip() -> None:
    first = []
    for name in ("cpu:emeraldrapids", "cpu:znver4"):  # caches of 2 MiB and of 1 MiB
        target = replace(targets.resolve(name), cores=1)
        found = winograd_rule.space(_whole(channels=128, side=28), target)
        assert found is not None
        first.append(found["strips"][0])
    assert first[0] == 0
    assert first[1] > 0


@pytest.mark.parametrize(
    ("cores", "channels", "side", "share"),
    [
        (2, 128, 28, 25),  # 49 tiles: one is computed in vain
        (2, 64, 20, 0),  # 13 tiles for each core are too few for all the weights
        (2, 192, 28, 0),  # what lies between the stages leaves the cache
        (4, 64, 28, 0),  # 13 tiles for each
        (2, 64, 26, 25),
        (2, 32, 36, 42),
        (1, 64, 28, 0),  # nothing to share
    ],
)
def test_cores_may_share_tiles_where_that_can_pay(
    cores: int, channels: int, side: int, share: int
) -> None:
    count = winograd.tile_count(1, side, side, F4)
    shape = (36, channels // 16, channels, 16)
    assert winograd.even_share(count, shape, replace(AVX512, cores=cores)) == share


def test_registers_that_hold_too_few_tiles_share_none() -> None:
    narrow = Target(kind="llvm", arch="x86-64-v2", cores=2)
    assert winograd.even_share(49, (36, 4, 64, 16), narrow) == 0


def test_the_tile_grows_with_the_image(host: Target) -> None:
    assert winograd.best(1, 3, 3, host) is None  # too few multiplications to pay for transforms
    assert winograd.best(1, 7, 7, host) is F2
    assert winograd.best(1, 14, 14, host) is F4
    assert winograd.best(1, 56, 56, host) is F4
    assert winograd.best(8, 7, 7, host) is F4


def test_it_can_be_switched_off(host: Target) -> None:
    graph = Graph()
    x = _blocked_input(graph, 1, 16, 20, 20)
    options = CompileOptions(overrides={"winograd": False})
    ran = graph.check(graph.conv2d(x, 16, padding=1), target=host, options=options)
    assert ran.taken_by("winograd") == []
    assert len(ran.taken_by("conv2d")) == 2


@pytest.mark.parametrize("transform", [F2, F4], ids=lambda t: f"F{t.tile}")
def test_transform_matrices_compute_a_convolution(transform: Transform) -> None:
    random, (m, n) = np.random.default_rng(0), (transform.tile, transform.alpha)
    tile, kernel = random.standard_normal((n, n)), random.standard_normal((3, 3))
    spectrum = (transform.bt @ tile @ transform.bt.T) * (transform.g @ kernel @ transform.g.T)
    result = transform.at @ spectrum @ transform.at.T
    direct = [[(tile[i : i + 3, j : j + 3] * kernel).sum() for j in range(m)] for i in range(m)]
    np.testing.assert_allclose(result, direct, atol=1e-12)


def test_its_points_lose_less_to_rounding_than_the_usual_ones() -> None:
    assert _rounding(F4) < 0.5 * _rounding(six_points(1, 2))


def _rounding(transform: Transform) -> float:
    """The error of sums over 256 channels in single precision."""
    random = np.random.default_rng(0)
    tile, kernel = random.random((256, 6, 6), np.float32), random.random((256, 3, 3), np.float32)
    bt, at = transform.bt.astype(np.float32), transform.at.astype(np.float32)
    weights = (transform.g @ kernel @ transform.g.T).astype(np.float32)
    total = np.zeros((6, 6), np.float32)
    for values, weight in zip(bt @ tile @ bt.T, weights, strict=True):
        total += values * weight
    direct = [
        [(tile[:, i : i + 3, j : j + 3] * kernel).sum(dtype=np.float64) for j in range(4)]
        for i in range(4)
    ]
    return float(np.sqrt(np.mean((at @ total @ at.T - direct) ** 2)))
