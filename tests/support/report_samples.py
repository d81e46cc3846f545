"""Sessions for the page, the figures and the exports: a profiled one, and hostile ones."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from support import profiles, samples
from support.rows import key
from tvmscope.core.diagnosis.findings import Attempt, Finding
from tvmscope.core.model import TensorSpec
from tvmscope.core.profile import KernelTime
from tvmscope.core.session import Session

EVIL = (
    '</script><script>window.evil=1</script><img src=x onerror="window.evil=1">\'\n'
    "100% {{ 7*7 }} $\\frac{ <a href='javascript:evil()'>x</a> =cmd|'/C calc'!A0 \x1b[31m\u202e"
)
"""What a name may hold at worst: HTML, quotes, newlines, templates, math, formulas, escapes."""
LONG = "n" * 10_000


def _stage(number: int) -> list[KernelTime]:
    """Three convolutions of a residual stage, smaller and denser from stage to stage."""
    found = []
    for block in range(3):
        ops = tuple(f"layer{number}.{block}.{op}" for op in ("conv", "bn", "relu"))
        work, size = 3e8 + 5e7 * block, 4e7 / number**1.5
        total = work / (90e9 + 25e9 * block) * (1.5 if number == 4 else 1)
        found.append(
            profiles.kernel(
                f"fused_conv2d{number}{block}_add_relu", total, *ops, flops=work, bytes=size
            )
        )
    return found


def _ours() -> list[KernelTime]:
    stages = [kernel for number in range(1, 5) for kernel in _stage(number)]
    return [
        *stages,
        profiles.kernel("fused_max_pool2d", 0.0007, "maxpool", flops=2e6, bytes=8e6),
        profiles.kernel("layout_transform", 0.0004, bytes=6e6, kind="layout"),
        profiles.kernel("fused_dense_add", 0.0005, "fc", flops=4e6, bytes=8.2e6),
    ]


def _theirs() -> list[KernelTime]:
    """The same operators elsewhere, some faster, some slower."""
    changed = []
    for index, kernel in enumerate(_ours()):
        factor = (1.12, 0.93, 1.3, 1.02)[index % 4]
        changed.append(
            replace(
                kernel, name=f"Conv_{index}", total_s=kernel.total_s * factor,
                source_ops=kernel.source_ops[:2], flops=None, bytes=None,
            )
        )  # fmt: skip
    return changed


FINDINGS = (
    Finding(
        rule="untuned-heavy-kernel", severity="high", effort="retune",
        title="Three kernels of layer4 reach half of their roof",
        evidence="fused_conv2d40_add_relu takes 5.0 ms at 45 % of the arithmetic roof.",
        advice="Tune these kernels; their siblings of layer3 reach 80 %.",
        kernels=("fused_conv2d40_add_relu",), source_ops=("layer4.0.conv",), saving_s=0.0031,
        fix={"tuning": "layer4"},
    ),
    Finding(
        rule="layout-changes", severity="medium", effort="minutes",
        title="One layout change costs 0.4 ms", evidence="layout_transform moves 6 MB.",
        advice="Keep the blocked layout up to the pooling.", saving_s=0.0004,
        fix={"layout": "blocked"}, achieved_s=0.00035,
    ),
)  # fmt: skip


TRIED = (
    Attempt(
        rule="layout-changes", title="One layout change costs 0.4 ms", key=key("tvmscope"),
        fix={"disabled_passes": []}, predicted_s=0.0004, achieved_s=0.00035,
        ci95_s=(0.0003, 0.0004), outcome="kept", reason="1.02 times as fast",
    ),
    Attempt(
        rule="launch-bound", title="Tiny kernels are bound by their launch", key=key("tvmscope"),
        fix={"exec_mode": "compiled"}, predicted_s=0.0002, achieved_s=-0.0001,
        ci95_s=(-0.0003, 0.0001), outcome="reverted", reason="not faster: 0.99x, undecided",
    ),
)  # fmt: skip


def profiled(**more: Any) -> Session:
    """Profiles of two backends, roofs and findings: every section has something to show."""
    ours = profiles.profile("tvmscope", *_ours(), how="TVM's VM instrument")
    theirs = profiles.profile("onnxruntime", *_theirs(), how="ONNX Runtime's profiler")
    rows = [
        samples.result("torch-compile", 0.062),
        samples.result("torch", 0.094, warnings=("noisy: half of the values spread over 12%",)),
        samples.result("openvino", None, status="unavailable", reason="pip install openvino"),
    ]
    loops = profiles.nest(
        "fused_conv2d40_add_relu", ("parallel", 28), ("serial", 64), ("vectorized", 16),
        key=key("tvmscope"), rule="conv2d",
    )  # fmt: skip
    known = {"findings": FINDINGS, "fixes": TRIED, "kernel_ir": (loops,)}
    return profiles.session(ours, theirs, rows=rows, **known | more)


def no_findings() -> Session:
    return profiled(findings=())


def hostile(name: str) -> Session:
    """Every place that foreign text can reach, filled with `name`."""
    base = profiled()
    taken = [
        replace(
            p,
            how=name,
            kernels=tuple(
                replace(
                    k, name=f"{i}{name}", source_ops=tuple(f"{op}{name}" for op in k.source_ops)
                )
                for i, k in enumerate(p.kernels)
            ),
        )
        for p in base.profiles
    ]
    finding = replace(
        FINDINGS[0], rule=name, severity=name, effort=name, title=name, evidence=name, advice=name,
        kernels=(name,), source_ops=(name,), fix={name: name},
    )  # fmt: skip
    bad = samples.result(name, None, status="failed", reason=name)
    return replace(
        base,
        command=name,
        profiles=tuple(taken),
        findings=(finding,),
        fixes=(
            replace(TRIED[0], rule=name, title=name, fix={name: name}, reason=name, key=key(name)),
        ),
        warnings=(name,),
        kernel_ir=tuple(
            replace(
                k, name=f"9{name}", rule=name, tree=(replace(k.tree[0], text=name, mode=name),)
            )
            for k in base.kernel_ir
        ),
        roofs=tuple(replace(r, how=name, level=r.level and name + r.level) for r in base.roofs),
        results=(*base.results, samples.result(name, 0.2), bad),
        model=replace(
            base.model, name=name, source=name, notes=(name,),
            inputs=(TensorSpec(name, (1,), "float32"),),
        ),
        environment=replace(base.environment, cpu=name, gpu=name, versions={name: name}),
    )  # fmt: skip


ALL = {
    **samples.ALL,
    "profiled": profiled,
    "no_findings": no_findings,
    "evil": lambda: hostile(EVIL),
    "long": lambda: hostile(LONG),
}
