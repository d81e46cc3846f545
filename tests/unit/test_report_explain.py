"""Findings and kernels as text: what a reader sees, and that foreign names harm nothing."""

from __future__ import annotations

from dataclasses import replace
from io import StringIO
from typing import Any

import pytest
from rich.console import Console, RenderableType

from support import samples
from support.diagnosis_samples import SITUATIONS
from support.profiles import kernel, nest, profile, session
from support.rows import key
from tvmscope.core.diagnosis.findings import Attempt
from tvmscope.core.profile import Buffer, KernelIR
from tvmscope.core.session import Session
from tvmscope.diagnose.engine import diagnose
from tvmscope.report.sections.schedule import in_words
from tvmscope.report.terminal import explain

TRACE = (
    'b0 = sch.get_sblock(name="root", func_name="main")',
    "b1, b2, b3 = sch.get_child_blocks(b0)",
    "sch.compute_inline(block=b2)",
    "l11, l12, l13 = sch.get_loops(block=b1)",
    "l16, l17, l18 = sch.split(loop=l12, factors=[None, 2, 16], preserve_unit_iters=True)",
    "l19, l20 = sch.split(loop=l13, factors=[None, 128])",
    "sch.reorder(l11, l16, l19, l20, l17, l18)",
    "l21 = sch.fuse(l11, l16, preserve_unit_iters=True)",
    "sch.reverse_compute_at(block=b3, loop=l21, preserve_unit_loops=False, index=-1)",
    "sch.parallel(loop=l21)",
    "sch.unroll(loop=l17)",
    "sch.vectorize(loop=l18)",
    "b26 = sch.decompose_reduction(block=b1, loop=l19)",
)
"""What our matmul schedule leaves."""


def text(view: RenderableType, width: int = 100) -> str:
    stream = StringIO()
    Console(file=stream, width=width, color_system=None).print(view)
    return stream.getvalue()


def ours(**more) -> KernelIR:
    loops = (("parallel", 56), ("serial", 64), ("unrolled", 6), ("vectorized", 16))
    return nest("fused_dense", *loops, trace=TRACE, **{"flops": 2e6, "bytes": 1 << 20, **more})


def with_kernel(ir: KernelIR) -> Session:
    timed = kernel("fused_dense", 1e-3, "fc", flops=2e6 * 4, bytes=4 << 20, calls=4)
    return session(profile("tvmscope", timed), kernel_ir=(ir,))


def shown(*irs: KernelIR, width: int = 100) -> str:
    titled = tuple(explain.Titled(f"path{i}", with_kernel(ir), ir) for i, ir in enumerate(irs))
    return text(explain.KernelView(titled), width)


def test_broken_lines_stay_under_their_beginning() -> None:
    found = diagnose(SITUATIONS["untuned-kernel"][0])
    lines = text(explain.findings(found), 60).splitlines()
    start = next(i for i, line in enumerate(lines) if line.startswith("1. "))
    body = [line for line in lines[start + 1 :] if line.strip() and "[untuned" not in line]
    evidence = body[: next(i for i, line in enumerate(body) if "tvmscope tune" in line) + 1]
    assert len(evidence) > 2
    assert all(line.startswith("   ") for line in evidence)
    steps = shown(ours(), width=60).splitlines()
    (fourth,) = [i for i, line in enumerate(steps) if line.startswith("  4. ")]
    assert steps[fourth + 1].startswith("     1.")


def test_one_call_is_not_several_and_the_bound_is_named() -> None:
    ir = ours()
    timed = kernel("fused_dense", 1e-3, "fc", flops=2e6, bytes=1 << 20)
    one = explain.Titled("path", session(profile("tvmscope", timed), kernel_ir=(ir,)), ir)
    assert "in 1 call, " in text(explain.KernelView((one,)))
    assert "in 4 calls, " in shown(ir)
    assert "of its roof, bound by neither" in shown(ir)


def test_each_primitive_is_said_in_words() -> None:
    assert in_words(TRACE) == [
        "computed stage 2 where it is used: it needs no buffer",
        "split loop 1.2 into the rest x 2 x 16: work goes tile by tile",
        "split loop 1.3 into the rest x 128: work goes tile by tile",
        "ordered the loops from outside to inside: 1.1 > 1.2a > 1.3a > 1.3b > 1.2b > 1.2c",
        "joined loops 1.1 and 1.2a: more iterations to distribute",
        "computed stage 3 inside loop 1.1+1.2a, while its input is still in the cache",
        "ran loop 1.1+1.2a in parallel on all threads",
        "unrolled loop 1.2b: values stay in registers",
        "computed loop 1.2c in vector registers",
        "set the sums of stage 1 to zero before loop 1.3a, not inside it",
    ]


def test_what_a_search_chose_is_shown_in_place_of_its_name() -> None:
    lines = (
        'b0 = sch.get_sblock(name="matmul", func_name="main")',
        "l1, l2 = sch.get_loops(block=b0)",
        "v3, v4 = sch.sample_perfect_tile(loop=l1, n=2, decision=[32, 16])",
        "l5, l6 = sch.split(loop=l1, factors=[v3, v4])",
        'sch.bind(loop=l5, thread_axis="blockIdx.x")',
    )
    assert in_words(lines) == [
        "split loop matmul.1 into 32 x 16: work goes tile by tile",
        "spread loop matmul.1a over the GPU's blockIdx.x",
    ]


@pytest.mark.parametrize(
    "line", ["sch.new_thing(block=b1, depth=3)", "no python at all (", "", "x = 1", "f(" * 400]
)
def test_a_line_it_does_not_know_is_shown_and_ends_nothing(line: str) -> None:
    assert len(in_words([line, "sch.parallel(loop=l1)"])) == 2


