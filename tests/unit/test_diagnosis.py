"""Every rule fires where it should, stays silent where it should, and harms nothing."""

from __future__ import annotations

import json
from dataclasses import replace

import jsonschema
import pytest

from support import samples
from support.diagnosis_samples import (
    GOOD,
    HALF,
    MATMUL,
    SITUATIONS,
    against_peer,
    beside,
    buffer,
    built,
    good,
    gpu_nest,
    launches,
    moving,
    narrow,
    on_gpu,
    unscheduled,
    with_loops,
)
from support.profiles import kernel, nest, profile, session
from support.rows import key
from tvmscope.analysis import roofline
from tvmscope.core.diagnosis.findings import Finding
from tvmscope.core.profile import Edges
from tvmscope.core.session import Session, from_json, to_json
from tvmscope.diagnose import engine
from tvmscope.diagnose.rule import Rule
from tvmscope.report.formats.json_ import schema


def findings(found: Session, rule: str | None = None) -> list[Finding]:
    done = engine.diagnose(found)
    assert not [w for w in done.warnings if w.startswith("diagnosis")]
    return [f for f in done.findings if rule in (None, f.rule)]


def test_every_rule_has_its_situations() -> None:
    rules, problems = engine.rules()
    assert set(rules) == set(SITUATIONS)
    assert problems == []


@pytest.mark.parametrize("rule", SITUATIONS)
def test_fires_first_where_it_is_the_cause(rule: str) -> None:
    found = findings(SITUATIONS[rule][0])
    assert found[0].rule == rule
    assert found[0].severity in ("high", "medium", "low", "info")
    assert found[0].effort in ("minutes", "hours", "retune", "none")
    assert any(c.isdigit() for c in found[0].evidence), "evidence is numbers"


@pytest.mark.parametrize("rule", SITUATIONS)
def test_stays_silent_on_the_near_miss(rule: str) -> None:
    assert findings(SITUATIONS[rule][1], rule) == []


@pytest.mark.parametrize("rule", SITUATIONS)
def test_no_estimate_is_beyond_the_run(rule: str) -> None:
    hit = SITUATIONS[rule][0]
    run_s = max((p.end_to_end_s for p in hit.profiles), default=1.0)
    for finding in findings(hit):
        assert finding.saving_s is None or 0 <= finding.saving_s <= run_s


@pytest.mark.parametrize("rule", SITUATIONS)
def test_findings_survive_the_session_file(rule: str) -> None:
    done = engine.diagnose(SITUATIONS[rule][0])
    data = json.loads(json.dumps(to_json(done)))
    jsonschema.validate(data, schema())
    assert from_json(data).findings == done.findings


# ---- estimates and fixes --------------------------------------------------------------------


def test_a_missing_schedule_is_fixed_by_our_pipeline() -> None:
    (found,) = findings(unscheduled(), "no-schedule")
    assert found.fix == {"pipeline": "tvmscope"}
    # 2 GFLOP at 90 % of 200 GFLOP/s take 11 ms
    assert found.saving_s == pytest.approx(4.9 - 2e9 / 200e9 / 0.9)


def test_a_short_kernel_on_a_gpu_has_no_headroom_up_to_its_roof() -> None:
    for seconds, expected in ((1e-4, 1), (5e-6, 0)):
        flops = 0.05 * 50e12 * seconds
        heavy = kernel("conv2d_bias", seconds, "conv1", flops=flops, bytes=flops / 1e3)
        ir = gpu_nest(heavy.name, buffer((64, 64), "float32"), rule="triton")
        assert len(findings(on_gpu(heavy, irs=(ir,)), "untuned-kernel")) == expected


def test_our_own_pipeline_is_no_fix_for_itself() -> None:
    (found,) = findings(unscheduled(pipeline="tvmscope"), "no-schedule")
    assert found.fix == {}
    assert found.effort == "hours"


def test_what_another_backend_needs_counts_beside_the_roof() -> None:
    alone = unscheduled()
    peer = profile("onnxruntime", kernel("Conv", 0.04, "conv1"))
    rows = (*alone.results, samples.result("onnxruntime", peer.end_to_end_s))
    both = replace(alone, profiles=(*alone.profiles, peer), results=rows)
    (found,) = findings(both, "no-schedule")
    roof = 2e9 / 200e9 / 0.9
    assert found.saving_s == pytest.approx(4.9 - (0.04 * roof) ** 0.5)


