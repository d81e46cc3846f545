"""Heavy matrix kernels of a GPU that do not use its tensor cores, with the first reason."""

from __future__ import annotations

import re
from collections.abc import Iterator

from tvmscope.core.diagnosis.findings import Finding
from tvmscope.core.profile import Buffer
from tvmscope.core.session import Session
from tvmscope.cuda import config as configs
from tvmscope.cuda.library import symbols
from tvmscope.diagnose import loops
from tvmscope.diagnose.rule import Rule
from tvmscope.diagnose.view import Kernel, Subject, listed, names, sources, subjects
from tvmscope.messages import msg

_FIRST_ARCH = 70
_MATRIX = re.compile(r"conv|matmul|dense|gemm|einsum|attention", re.IGNORECASE)
_HALVES = ("float16", "bfloat16")
_STEP = 8
"""Tensor-core instructions take operands in steps of eight halves."""
GAIN = 3.0
"""The assumed gain of fp16 tensor cores over CUDA cores, limited by memory and epilogue."""


def check(session: Session) -> Iterator[Finding]:
    for subject in subjects(session):
        causes: dict[str, list[Kernel]] = {}
        for kernel in subject.heavy:
            if kernel.ir is not None and misses_tensor_cores(subject, kernel):
                causes.setdefault(_cause(kernel), []).append(kernel)
        for cause, found in causes.items():
            yield _finding(subject, cause, found)


def misses_tensor_cores(subject: Subject, kernel: Kernel) -> bool:
    """Whether a matrix kernel runs on a GPU's ordinary cores although it has tensor cores."""
    if subject.device != "cuda" or _arch(subject) < _FIRST_ARCH or kernel.ir is None:
        return False
    if kernel.ir.rule in configs.LIBRARIES:  # where the symbol does not tell, nothing is claimed
        return symbols.instruction(kernel.time.symbol or "") == symbols.ORDINARY
    if kernel.ir.rule == configs.RULE and kernel.ir.code is None:
        return False  # generated, and its instructions were not read
    if kernel.ir.code is not None and kernel.ir.code.template not in configs.MATRIX:
        return False  # a single row, or separate channels: there is no matrix to multiply
    multiplies = kernel.ir.code is not None or bool(_MATRIX.search(kernel.name))
    return multiplies and not loops.uses_tensor_cores(kernel.ir)


def _arch(subject: Subject) -> int:
    arch = subject.target.arch if subject.target else ""
    return int("".join(re.findall(r"\d+", arch)) or 0)


def _cause(kernel: Kernel) -> str:
    """Return the first obstacle, in the order in which one would remove them."""
    ir = kernel.ir
    assert ir is not None  # a kernel without loops is not said to miss anything
    given = [b for b in ir.buffers if b.scope == "global" and len(b.shape) >= 2]
    if given and not any(b.dtype in _HALVES for b in given):
        return "dtype"
    if ir.rule in configs.LIBRARIES:
        return "library"
    images = [b for b in given if len(b.shape) == 4 and "conv" in ir.name]
    if any(_is_channels_first(b) for b in images):
        return "layout"
    if any(b.shape[-1] % _STEP for b in given):
        return "alignment"
    return "intrinsic"


def _is_channels_first(buffer: Buffer) -> bool:
    """Whether the last two axes are equal and longer than one: height and width of an image."""
    *_batch, height, width = buffer.shape
    return height == width > 1


def _finding(subject: Subject, cause: str, found: list[Kernel]) -> Finding:
    saving = sum(k.total_s - k.after(GAIN) for k in found)
    why, advice, fix, effort = _CAUSES[cause]
    return Finding(
        rule=RULE.id,
        severity=subject.severity(saving),
        effort=effort,
        title=msg("Tensor cores are not used: {cause}", cause=why),
        evidence=subject.says(
            msg(
                "{names} take {spent} without a matrix instruction (rule: {rules}). Estimated: "
                "{gain:.0f} times as fast, not below the roof.",
                names=listed(names(found)),
                spent=subject.spent(found),
                gain=GAIN,
                rules=listed(dict.fromkeys(k.ir.rule or "-" for k in found if k.ir)),
            )
        ),
        advice=advice,
        kernels=names(found),
        source_ops=sources(found),
        saving_s=saving,
        fix=dict(fix),
    )


_CAUSES: dict[str, tuple[str, str, dict[str, str], str]] = {
    "dtype": (
        msg("the data is float32"),
        msg("Compile with --precision float16, and check the accuracy that it reports."),
        {"precision": "float16"},
        "minutes",
    ),
    "layout": (
        msg("channels come before height and width"),
        msg("Put the channels last (NHWC), so that the convolution is a matrix product."),
        {},
        "hours",
    ),
    "alignment": (
        msg("an innermost extent is not a multiple of eight"),
        msg("Pad the channels or features to a multiple of eight."),
        {},
        "hours",
    ),
    "library": (
        msg("the library's kernel multiplies on the ordinary cores"),
        msg("Tune the model: generated kernels and the library's other algorithms are compared."),
        {},
        "retune",
    ),
    "intrinsic": (
        msg("no rule with matrix instructions took the kernel"),
        msg("Write a rule that tensorises its loop pattern."),
        {},
        "retune",
    ),
}

RULE = Rule(
    id="tensor-cores-unused",
    title=msg("Matrix kernels that do not use the tensor cores"),
    needs=("profiles", "kernel_ir"),
    check=check,
)
