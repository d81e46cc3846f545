"""An artifact explains its own kernels, without being measured."""

from __future__ import annotations

from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console

from tvmscope.compiler import build
from tvmscope.core.model import Prepared
from tvmscope.core.options import CompileOptions
from tvmscope.core.target import Target
from tvmscope.errors import UsageError
from tvmscope.report.terminal.explain import KernelView, Titled
from tvmscope.workflow.explain import explain, kernels_at, side_by_side


@pytest.fixture(scope="module")
def artifact(conv_net: Prepared, host: Target, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("explained") / "artifact"
    build.build(conv_net, folder, host, host, CompileOptions())
    return folder


def test_a_convolution_shows_its_register_tile_in_words(artifact: Path) -> None:
    session = explain(artifact)
    name = next(ir.name for ir in session.kernel_ir if ir.rule == "conv2d")
    (ir,) = kernels_at(artifact).find(name)
    stream = StringIO()
    view = KernelView((Titled("artifact", session, ir),))
    Console(file=stream, width=120, color_system=None).print(view)
    page = stream.getvalue()
    for words in (
        "parallel",
        "vectorized",
        "rule: conv2d",
        "in vector registers",
        "in parallel on all threads",
        "float32",
    ):
        assert words in page  # fmt: skip
    assert "sch." not in page, "every primitive that our schedules use has its words"


def test_every_primitive_of_every_kernel_has_words(artifact: Path) -> None:
    from tvmscope.report.sections.schedule import in_words

    for ir in explain(artifact).kernel_ir:
        for sentence in in_words(ir.trace):
            assert "=" not in sentence, sentence


def test_nothing_measured_means_no_estimate(artifact: Path) -> None:
    assert [f for f in explain(artifact).findings if f.saving_s is not None] == []


def test_near_names_help(artifact: Path) -> None:
    with pytest.raises(UsageError, match=r"similar names: .*conv2d"):
        kernels_at(artifact).find("conv2d")


def test_a_kernel_stands_beside_the_one_that_computes_the_same_operators(
    artifact: Path, conv_net: Prepared, host: Target, tmp_path: Path
) -> None:
    left_out = {"disabled_rules": ("conv2d",), "winograd": False}
    options = CompileOptions(overrides=left_out, disabled_passes=("fuse-ops", "fuse-tir"))
    build.build(conv_net, tmp_path / "plain", host, host, options)
    one, other = kernels_at(artifact), kernels_at(tmp_path / "plain")
    name = next(ir.name for ir in one.session.kernel_ir if ir.rule == "conv2d")
    assert all(ir.name != name for ir in other.session.kernel_ir)
    first, second = side_by_side(name, [one, other])
    assert first[1].rule == "conv2d"
    assert second[1].rule == "fallback"
    assert "conv2d" in second[1].name
    assert one.computed_by(first[1]) & other.computed_by(second[1])