def test_estimates_are_about_the_measured_run_not_the_profiled_one() -> None:
    calm = unscheduled()
    (found,) = findings(calm, "no-schedule")
    slow = tuple(
        replace(
            p,
            end_to_end_s=2 * p.end_to_end_s,
            kernels=tuple(replace(k, total_s=2 * k.total_s) for k in p.kernels),
        )
        for p in calm.profiles
    )
    (again,) = findings(replace(calm, profiles=slow), "no-schedule")
    assert again.saving_s == pytest.approx(found.saving_s)


def test_schedules_that_were_left_out_come_back() -> None:
    ours = built(unscheduled(), disabled_passes="cpu-rules,fast-math")
    (found,) = findings(ours, "no-schedule")
    assert found.fix == {"pipeline": "tvmscope", "disabled_passes": ["fast-math"]}


def test_idle_cores_halve_what_can_be_shared() -> None:
    (found,) = findings(SITUATIONS["cores-unused"][0], "cores-unused")
    # 10 ms on one core; 1.4 GFLOP at 200 GFLOP/s of both take 7 ms
    assert found.saving_s == pytest.approx(0.01 - 1.4e9 / 200e9)
    assert found.fix == {"threads": 2}


def test_a_pass_comes_back_alone() -> None:
    slow = with_loops(("parallel", 56), ("serial", 64), rule="fallback")
    both = built(slow, disabled_passes="pack-matmul,sink-reshapes")
    dense, other = findings(both, "pass-disabled")
    assert dense.fix == {"disabled_passes": ["sink-reshapes"]}
    assert dense.kernels == ("fused_dense_add",)
    assert other.fix == {"disabled_passes": ["pack-matmul"]}
    assert other.saving_s is None, "nothing is known, so nothing is promised"


def test_winograd_is_worth_what_the_compiler_reckons() -> None:
    (found,) = findings(SITUATIONS["winograd-off"][0], "winograd-off")
    # 14 x 14 tiles of 36 products, half as much again for the transforms, for 9 x 56 x 56
    assert found.saving_s == pytest.approx(0.01 * (1 - 1.5 * 36 * 14**2 / (9 * 56**2)))
    assert found.fix == {"winograd": True}


def test_without_fusion_a_kernel_joins_the_one_before_it() -> None:
    full = buffer((1, 64, 56, 56), "float32")
    irs = (
        nest("relu", *GOOD, buffers=(full, full)),
        nest("add", *GOOD, buffers=(full, full, full)),
    )
    off = beside(
        kernel("relu", 1e-3, "a"), good("fused_conv2d1"), kernel("add", 3e-3, "b"), irs=irs
    )
    assert findings(off, "unfused-chain") == []
    (found,) = findings(built(off, disabled_passes="fuse-ops,fuse-tir"), "unfused-chain")
    assert found.saving_s == pytest.approx(1e-3 + 2e-3), "one of the three tensors is still read"
    assert found.fix == {"disabled_passes": []}


def test_a_graph_that_was_measured_says_what_it_saves() -> None:
    found = launches(1000, 5e-3, "cuda:sm_90")
    row = found.results[0]
    graph = samples.result(key("tvmscope", "cuda:sm_90", graph=True), 3e-3)
    (known,) = findings(replace(found, results=(row, graph)), "launch-bound")
    assert known.saving_s == pytest.approx(4e-3)


def test_a_fixed_row_is_diagnosed_in_place_of_the_one_it_was_made_from() -> None:
    slow = narrow("sse2")
    row = samples.result(key("tvmscope", fixed=True), 0.0102)
    fast = profile(row.key, kernel("fused_conv2d_add_relu", 0.01, "conv1"))
    fixed = replace(
        slow, results=(*slow.results, row), profiles=(*slow.profiles, fast),
        targets=(*slow.targets, samples.CPU),
    )  # fmt: skip
    assert findings(slow, "target-feature-unused")
    assert findings(fixed, "target-feature-unused") == []


