"""A GPU's own record of a run: whose each kernel is, and that the parts make the whole."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from support.fakes import FakeDeviceRunner, FakeProfiler
from support.profiles import kernel, profile, session
from tvmscope.analysis.waterfall import waterfall
from tvmscope.backends.api import Span, Trace
from tvmscope.backends.profilers import cupti, torch_replay, tvm_device
from tvmscope.backends.profilers import torch as torch_profiler
from tvmscope.backends.profilers.cupti import Activity, Recording
from tvmscope.core.artifact import KernelCall
from tvmscope.core.measurement import Measurement
from tvmscope.core.profile import DeviceTimes, Edges, KernelIR, MachineCode, Resources
from tvmscope.profiling.kernels import merge, profile_runner, summarize
from tvmscope.report.sections.charts import device_line, strays
from tvmscope.report.sections.verdict import verdicts
from tvmscope.stages.profile import as_measured


def activities(*spans: tuple[str, int, int]) -> tuple[Activity, ...]:
    return tuple(Activity(name=n, start=a, end=b) for n, a, b in spans)


def code(symbol: str, **more: Any) -> MachineCode:
    given = {"template": "conv2d", "threads": 128, "blocks": 98, "registers": 96}
    return MachineCode(symbol=symbol, shared_bytes=0, spilled_bytes=0, **(given | more))


def ir(name: str, symbol: str | None = None, **more: Any) -> KernelIR:
    return KernelIR(name=name, tree=(), code=code(symbol) if symbol else None, **more)


def test_kernels_gaps_and_edges_are_the_run() -> None:
    found = Recording(
        start=0, end=100, activities=activities(("a", 10, 30), ("b", 25, 40), ("c", 50, 60))
    )
    times = found.times
    assert times.launches == 3
    assert times.gap_s == pytest.approx(10e-9)
    assert times.edge_s == pytest.approx(50e-9)
    assert times.overlap_s == pytest.approx(5e-9)
    kernels = sum(a.end - a.start for a in found.activities) * 1e-9
    whole = kernels - times.overlap_s + times.gap_s + times.edge_s
    assert whole == pytest.approx((found.end - found.start) * 1e-9)


def test_a_kernel_inside_another_is_no_gap() -> None:
    times = Recording(start=0, end=50, activities=activities(("a", 0, 40), ("b", 5, 10))).times
    assert (times.gap_s, times.overlap_s) == (0.0, pytest.approx(5e-9))


def event(name: str, start: int, length: int, device: str, note: bool = False) -> Any:
    return SimpleNamespace(
        name=lambda: name,
        device_type=lambda: f"DeviceType.{device}",
        start_ns=lambda: start,
        duration_ns=lambda: length,
        is_user_annotation=lambda: note,
    )


def test_only_what_the_device_ran_is_read() -> None:
    found = cupti.read(
        [
            event(cupti.MARK, 100, 50, "CPU", note=True),
            event("cudaLaunchKernel", 101, 2, "CPU"),
            event(cupti.MARK, 105, 40, "CUDA", note=True),
            event("late", 130, 5, "CUDA"),
            event("Memcpy DtoD (Device -> Device)", 110, 10, "CUDA"),
            event("Context Synchronize", 108, 40, "CUDA"),
        ]
    )
    assert (found.start, found.end) == (100, 150)
    assert [(a.name, a.start, a.end, a.moves_only) for a in found.activities] == [
        ("Memcpy DtoD (Device -> Device)", 110, 120, True), ("late", 130, 135, False),
    ]  # fmt: skip


def test_a_part_on_the_host_is_one_activity_with_its_copies() -> None:
    part = "tvmscope.fallback.region_1"
    found = cupti.read(
        [
            event(cupti.MARK, 0, 100, "CPU", note=True),
            event("conv", 10, 10, "CUDA"),
            event(f"{cupti.MARK}{part}", 30, 40, "CPU", note=True),
            event(f"{cupti.MARK}{part}", 32, 30, "CUDA", note=True),
            event("Memcpy DtoH (Device -> Pageable)", 31, 4, "CUDA"),
            event("Memcpy HtoD (Pageable -> Device)", 60, 5, "CUDA"),
            event("pool_kernel", 80, 10, "CUDA"),
        ]
    )
    assert [(a.name, a.start, a.end) for a in found.activities] == [
        ("conv", 10, 20), (part, 30, 70), ("pool_kernel", 80, 90),
    ]  # fmt: skip
    assert found.times.launches == 4
    assert found.times.gap_s == pytest.approx(20e-9)
    calls = (CALLS[0], KernelCall(kernel=part, source_ops=("gelu",)), CALLS[2])
    spans = tvm_device.trace(found, calls, {}).spans
    assert [(s.kernel, s.source_ops, s.kind) for s in spans] == [
        ("conv", ("conv1", "relu1"), "compute"), (part, ("gelu",), "compute"),
        ("pool", ("pool1",), "compute"),
    ]  # fmt: skip
    assert sum(s.seconds for s in spans) == pytest.approx(60e-9)


def test_kernels_of_a_framework_belong_to_the_part_between_their_neighbours() -> None:
    part = KernelCall(kernel="tvmscope.fallback.region_1", source_ops=("i0", "lgamma"))
    symbols = ("conv", "void at::native::vectorized<i0>", "void at::native::lgamma", "pool_kernel")
    found = tvm_device.match(symbols, (CALLS[0], part, CALLS[2]), {})
    assert [o.function for o in found] == ["conv", part.kernel, part.kernel, "pool"]


CALLS = (
    KernelCall(kernel="conv", source_ops=("conv1", "relu1")),
    KernelCall(kernel="conv", source_ops=("conv2",)),
    KernelCall(kernel="pool", source_ops=("pool1",)),
    KernelCall(kernel="dense", source_ops=("fc",)),
)
KNOWN = {k.name: k for k in (ir("conv", "conv2d_ab12_m64"), ir("pool"), ir("dense"))}


def owners(*symbols: str) -> list[tuple[str, tuple[str, ...]]]:
    return [(o.function, o.source_ops) for o in tvm_device.match(symbols, CALLS, KNOWN)]


def test_the_nth_kernel_of_a_symbol_is_the_nth_call() -> None:
    assert owners("conv2d_ab12_m64", "conv2d_ab12_m64", "pool_kernel", "dense_kernel") == [
        ("conv", ("conv1", "relu1")), ("conv", ("conv2",)), ("pool", ("pool1",)),
        ("dense", ("fc",)),
    ]  # fmt: skip


def test_a_function_of_several_kernels_and_a_batch_in_parts() -> None:
    two = ("pool_kernel", "pool_kernel_1")
    assert [o for _, o in owners("conv2d_ab12_m64", *two, *two)][1:] == [("pool1",)] * 4
    assert tvm_device.match(two, CALLS, KNOWN)[0].kernels == 2
    twice = owners(*["conv2d_ab12_m64"] * 4)
    assert [o for _, o in twice] == [("conv1", "relu1"), ("conv2",)] * 2


def test_a_librarys_kernel_belongs_to_the_call_between_its_neighbours() -> None:
    found = owners("conv2d_ab12_m64", "conv2d_ab12_m64", "pool_kernel", "sm90_xmma_gemm", "Memcpy")
    assert found[3] == ("dense", ("fc",))


def test_calls_that_vanished_leave_all_candidates() -> None:
    assert owners("conv2d_ab12_m64")[0] == ("conv", ("conv1", "relu1", "conv2"))


def test_a_trace_has_work_and_kinds() -> None:
    described = {
        "conv": ir("conv", "conv2d_ab12_m64", flops=8.0, bytes=4.0),
        "pool": ir("pool", kind="layout", flops=None),
    }
    spans = activities(
        ("conv2d_ab12_m64", 0, 10), ("conv2d_ab12_m64", 10, 20), ("pool_kernel", 21, 22),
        ("Memset (Device)", 22, 23),
    )  # fmt: skip
    found = tvm_device.trace(Recording(start=0, end=30, activities=spans), CALLS, described)
    assert [(s.kind, s.flops) for s in found.spans] == [
        ("compute", 8.0), ("compute", 8.0), ("layout", None), ("layout", None),
    ]  # fmt: skip
    assert found.host_s == pytest.approx(8e-9)
    assert found.device is not None
    assert found.device.launches == 4


def test_a_kernel_has_the_edges_of_its_call() -> None:
    first = replace(CALLS[0], edges=Edges(inputs=(0,)))
    last = replace(CALLS[1], kernel="copy", edges=Edges(outputs=(0,)))
    spans = activities(("conv_kernel", 0, 10), ("copy_kernel", 10, 20), ("Memset (Device)", 20, 21))
    found = tvm_device.trace(Recording(start=0, end=30, activities=spans), (first, last), {})
    assert [s.edges for s in found.spans] == [first.edges, last.edges, None]
    assert [k.edges for k in merge([found])] == [first.edges, last.edges, None]


def test_calls_of_one_kernel_are_rows_by_their_edges() -> None:
    spans = tuple(Span("t", (), 1e-6, edges=Edges(inputs=at)) for at in ((0,), (), ()))
    assert [(k.edges, k.calls) for k in merge([Trace(spans)])] == [
        (Edges(inputs=(0,)), 1), (Edges(), 2),
    ]  # fmt: skip


def test_says_which_launches_that_move_data_are_at_an_input_or_output() -> None:
    times = DeviceTimes(launches=4, gap_s=0.0, edge_s=0.0, overlap_s=0.0)
    where = (Edges(inputs=(0,)), Edges(), Edges(outputs=(0,)))
    moves = [kernel(f"t{i}", 1e-3, kind="layout", edges=at) for i, at in enumerate(where)]
    known = replace(profile("tvmscope", kernel("conv", 6e-3), *moves), device=times)
    said = "4 launches, 3 only move data (1 read inputs, 1 write outputs); kernels overlap"
    assert device_line(known).startswith(said)
    unknown = replace(known, kernels=(*known.kernels[:-1], replace(moves[-1], edges=None)))
    assert device_line(unknown).startswith("4 launches, 3 only move data; kernels overlap")


def test_a_graphs_kernels_are_those_of_the_eager_run() -> None:
    eager = [("a", ("conv1",)), ("b", ("relu1",)), ("a", ("conv2",))]
    assert torch_replay.like(eager, ["a", "b", "a"]) == [("conv1",), ("relu1",), ("conv2",)]
    assert torch_replay.like(eager, ["memset", "a", "b", "a"])[1:] == [
        ("conv1",), ("relu1",), ("conv2",),
    ]  # fmt: skip


def test_compiled_code_is_aligned_by_its_heavy_kernels() -> None:
    names = ("stem/conv2d", "stem/relu", "body/conv2d", "body/add", "head/linear")
    kernels = [
        "triton_poi_fused_0", "sm90_xmma_fprop_implicit_gemm_f16", "triton_poi_fused_convolution_1",
        "cutlass_conv2d_fprop", "triton_poi_fused_add_2", "nvjet_hsh_64x8",
    ]  # fmt: skip
    first, second, last = names[:2], names[2:4], names[4:]
    assert torch_replay.by_anchors(kernels, names) == [
        first, first, first, second, second, last,
    ]  # fmt: skip
    without = [*kernels[:5], "triton_red_fused_addmm_3"]
    found = torch_replay.by_anchors(without, names)
    assert found[0] == first
    assert found[-1] == (*second, *last), "convolutions alone still tell"
    assert torch_replay.by_anchors(kernels[:2], names) == [(), ()]


def test_the_waterfall_shows_gaps_overlaps_and_the_call() -> None:
    ours = replace(
        profile("tvmscope", kernel("conv", 6e-3, "conv1"), kernel("dense", 3e-3, "fc")),
        device=DeviceTimes(launches=2, gap_s=1e-3, edge_s=5e-4, overlap_s=2e-3),
    )
    theirs = replace(
        profile("torch", kernel("Conv", 8e-3, "conv1"), kernel("mm", 3e-3, "fc")),
        device=DeviceTimes(launches=9, gap_s=3e-3, edge_s=5e-4, overlap_s=0.0),
    )
    fall = waterfall(session(ours, theirs))
    assert fall is not None
    bars = {(b.kind, b.label): b.delta_s for b in fall.bars}
    assert bars["gap", "launch gaps"] == pytest.approx(-2e-3)
    assert bars["overlap", "kernels that overlap"] == pytest.approx(-2e-3)
    assert bars["host", "before and after all kernels"] == pytest.approx(0.0)
    assert ("host", "between kernels") not in bars
    found = session(ours, theirs)
    (said,) = verdicts(found, fall)
    assert "2 launches against 9" in said.why
    assert "waits 1.00 ms against 3.00 ms between kernels" in said.why
    assert fall.theirs_s + sum(b.delta_s for b in fall.bars) == pytest.approx(fall.ours_s)


def test_gaps_are_those_of_a_plain_run_where_a_device_has_timed_one() -> None:
    """Tracing lengthens gaps, of one backend more than of another."""
    times = DeviceTimes(launches=2, gap_s=5e-3, edge_s=3e-3, overlap_s=2e-3, plain_s=8e-3)
    ours = replace(
        profile("tvmscope", kernel("conv", 6e-3, "conv1"), kernel("dense", 3e-3, "fc")),
        device=times,
        end_to_end_s=9e-3,
    )
    theirs = replace(
        profile("torch", kernel("Conv", 8e-3, "conv1"), kernel("mm", 3e-3, "fc")),
        device=DeviceTimes(launches=9, gap_s=9e-3, edge_s=3e-3, overlap_s=0.0, plain_s=15e-3),
        end_to_end_s=16e-3,
    )
    assert (ours.busy_s, ours.waits_s) == (pytest.approx(7e-3), pytest.approx(1e-3))
    fall = waterfall(session(ours, theirs))
    assert fall is not None
    bars = {b.kind: b.delta_s for b in fall.bars if b.kind != "operator"}
    assert bars["gap"] == pytest.approx(-3e-3)
    assert bars["host"] == pytest.approx(0.0)
    assert bars["unexplained"] == pytest.approx(0.0)
    assert "overhead" not in bars
    (said,) = verdicts(session(ours, theirs), fall)
    assert "works 7.00 ms against 11.0 ms, and waits 1.00 ms against 4.00 ms" in said.why
    assert "in a plain run of 8.00 ms on the device, the device waits 1.00 ms" in device_line(ours)


def test_a_profile_times_plain_runs_on_the_device() -> None:
    times = DeviceTimes(launches=1, gap_s=0.0, edge_s=0.0, overlap_s=0.0)
    key = profile("tvmscope").key
    found = summarize(key, "a clock", [1.0], [1.0], [Trace((), 0.0, times)], on_device=[1e-3])
    assert found.device is not None
    assert found.device.plain_s == pytest.approx(1e-3)


class Ordered(FakeDeviceRunner):
    """Remembers the order of its plain runs and its profiler."""

    def __init__(self) -> None:
        super().__init__()
        self.order: list[str] = []

    def run(self) -> None:
        self.order.append("plain")
        super().run()

    def profiler(self) -> FakeProfiler:
        self.order.append("profiler")
        return FakeProfiler(super().run, False)


def test_on_a_gpu_plain_runs_come_before_the_profiler() -> None:
    runner = Ordered()
    profile_runner(runner, profile("tvmscope").key, 0.05)
    assert "plain" in runner.order
    assert runner.order.index("profiler") == len(runner.order) - 1


def test_a_gpus_profile_takes_plain_runs_from_the_measurement() -> None:
    times = DeviceTimes(launches=2, gap_s=5e-3, edge_s=3e-3, overlap_s=0.0, plain_s=9e-3)
    traced = replace(profile("tvmscope", kernel("conv", 6e-3, "conv1")), device=times)
    table = session(traced, traced)
    (result, *_) = table.results
    result = replace(
        result,
        measurement=Measurement(rounds_s=((7e-3,),)),
        device_measurement=Measurement(rounds_s=((6.5e-3,),), clock="cuda-events"),
    )
    found = as_measured(traced, result)
    assert (found.end_to_end_s, found.waits_s) == (pytest.approx(7e-3), pytest.approx(5e-4))
    assert as_measured(traced, None) == traced
    wall = as_measured(traced, replace(result, device_measurement=None))
    assert (wall.end_to_end_s, wall.device) == (pytest.approx(7e-3), traced.device)
    on_cpu = replace(traced, device=None)
    assert as_measured(on_cpu, result) == on_cpu


def test_kernels_that_take_longer_than_the_measured_run_are_said_to_stray() -> None:
    times = DeviceTimes(launches=1, gap_s=0.0, edge_s=0.0, overlap_s=0.0, plain_s=4e-3)
    slow = replace(profile("tvmscope", kernel("conv", 6e-3, "conv1")), device=times)
    slow = replace(slow, end_to_end_s=4.1e-3)
    assert slow.seen_s == pytest.approx(6e-3)
    assert "6.00 ms while it was profiled and 4.10 ms" in strays(session(slow))[slow.key]


def exported(*kernels: tuple[str, float, dict[str, Any]], text: str | None = None) -> Any:
    """A profile whose trace has these kernels: name, start, what they take."""
    events = [{"ph": "X", "cat": "kernel", "name": n, "ts": t, "args": a} for n, t, a in kernels]
    events.append({"ph": "X", "cat": "cpu_op", "name": "aten::conv2d", "ts": 0.0, "args": {}})

    def export(path: str) -> None:
        Path(path).write_text(text if text is not None else json.dumps({"traceEvents": events}))

    return SimpleNamespace(export_chrome_trace=export)


def launch(blocks: int, **more: Any) -> dict[str, Any]:
    return {
        "registers per thread": 96, "shared memory": 49152, "grid": [blocks, 2, 1],
        "block": [128, 1, 1], "est. achieved occupancy %": 25, **more,
    }  # fmt: skip


def test_what_kernels_take_is_read_from_the_profilers_trace() -> None:
    known = cupti.resources(exported(("gemm", 7.5, launch(5)), ("gemm", 2.25, launch(4))))
    assert known == {
        "gemm": [
            Resources(blocks=n, threads=128, registers=96, shared_bytes=49152, occupancy=0.25)
            for n in (8, 10)
        ]
    }


def test_an_older_trace_says_less_and_a_damaged_one_nothing() -> None:
    old = {"grid": [4, 1, 1], "block": [32, 2, 1]}
    known = cupti.resources(exported(("gemm", 1.0, old), ("other", 2.0, {"stream": 7})))
    assert known == {"gemm": [Resources(blocks=4, threads=64)], "other": [None]}
    assert cupti.resources(exported(text="[{")) == {}
    assert cupti.resources(exported(text="{}")) == {}


def test_the_nth_launch_of_a_name_takes_the_same_in_every_run() -> None:
    small, large = Resources(blocks=1, threads=32), Resources(blocks=9, threads=32)
    known: cupti.Taken = {"gemm": [small, large], "relu": [small, small]}
    assert cupti.taken(known, ["gemm", "copy", "gemm"]) == [small, None, large]
    assert cupti.taken(known, ["gemm"] * 3) == [None] * 3  # which is which is not known
    assert cupti.taken(known, ["relu"] * 3) == [small] * 3


class Torch:
    """A profiler that records one kernel, and counts how often its trace is exported."""

    class ProfilerActivity:
        CPU, CUDA = "cpu", "cuda"

    def __init__(self) -> None:
        self.profiler, self.exports = self, 0

    @contextmanager
    def profile(self, activities: Any) -> Iterator[Any]:
        events = [event(cupti.MARK, 0, 100, "CPU", note=True), event("gemm", 10, 20, "CUDA")]
        results = SimpleNamespace(events=lambda: events)
        made = exported(("gemm", 1.0, launch(4)))
        yield SimpleNamespace(
            profiler=SimpleNamespace(kineto_results=results),
            export_chrome_trace=lambda path: self._export(made, path),
        )

    def _export(self, made: Any, path: str) -> None:
        self.exports += 1
        made.export_chrome_trace(path)

    @contextmanager
    def record_function(self, name: str) -> Iterator[None]:
        yield


def test_only_the_first_run_is_asked_what_its_kernels_take() -> None:
    torch = Torch()
    recorder = cupti.Recorder(torch, lambda: None)
    recorder.run()
    recorder.run()
    assert torch.exports == 1
    taken = [r.activities[0].resources for r in recorder.recordings]
    assert (
        taken
        == [Resources(blocks=8, threads=128, registers=96, shared_bytes=49152, occupancy=0.25)] * 2
    )


def test_spills_of_a_generated_kernel_come_from_its_code() -> None:
    known = {"conv": ir("conv", "conv2d_ab12")}
    (call, *_), said = CALLS, Resources(blocks=98, threads=128, registers=96, occupancy=0.5)
    activity = Activity(name="conv2d_ab12", start=0, end=10, resources=said)
    (span,) = tvm_device.trace(
        Recording(start=0, end=10, activities=(activity,)), [call], known
    ).spans
    assert span.resources == replace(said, spilled_bytes=0)
    bare = replace(activity, resources=None)
    (span,) = tvm_device.trace(Recording(start=0, end=10, activities=(bare,)), [call], known).spans
    assert span.resources == Resources(
        blocks=98, threads=128, registers=96, shared_bytes=0, spilled_bytes=0
    )


LIMITS = {"resident": 5, "multiprocessors": 132, "sm_warps": 64}


@pytest.mark.parametrize(
    ("more", "expected"),
    [
        ({"blocks": 1000, "resident": 5}, 5 * 4 / 64),
        ({"blocks": 1000, "resident": 5, "sm_warps": 48}, 5 * 4 / 48),
        ({"blocks": 66, "resident": 5}, 0.5 * 4 / 64),  # half of the multiprocessors have a block
        ({"blocks": 1000, "threads": 33, "resident": 1}, 2 / 64),
        ({"resident": None}, None),
        ({"multiprocessors": None}, None),
        ({"sm_warps": None}, None),
    ],
)
def test_occupancy_follows_from_the_code_and_the_devices_limits(
    more: dict[str, Any], expected: float | None
) -> None:
    found = code("conv2d_ab12", **(LIMITS | more)).resources
    assert found.occupancy == (None if expected is None else pytest.approx(expected))


def test_occupancy_of_the_device_is_kept_and_a_missing_one_comes_from_the_code() -> None:
    known = {"conv": replace(ir("conv"), code=code("conv2d_ab12", **LIMITS))}
    assert known["conv"].code is not None
    (call, *_), of_code = CALLS, known["conv"].code.occupancy
    for said, expected in ((0.25, 0.25), (None, of_code)):
        taken = Resources(blocks=98, threads=128, registers=96, occupancy=said)
        ran = (Activity(name="conv2d_ab12", start=0, end=10, resources=taken),)
        (span,) = tvm_device.trace(Recording(start=0, end=10, activities=ran), [call], known).spans
        assert span.resources is not None
        assert span.resources.occupancy == expected


def test_a_row_of_the_profile_has_the_resources_of_its_longest_launch() -> None:
    small, large = Resources(blocks=1, threads=32), Resources(blocks=9, threads=32)
    spans = (
        Span("gemm", ("fc",), 1e-6, resources=small), Span("gemm", ("fc",), 5e-6, resources=large),
    )  # fmt: skip
    (found,) = merge([Trace(spans)])
    assert found.resources == large


def test_an_operator_has_the_resources_of_its_longest_kernel() -> None:
    def op(*kernels: tuple[str, int], inner: tuple[Any, ...] = ()) -> Any:
        launched = [SimpleNamespace(name=n, duration=d) for n, d in kernels]
        return SimpleNamespace(
            kernels=launched, cpu_children=inner, time_range=SimpleNamespace(start=0)
        )

    copy, small, large = (Resources(blocks=n, threads=32) for n in (1, 2, 3))
    calls = [op(("nchwToNhwc", 2), inner=(op(("gemm", 9)),)), op(("gemm", 5)), op()]
    known: cupti.Taken = {"nchwToNhwc": [copy], "gemm": [large, small]}
    assert torch_profiler._resources(calls, known) == [large, small, None]


def test_a_librarys_kernel_keeps_the_devices_name_of_its_longest_launch() -> None:
    known = {"dense": ir("dense", rule="cublaslt")}
    run = activities(("splitKreduce_kernel", 0, 2), ("nvjet_hsh_64x8_TNT", 2, 9))
    found = tvm_device.trace(Recording(start=0, end=9, activities=run), CALLS[3:], known)
    (row,) = merge([found])
    assert (row.name, row.symbol) == ("dense", "nvjet_hsh_64x8_TNT")
    own = tvm_device.trace(
        Recording(start=0, end=9, activities=activities(("dense_kernel", 0, 9))), CALLS[3:],
        {"dense": ir("dense")},
    )  # fmt: skip
    assert own.spans[0].symbol is None
