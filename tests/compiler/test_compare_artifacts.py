"""Two artifacts are measured anew, in turns, and only where they compute the same."""

from __future__ import annotations

from pathlib import Path

import pytest

from tvmscope.compiler import build
from tvmscope.core.model import Prepared
from tvmscope.core.options import CompileOptions
from tvmscope.core.session import save
from tvmscope.core.target import Target
from tvmscope.errors import Incomparable, UsageError
from tvmscope.stages.options import Options
from tvmscope.workflow.comparing.compare import compare_paths

QUICK = Options.of(iterations=12, warmup=1, threads=1)


@pytest.fixture(scope="module")
def pair(
    conv_net: Prepared, host: Target, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Path, Path]:
    folder = tmp_path_factory.mktemp("pair")
    for name in ("tvm", "tvmscope"):
        build.build(conv_net, folder / name, host, host, CompileOptions(pipeline=name))
    return folder / "tvm", folder / "tvmscope"


def test_both_are_measured_in_one_go(pair: tuple[Path, Path]) -> None:
    (row,) = compare_paths(*pair, QUICK).rows
    assert row.before_s > 0
    assert row.after_s > 0
    assert row.ci95 is not None
    assert row.ci95[0] <= row.speedup <= row.ci95[1]


def test_an_artifact_of_another_model_is_refused(
    pair: tuple[Path, Path], conv_net_onnx: Prepared, host: Target, tmp_path: Path
) -> None:
    build.build(conv_net_onnx, tmp_path / "other", host, host, CompileOptions())
    with pytest.raises(Incomparable, match="different models"):
        compare_paths(pair[0], tmp_path / "other", QUICK)


def test_a_session_and_an_artifact_are_refused(pair: tuple[Path, Path], tmp_path: Path) -> None:
    from support import samples

    save(samples.complete(), tmp_path / "session")
    with pytest.raises(UsageError, match="two of one kind"):
        compare_paths(pair[0], tmp_path / "session", QUICK)