def test_a_serial_kernel_wins_by_the_cores_it_leaves_idle() -> None:
    (found,) = findings(with_loops(("serial", 64), ("vectorized", 16)), "serial-kernel")
    assert found.saving_s == pytest.approx(0.01 / 2)
    assert found.kernels == ("fused_dense_add",)
    assert found.source_ops == ("fc",)


def test_iterations_that_do_not_divide_among_the_cores_leave_one_waiting() -> None:
    (found,) = findings(with_loops(("parallel", 3), ("vectorized", 16)), "serial-kernel")
    assert found.saving_s == pytest.approx(0.01 / 4)  # as long as four, so a quarter is idle
    assert "1.5 of 2 cores" in found.evidence
    nearly_even = with_loops(("parallel", 5), ("serial", 32), ("vectorized", 16))
    assert findings(nearly_even, "serial-kernel") == []


def test_blocks_that_do_not_divide_among_multiprocessors_are_no_finding() -> None:
    waves = on_gpu(MATMUL, irs=(gpu_nest(MATMUL.name, *HALF, blocks=140),))
    target = replace(samples.CUDA, attrs={"multiprocessors": 132})
    assert findings(replace(waves, targets=(target,)), "serial-kernel") == []


def test_a_tiny_serial_kernel_is_left_alone() -> None:
    small = beside(
        kernel("fused_dense", 1.5e-3, "fc", calls=100),
        irs=(nest("fused_dense", ("serial", 64), ("vectorized", 16)),),
    )
    assert findings(small, "serial-kernel") == []


def test_the_estimate_stops_at_the_roof() -> None:
    near = with_loops(("serial", 64), ("vectorized", 16), counts={"flops": 1.6e9, "bytes": 2e6})
    (found,) = findings(near, "serial-kernel")
    assert found.saving_s == pytest.approx(0.01 - 1.6e9 / 200e9)


def test_missing_features_are_named_with_the_fix() -> None:
    (found,) = findings(narrow("sse2"), "target-feature-unused")
    assert "avx2" in found.evidence
    assert "fma" in found.evidence
    assert found.fix == {"target": "cpu"}


def test_a_cross_build_may_lack_what_this_machine_has() -> None:
    other = narrow("sse2")
    rows = tuple(replace(r, status="unavailable", measurement=None) for r in other.results)
    elsewhere = samples.result("torch", 0.1)
    alone = replace(other, results=(*rows, elsewhere), profiles=())
    assert findings(alone, "target-feature-unused") == []


def test_an_old_gpu_architecture_is_found() -> None:
    old = replace(samples.CUDA, arch="sm_50")
    base = session(targets=(old,))
    gpu = replace(base, environment=replace(base.environment, gpu="NVIDIA H200"))
    (found,) = findings(gpu, "target-feature-unused")
    assert found.fix == {"target": "cuda"}
    right = replace(gpu, targets=(samples.CUDA,))
    assert findings(right, "target-feature-unused") == []


@pytest.mark.parametrize(
    "buffers, cause, fix",
    [
        ((buffer((512, 512), "float32"),), "float32", {"precision": "float16"}),
        ((buffer((1, 64, 56, 56)),), "channels", {}),
        ((buffer((512, 510)),), "multiple of eight", {}),
        ((buffer((1, 12, 128, 128)),), "no rule", {}),
        (HALF, "no rule", {}),
    ],
    ids=["dtype", "layout", "alignment", "attention", "intrinsic"],
)
def test_unused_tensor_cores_come_with_the_reason(buffers, cause: str, fix: dict) -> None:
    heavy = replace(MATMUL, name="fused_conv2d") if cause == "channels" else MATMUL
    (found,) = findings(on_gpu(heavy, irs=(gpu_nest(heavy.name, *buffers),)), "tensor-cores-unused")
    assert cause in found.title
    assert found.fix == fix


def test_a_librarys_call_is_not_said_to_miss_tensor_cores() -> None:
    nest = gpu_nest(MATMUL.name, *HALF)
    assert findings(on_gpu(MATMUL, irs=(nest,)), "tensor-cores-unused")
    called = replace(nest, rule="cublaslt")
    for symbol in (None, "nvjet_hsh_128x64_64x8_2x1_v_bz_TNT", "gemvNSP_kernel"):
        heavy = replace(MATMUL, symbol=symbol)
        assert findings(on_gpu(heavy, irs=(called,)), "tensor-cores-unused") == []


