"""The gap to the fastest peer is explained: what is left over is small, on two whole models.

Host time is measured apart from the call, so nothing closes by itself. Wants a quiet machine: who
is preempted between two of OpenVINO's nodes has time that nothing explains.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tvmscope.analysis.waterfall import waterfall
from tvmscope.stages.options import Options
from tvmscope.workflow.analyze import analyze

pytestmark = pytest.mark.slow

OF_GAP, OF_RUN = 0.05, 0.02


@pytest.mark.parametrize("model", ["resnet50", "minilm"])
def test_the_waterfall_closes(model: str, tmp_path: Path) -> None:
    options = Options.of(
        backends="tvmscope,onnxruntime,openvino,torch", target="cpu", duration_s=3.0,
        output=tmp_path / model, offline=True,
    )  # fmt: skip
    session = analyze(model, options)
    gap = waterfall(session)
    assert gap is not None
    (rest,) = [bar.delta_s for bar in gap.bars if bar.kind == "unexplained"]
    total = gap.ours_s - gap.theirs_s
    parts = "\n".join(f"{b.kind:12} {b.delta_s * 1e3:8.3f} ms  {b.label}" for b in gap.bars)
    sides = ((gap.ours, gap.ours_s), (gap.theirs, gap.theirs_s))
    print(f"{model}: " + ", ".join(f"{key.name} {time_s * 1e3:.2f} ms" for key, time_s in sides))
    print(f"unexplained {rest * 1e3:.3f} ms of a gap of {total * 1e3:.3f} ms")
    for p in session.profiles:
        assert p.host_s is not None, p.key
        rest_s = p.profiled_s - p.total_s - p.host_s
        sums = (p.profiled_s, p.total_s, p.host_s, rest_s)
        shown = "{:.3f} ms profiled: {:.3f} kernels, {:.3f} host, {:.3f} neither"
        parts += f"\n{p.key.name}: " + shown.format(*(s * 1e3 for s in sums))
    assert abs(rest) < max(OF_GAP * abs(total), OF_RUN * gap.ours_s), parts
