"""The Markdown document: same content, nothing foreign with a meaning."""

from __future__ import annotations

import re
from itertools import groupby

import pytest
from markdown_it import MarkdownIt

from support import report_samples, samples
from support.profiles import kernel, profile, session
from tvmscope.core.profile import KernelIR, MachineCode
from tvmscope.core.session import Session
from tvmscope.report.escape import clean
from tvmscope.report.escape import markdown as escape
from tvmscope.report.formats import markdown


@pytest.mark.parametrize("name", samples.ALL)
def test_every_table_row_has_the_columns_of_its_head(name: str) -> None:
    lines = markdown.render([samples.ALL[name]()]).splitlines()
    for is_table, rows in groupby(lines, key=lambda line: line.startswith("|")):
        widths = {len(re.findall(r"(?<!\\)\|", row)) for row in rows}
        assert not is_table or len(widths) == 1


def test_foreign_text_stays_text() -> None:
    html = (
        MarkdownIt("commonmark").enable("table").render(markdown.render([samples.hostile_names()]))
    )
    assert "<b>" not in html
    assert "\x1b" not in html
    assert "<h1>" not in html


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("mobilenet_v2", "mobilenet_v2"),
        ("a|b", r"a\|b"),
        ("`x`", r"\`x\`"),
        ("<img src=x>", "&lt;img src=x&gt;"),
        ("![x](http://y)", r"!\[x\](http://y)"),
        ("# title", r"\# title"),
        ("a\nb", "a b"),
    ],
)
def test_escape(text: str, expected: str) -> None:
    assert escape(text) == expected


def test_clean_shows_control_and_bidi_characters_and_cuts_long_text() -> None:
    assert clean("a\x1b[31m\u202eb") == "a\\x1b[31m\\x202eb"
    assert clean("x" * 50, 10) == "x" * 9 + "…"


def test_summary_comes_first_for_several_models() -> None:
    shown = markdown.render([samples.complete(), samples.failed_model()])
    assert shown.startswith("| model |")
    assert "| broken | failed |" in shown


def test_fixes_are_a_table_that_no_name_breaks() -> None:
    shown = markdown.render([report_samples.profiled()])
    assert "| kept: 1.02 times as fast |" in shown
    hostile = markdown.render([report_samples.hostile(report_samples.EVIL)])
    rows = hostile[hostile.index("### Fixes that were tried") :].splitlines()[2:5]
    cells = {len(re.findall(r"(?<!\\)\|", row)) for row in rows}
    assert cells == {7}, "six cells in every row"


def on_gpu(template: str, instruction: str | None) -> Session:
    code = MachineCode(
        symbol="s", template=template, threads=128, blocks=264, registers=96, shared_bytes=49152,
        spilled_bytes=16, resident=4, multiprocessors=132, sm_warps=64, matrix=instruction,
    )  # fmt: skip
    times = kernel("conv", 2e-3, resources=code.resources), kernel("copy", 1e-3, kind="layout")
    return session(
        profile("tvmscope", *times, target="cuda:sm_90"),
        kernel_ir=(KernelIR(name="conv", tree=(), code=code),),
    )


def kernel_table(given: Session) -> list[str]:
    text = markdown.render([given]).partition("### Top kernels")[2]
    return [line for line in text.splitlines() if line.startswith("|")]


def test_a_gpus_kernels_have_what_they_take_and_their_matrix_instruction() -> None:
    head, _line, conv, copy = kernel_table(on_gpu("conv2d", "wgmma m64n32k16"))
    titles = "blocks x threads | registers | shared memory | occupancy | matrix instruction |"
    assert head.endswith(f"of its roof | {titles}")
    assert conv.endswith("| 264 x 128 | 96, 16 B spilled | 48 KiB | 12% | wgmma m64n32k16 |")
    assert copy.endswith("| - | - | - | - | - |")


def test_a_cpus_kernels_have_no_columns_of_a_gpu() -> None:
    head, *_rows = kernel_table(report_samples.profiled())
    assert head.endswith("of its roof |")


@pytest.mark.parametrize(
    ("template", "said"),
    [
        ("depthwise", "none: each channel is convolved on its own"),
        ("matvec", "none: one row, no matrix to multiply"),
        ("matmul", "none: float32 products, not rounded"),
        ("softmax", "-"),
    ],
)
def test_a_kernel_without_tensor_cores_says_why(template: str, said: str) -> None:
    _head, _line, conv, _copy = kernel_table(on_gpu(template, None))
    assert conv.endswith(f"| {said} |")