@pytest.mark.parametrize(
    ("buffers", "cause", "fix"),
    [
        ((buffer((512, 512), "float32"),), "the data is float32", {"precision": "float16"}),
        (HALF, "the library's kernel multiplies on the ordinary cores", {}),
    ],
)
def test_a_librarys_kernel_whose_symbol_names_ordinary_cores_misses_them(
    buffers, cause: str, fix: dict
) -> None:
    called = replace(gpu_nest(MATMUL.name, *buffers), rule="cublaslt")
    heavy = replace(MATMUL, symbol="ampere_sgemm_32x128_tn")
    (found,) = findings(on_gpu(heavy, irs=(called,)), "tensor-cores-unused")
    assert cause in found.title
    assert found.fix == fix


def test_a_gpu_kernel_with_few_blocks_leaves_multiprocessors_idle() -> None:
    few = on_gpu(MATMUL, irs=(gpu_nest(MATMUL.name, *HALF, blocks=16),))
    target = replace(samples.CUDA, attrs={"multiprocessors": 132})
    assert findings(replace(few, targets=(target,)), "serial-kernel")
    many = on_gpu(MATMUL, irs=(gpu_nest(MATMUL.name, *HALF, blocks=512),))
    assert findings(replace(many, targets=(target,)), "serial-kernel") == []


def test_scatters_of_tvm_are_fixed_by_the_pass_and_leave_one_pass_over_their_data() -> None:
    hit = SITUATIONS["hot-operator"][0]
    (found,) = findings(hit, "hot-operator")
    kernel_time = next(k for k in hit.profiles[0].kernels if k.name == "scatter_nd")
    least = roofline.limits(hit, hit.profiles[0]).memory_s(kernel_time)
    assert least is not None
    assert found.saving_s == pytest.approx(8e-3 - least / 0.6)
    assert found.fix == {"disabled_passes": []}
    assert "fast-scatter" in found.advice


def test_without_a_roof_scatters_are_held_against_the_fastest_kernel_of_the_run() -> None:
    fast = kernel("fused_add", 1e-3, "add", bytes=1e9)
    hot = beside(fast, kernel("scatter_nd", 8e-3, "index_put", bytes=1e8), roofs=())
    (found,) = findings(hot, "hot-operator")
    assert found.saving_s == pytest.approx(8e-3 - 1e-4)


def test_scatters_that_the_pass_made_become_one_by_hand() -> None:
    (found,) = findings(beside(kernel("scatter_rows", 8e-3, "put", calls=32)), "hot-operator")
    assert found.saving_s == pytest.approx(8e-3 * 31 / 32)
    assert found.fix == {}
    assert "torch.cat" in found.advice


@pytest.mark.parametrize(("seconds", "said"), [(0.15e-3, 0), (0.3e-3, 1)])
def test_tvm_scatters_are_worth_a_word_from_two_percent_on(seconds: float, said: int) -> None:
    found = findings(beside(kernel("scatter_nd", seconds, "put", bytes=1e3)), "hot-operator")
    assert len(found) == said


def test_a_hot_transpose_is_reported_once() -> None:
    hot = beside(kernel("transpose", 5e-3, "permute", kind="layout", bytes=40e6))
    assert [f.rule for f in findings(hot) if "transpose" in f.kernels] == ["hot-operator"]


def test_a_launch_bound_gpu_row_is_fixed_by_a_graph() -> None:
    (found,) = findings(launches(1000, 5e-3, "cuda:sm_90"), "launch-bound")
    assert found.fix == {"graph": True}


def test_large_kernels_with_idle_time_are_not_launch_bound() -> None:
    assert findings(launches(20, 1e-3), "launch-bound") == []


def test_failed_rules_are_part_of_the_evidence() -> None:
    hit = SITUATIONS["fallback-operator"][0]
    failed = "schedule rule 'matmul' failed on fused_dense_add: oops"
    rows = tuple(replace(r, warnings=(failed,)) for r in hit.results)
    (found,) = findings(replace(hit, results=rows), "fallback-operator")
    assert "matmul" in found.evidence