def test_a_kernel_shows_loops_buffers_schedule_and_its_roof() -> None:
    page = shown(ours())
    for words in (
        "parallel i0 x 56",
        "vectorized i3 x 16",
        "out = out + a * b",
        "64x64",
        "16 KiB",
        "rule: matmul",
        "4 calls",
        "of its roof",
        "computes fc",
        "ran loop 1.1+1.2a",
    ):
        assert words in page  # fmt: skip


def test_a_kernel_without_a_schedule_says_so() -> None:
    page = shown(nest("k", ("serial", 64), rule=None))
    assert "no schedule rule took it" in page
    assert "No schedule was recorded" in page


def test_two_kernels_stand_side_by_side_where_there_is_room() -> None:
    plain = nest("fused_dense", ("serial", 64), rule=None)
    wide = shown(plain, ours(), width=200)
    assert any("serial i0 x 64" in line and "parallel i0 x 56" in line for line in wide.split("\n"))
    narrow = shown(plain, ours(), width=80)
    assert "serial i0 x 64" in narrow
    assert "parallel i0 x 56" in narrow


def test_sizes_that_only_a_run_knows_are_left_open() -> None:
    buffers = (
        Buffer(name="a", shape=(-1, 4), dtype="float32", scope="global"),
        Buffer(name="b", shape=(4, 4), dtype="bfloat16", scope="shared"),
    )
    page = shown(ours(buffers=buffers))
    assert "32 B" in page
    assert "shared" in page


@pytest.mark.parametrize("rule", SITUATIONS)
def test_findings_show_evidence_advice_and_worth(rule: str) -> None:
    done = diagnose(SITUATIONS[rule][0])
    page = " ".join(text(explain.findings(done)).split())
    assert f"[{rule}]" in page
    assert done.findings[0].advice[:40] in page
    assert done.findings[0].evidence[:40] in page


def test_no_finding_is_said() -> None:
    page = text(explain.findings(with_kernel(ours())))
    assert "No findings" in page
    bare = text(explain.findings(samples.session()))
    assert "no kernel profile" in bare


def attempt(predicted_s: float | None, achieved_s: float | None, **more: Any) -> Attempt:
    return Attempt(
        **{
            "rule": "no-schedule", "title": "No schedule was applied", "key": key("tvmscope"),
            "fix": {"pipeline": "tvmscope"}, "predicted_s": predicted_s,
            "achieved_s": achieved_s, "outcome": "kept", **more,
        }
    )  # fmt: skip


def test_calibration_counts_what_came_close() -> None:
    tried = [attempt(p, 1.0) for p in (1.0, 1.34, 1.36, 0.66, 0.6, -0.1)]
    tried += [attempt(1.0, None), attempt(None, 1.0)]
    page = text(explain.findings(with_kernel(ours()), tried))
    assert "of 6 fixes tried, 3 were predicted within 35%" in page
    assert "calibration" not in text(explain.findings(with_kernel(ours())))


def test_fixes_are_listed_with_prediction_outcome_and_reason() -> None:
    tried = (
        attempt(5.0, 4.5, ci95_s=(4.4, 4.6), reason="100 times as fast"),
        attempt(0.1, -0.02, fix={"disabled_passes": []}, outcome="reverted", reason="not faster"),
        attempt(0.1, None, outcome="open"),
    )
    page = text(explain.findings(replace(with_kernel(ours()), fixes=tried)), 200)
    for word in ("5.00 s", "4.50 s", "4.40-4.60 s", "kept: 100 times as fast", "reverted: not",
                 "−20.0 ms", "disabled_passes = none", "not finished"):  # fmt: skip
        assert word in page


def test_hostile_names_reach_no_terminal() -> None:
    evil = samples.HOSTILE * 50
    ir = replace(
        ours(), name=evil, rule=evil, trace=(f"sch.parallel(loop={evil!r})", evil),
        buffers=(Buffer(name=evil, shape=(1,), dtype=evil, scope=evil),),
    )  # fmt: skip
    ir = replace(ir, tree=(replace(ir.tree[0], text=evil, mode=evil),))
    timed = profile("tvmscope", kernel(evil, 1e-3, evil))
    page = text(explain.KernelView((explain.Titled(evil, session(timed), ir),)))
    finding = replace(
        diagnose(SITUATIONS["casts"][0]).findings[0], rule=evil, title=evil, evidence=evil,
        advice=evil, severity=evil, effort=evil, fix={evil: evil},
    )  # fmt: skip
    tried = attempt(1.0, 1.0, rule=evil, title=evil, fix={evil: evil}, reason=evil)
    hostile = replace(samples.session(), findings=(finding,), fixes=(tried,))
    page += text(explain.findings(hostile, (tried,)))
    assert "\x1b" not in page
    assert len(page) < 12_000


@pytest.mark.parametrize(
    ("symbol", "said"),
    [("nvjet_hsh_64x8_TNT", "wgmma"), ("some_kernel", "a library's kernel, not read")],
)
def test_a_librarys_kernel_has_its_symbol_and_what_it_tells(symbol: str, said: str) -> None:
    ir = ours(rule="cublaslt")
    timed = kernel("fused_dense", 1e-3, "fc", symbol=symbol)
    found = session(profile("tvmscope", timed), kernel_ir=(ir,))
    view = text(explain.KernelView((explain.Titled("path", found, ir),)), 200)
    assert f"the library's kernel: {symbol}; matrix instruction: {said}" in view
    assert "matrix instruction" not in shown(ours())
