"""Generated kernels for architectures on which nothing was measured: they build, and it is said."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from tvmscope.compiler import build, targets
from tvmscope.compiler.units import choose
from tvmscope.core.artifact import Artifact
from tvmscope.core.model import Prepared
from tvmscope.core.options import CompileOptions
from tvmscope.core.precision import FLOAT16
from tvmscope.core.target import Target
from tvmscope.core.tuning import Candidate, Choice
from tvmscope.cuda.cubins.kernel_compiler import assembles
from tvmscope.cuda.units import Matmul
from tvmscope.runtime.artifact import read_kernels

pytest.importorskip("triton", reason="CUDA kernels are generated where Triton is installed")

CHOICE = Choice(candidate=Candidate(), source="a.jsonl", cpu="RTX", threads=1, date="")
SAID = "have been compiled, but never run or timed by this project, which measures on sm_90"
RTX_3060 = {
    "multiprocessors": 28, "l2_cache_size_bytes": 3 << 20,
    "max_shared_memory_per_block_optin": 99 << 10,
}  # fmt: skip


def built(net: Prepared, place: Path, target: Target, host: Target, **more: object) -> Artifact:
    return build.build(net, place / "a", target, host, CompileOptions(precision=FLOAT16, **more))  # type: ignore[arg-type]


@pytest.mark.parametrize("arch", ["sm_86", "sm_87", "sm_100", "sm_120"])
def test_kernels_build_and_a_warning_says_that_none_was_measured(
    arch: str, conv_net: Prepared, host: Target, tmp_path: Path
) -> None:
    artifact = built(conv_net, tmp_path, targets.resolve(f"cuda:{arch}"), host)
    assert json.loads((artifact.path / "cubins.json").read_text())
    assert any(f"for {arch} {SAID}" in warning for warning in artifact.warnings)


def test_where_winners_are_shipped_nothing_is_said(
    conv_net: Prepared, host: Target, tmp_path: Path
) -> None:
    artifact = built(conv_net, tmp_path, targets.resolve("cuda:sm_90"), host)
    assert json.loads((artifact.path / "cubins.json").read_text())
    assert not any(SAID in warning for warning in artifact.warnings)


def test_where_the_user_has_tuned_nothing_is_said(
    conv_net: Prepared, host: Target, tmp_path: Path
) -> None:
    target = targets.resolve("cuda:sm_86")
    artifact = built(conv_net, tmp_path, target, host, choices={"matmul-0": CHOICE})
    assert not any(SAID in warning for warning in artifact.warnings)


@pytest.mark.parametrize(
    ("arch", "words"), [("sm_75", "known architectures"), ("sm_999", "Triton")]
)
def test_what_cannot_be_assembled_gets_none(
    arch: str, words: str, conv_net: Prepared, host: Target, tmp_path: Path
) -> None:
    assert not (arch == "sm_999" and assembles(arch))
    reason = choose.unavailable(Target(kind="cuda", arch=arch))
    assert reason is not None
    assert words in reason
    if arch == "sm_75":  # TVM's own schedules and nvcc do without
        artifact = built(conv_net, tmp_path, targets.resolve(f"cuda:{arch}"), host)
        assert reason in artifact.warnings
        assert not (artifact.path / "cubins.json").exists()


def test_the_devices_own_numbers_choose() -> None:
    unit = Matmul(dtype="float16", m=128, n=768, k=768)
    table = Target(kind="cuda", arch="sm_86")
    device = replace(table, attrs=RTX_3060)
    wide, narrow = (choose.Chooser(target, {})(unit) for target in (table, device))
    assert wide is not None
    assert narrow is not None
    assert wide.split > narrow.split == 1  # 24 tiles fill 28 multiprocessors, not 82


def test_occupancy_is_that_of_the_device(conv_net: Prepared, host: Target, tmp_path: Path) -> None:
    target = replace(targets.resolve("cuda:sm_86"), attrs=RTX_3060)
    artifact = built(conv_net, tmp_path, target, host)
    codes = [kernel.code for kernel in read_kernels(artifact.path) if kernel.code]
    assert {code.multiprocessors for code in codes} == {28}
    assert {code.sm_warps for code in codes} == {48}
    assert all(0 < (code.occupancy or 0) <= 1 for code in codes)