def test_the_slower_kernels_of_a_bad_tuning_are_named() -> None:
    (found,) = findings(SITUATIONS["tuned-slower"][0], "tuned-slower")
    assert found.kernels == ("fused_dense",)
    assert found.saving_s == pytest.approx(0.01)


def test_a_profile_taken_in_a_bad_minute_is_named() -> None:
    calm = profile("tvmscope", kernel("fused_conv2d", 0.01, "conv1"))
    wild = replace(calm, end_to_end_s=0.02)
    rows = (samples.result("tvmscope", 0.0102),)
    assert findings(samples.session(*rows, profiles=(calm,)), "too-noisy") == []
    (found,) = findings(samples.session(*rows, profiles=(wild,)), "too-noisy")
    assert "unreliable" in found.evidence


# ---- which rows -----------------------------------------------------------------------------


def test_tvm_as_it_comes_is_not_diagnosed_beside_our_row() -> None:
    both = unscheduled()
    ours = profile("tvmscope", kernel("fused_conv2d", 0.01, "conv1", flops=1.4e9, bytes=2e6))
    rows = (*both.results, samples.result("tvmscope", 0.0102))
    loops = (*both.kernel_ir, nest("fused_conv2d", *GOOD))
    whole = replace(both, profiles=(*both.profiles, ours), results=rows, kernel_ir=loops)
    assert findings(whole) == []


def test_a_session_without_profiles_has_no_kernel_findings() -> None:
    assert findings(samples.session(samples.result("tvmscope", 0.05))) == []


def test_a_healthy_session_has_no_findings() -> None:
    assert findings(beside()) == []


@pytest.mark.parametrize("make", samples.ALL.values(), ids=samples.ALL)
def test_no_session_makes_a_rule_fail(make) -> None:
    findings(make())


# ---- the engine -----------------------------------------------------------------------------


def stand_in(monkeypatch: pytest.MonkeyPatch, **found) -> None:
    monkeypatch.setattr(engine, "discover", lambda *_: (found, []))


def simple(identity: str, check) -> Rule:
    return Rule(id=identity, title="t", needs=(), check=check)


def worth(rule: str, saving_s: float | None, severity: str = "low") -> Finding:
    return Finding(
        rule=rule, severity=severity, effort="none", title="t", evidence="e", advice="a",
        saving_s=saving_s,
    )  # fmt: skip


def test_a_rule_that_raises_is_a_warning_and_the_others_count(monkeypatch) -> None:
    def broken(_: Session):
        raise ZeroDivisionError("by zero\nand more")

    stand_in(
        monkeypatch,
        a=simple("broken", broken),
        b=simple("fine", lambda s: iter([worth("fine", 1.0)])),
    )
    done = engine.diagnose(samples.session())
    assert [f.rule for f in done.findings] == ["fine"]
    (warning,) = done.warnings
    assert "broken" in warning
    assert "ZeroDivisionError" in warning
    assert engine.diagnose(done).warnings == done.warnings, "said once"


def test_findings_are_sorted_by_what_they_are_worth(monkeypatch) -> None:
    found = [
        worth("info", 9.0, "info"),
        worth("none", None),
        worth("small", 0.1),
        worth("large", 1.0),
    ]
    stand_in(monkeypatch, a=simple("a", lambda s: iter(found)))
    order = [f.rule for f in engine.diagnose(samples.session()).findings]
    assert order == ["large", "small", "none", "info"]


def test_a_rule_is_not_asked_without_what_it_needs(monkeypatch) -> None:
    asked = []
    rule = Rule(id="a", title="t", needs=("profiles",), check=lambda s: iter(asked.append(s) or ()))
    stand_in(monkeypatch, a=rule)
    engine.diagnose(samples.session())
    assert not asked
    engine.diagnose(samples.complete())
    assert asked


def test_a_file_without_a_rule_is_a_warning(monkeypatch) -> None:
    stand_in(monkeypatch, odd="not a rule", a=simple("same", iter), b=simple("same", iter))
    known, problems = engine.rules()
    assert list(known) == ["same"]
    assert len(problems) == 2


