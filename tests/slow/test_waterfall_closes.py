"""The gap to the fastest peer is explained: what is left over is small, on two whole models."""

from __future__ import annotations

from pathlib import Path

import pytest

from tvmscope.core.waterfall import waterfall
from tvmscope.workflow.analyze import analyze
from tvmscope.workflow.options import Options

pytestmark = pytest.mark.slow

OF_GAP, OF_RUN = 0.05, 0.02


@pytest.mark.parametrize("model", ["resnet50", "minilm"])
def test_the_waterfall_closes(model: str, tmp_path: Path) -> None:
    options = Options.of(
        backends="tvmscope,onnxruntime,openvino,torch", target="cpu", duration_s=3.0,
        output=tmp_path / model, offline=True,
    )  # fmt: skip
    gap = waterfall(analyze(model, options))
    assert gap is not None
    (rest,) = [bar.delta_s for bar in gap.bars if bar.kind == "unexplained"]
    total = gap.ours_s - gap.theirs_s
    parts = "\n".join(f"{b.kind:12} {b.delta_s * 1e3:8.3f} ms  {b.label}" for b in gap.bars)
    print(f"{model}: {gap.ours} {gap.ours_s * 1e3:.2f} ms, {gap.theirs} {gap.theirs_s * 1e3:.2f}")
    print(f"unexplained {rest * 1e3:.3f} ms of a gap of {total * 1e3:.3f} ms")
    assert abs(rest) < max(OF_GAP * abs(total), OF_RUN * gap.ours_s), parts