def test_what_a_fix_has_achieved_is_kept() -> None:
    done = engine.diagnose(unscheduled())
    proven = replace(done, findings=tuple(replace(f, achieved_s=4.5) for f in done.findings))
    assert [f.achieved_s for f in engine.diagnose(proven).findings] == [4.5] * len(done.findings)


@pytest.mark.parametrize("rule", SITUATIONS)
def test_hostile_names_change_no_finding_and_stay_short(rule: str) -> None:
    hit = SITUATIONS[rule][0]
    evil = samples.HOSTILE * 50

    def worse(name: str) -> str:
        return f"{name}_{evil}" if rule not in _NAMED else name

    profiles = tuple(
        replace(
            p,
            kernels=tuple(replace(k, name=worse(k.name), source_ops=(evil,)) for k in p.kernels),
        )
        for p in hit.profiles
    )
    loops = tuple(replace(ir, name=worse(ir.name)) for ir in hit.kernel_ir)
    found = findings(replace(hit, profiles=profiles, kernel_ir=loops))
    assert found[0].rule == rule
    assert all(len(f.evidence) < 700 and len(f.title) < 120 for f in found)


_NAMED = ("hot-operator", "unfused-chain", "casts")
"""Rules that know operators by the kernel's name."""


@pytest.mark.parametrize(
    ("hit", "cause"),
    [
        (against_peer(0.004), "loads or padding: it is at 70% of the multiply-add roof"),
        (against_peer(0.004, ("parallel", 3), ("vectorized", 16)), "threads: its 3 parallel tasks"),
        (against_peer(0.004, flops=1e6, bytes=2e8), "bandwidth"),
        (against_peer(0.004, calls=1000), "latency: a call takes 10"),
    ],
    ids=["tile", "threads", "bandwidth", "latency"],
)
def test_says_why_another_backend_is_faster(hit: Session, cause: str) -> None:
    (found,) = findings(hit, "slower-than-peer")
    assert cause in found.evidence
    assert found.saving_s == pytest.approx(0.006, rel=0.05)


@pytest.mark.parametrize(
    ("way", "words"), [("gpu", "They interrupt CUDA graphs."), ("copied", "the GPU waits while")]
)
def test_says_what_a_framework_costs_a_gpu(way: str, words: str) -> None:
    part = kernel("tvmscope.fallback.region_1", 0.2, "gelu/Gelu")
    found = on_gpu(MATMUL, part, irs=(gpu_nest(MATMUL.name, *HALF),))
    rows = tuple(replace(r, settings={**r.settings, "fallback": way}) for r in found.results)
    (told,) = findings(replace(found, results=rows), "runs-in-framework")
    assert words in told.evidence
    (plain,) = findings(beside(part), "runs-in-framework")
    assert "CUDA" not in plain.evidence


INPUT, SECOND, MIDDLE, OUTPUT = (
    Edges(inputs=(0,)), Edges(inputs=(1,)), Edges(), Edges(outputs=(0,)),
)  # fmt: skip


@pytest.mark.parametrize(
    ("where", "blamed", "counts"),
    [
        ((INPUT, MIDDLE, OUTPUT), ("transpose1",), "1 at the inputs, 1 at the outputs, 1 in"),
        ((MIDDLE, MIDDLE), ("transpose0", "transpose1"), "0 at the inputs, 0 at the outputs, 2 in"),
        ((INPUT, INPUT, SECOND), ("transpose1",), "3 at the inputs, 0 at the outputs, 0 in"),
        ((OUTPUT, OUTPUT), ("transpose1",), "0 at the inputs, 2 at the outputs, 0 in"),
    ],
)
def test_a_launch_that_moves_data_is_needed_once_per_input_and_output(
    where: tuple[Edges, ...], blamed: tuple[str, ...], counts: str
) -> None:
    (found,) = findings(moving(*where), "moving-launches")
    assert found.kernels == blamed
    assert counts in found.evidence
    assert found.saving_s == pytest.approx(5e-6 * len(blamed))


def test_of_launches_that_move_data_at_unknown_places_two_are_left_alone() -> None:
    assert findings(moving(None, None), "moving-launches") == []
    assert findings(moving(None, MIDDLE), "moving-launches") == []
    (found,) = findings(moving(None, None, None), "moving-launches")
    assert "all but 2 of them" in found.evidence
    assert len(found.kernels) == 3
