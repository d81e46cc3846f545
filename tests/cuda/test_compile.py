"""Cubins for several architectures, built without a GPU."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path
from typing import Literal

import draws
import pytest

from tvmscope.cuda.candidates import read_candidates, write_candidates
from tvmscope.cuda.config import Config
from tvmscope.cuda.cubins.compile_pool import Failure, Job, compile_many
from tvmscope.cuda.cubins.compiled_kernel import CompiledKernel
from tvmscope.cuda.cubins.cubin import resources
from tvmscope.cuda.cubins.kernel_compiler import assembles, compile_kernel, matrix_instruction
from tvmscope.cuda.driver import _Attribute, _LaunchConfig
from tvmscope.cuda.gpus import gpu_of
from tvmscope.cuda.shortlist import best
from tvmscope.cuda.space import configs
from tvmscope.cuda.units import Attention, Conv2d, Epilogue, Matmul, Pooled, Unit
from tvmscope.errors import BuildError, SchemaError, UsageError

CONV = Conv2d(
    dtype="float16", n=1, h=14, w=14, c=64, oc=64, r=3, s=3, padding=(1, 1, 1, 1),
    epilogue=Epilogue(bias=True, activation="relu", residual="before"),
)  # fmt: skip
TILE = Config(template="conv2d", m=64, n=32, k=64, split=4)


@pytest.mark.parametrize("arch", ["sm_80", "sm_87", "sm_89", "sm_90", "sm_100", "sm_120", "sm_121"])
def test_first_choices_build(triton: None, arch: str) -> None:
    units: list[Unit] = [
        CONV,
        Matmul(dtype="bfloat16", m=128, n=384, k=384, epilogue=Epilogue(activation="gelu")),
        Attention(dtype="float16", batch=1, heads=2, queries=40, keys=40, dim=32),
    ]
    for unit in units:
        config = best(unit, gpu_of(arch), 1)[0].config
        kernel = compile_kernel(unit, config, arch)
        assert kernel.cubin[:4] == b"\x7fELF"
        assert kernel.threads == 32 * config.warps
        assert 16 <= kernel.registers <= 255
        assert kernel.local_bytes == 0, "spills"
        assert kernel.shared_bytes <= gpu_of(arch).block_shared_bytes
        assert kernel.matrix is not None, "no tensor cores"
        wide = gpu_of(arch).has_wgmma and config.m >= 64 and config.warps % 4 == 0
        large = "tcgen05" if arch == "sm_100" else "wgmma m64"
        assert kernel.matrix.startswith(large if wide else "mma m16n8k16")


@pytest.mark.parametrize("arch", ["sm_80", "sm_90"])
@pytest.mark.parametrize("split", [1, 2])
@pytest.mark.parametrize(("form", "r", "s"), [("max", 2, 2), ("mean", 7, 7)])
def test_convolutions_with_a_pool_build(
    triton: None, form: Literal["max", "mean"], r: int, s: int, split: int, arch: str
) -> None:
    unit = replace(CONV, pooled=Pooled(form=form, r=r, s=s))
    kernel = compile_kernel(unit, replace(TILE, split=split), arch)
    assert kernel.grid == (-(-unit.m // 64) * 2, split, 1)
    assert kernel.arguments[4].shape == (1, 14 // r, 14 // s, 64)
    assert kernel.local_bytes == 0, "spills"
    assert kernel.matrix is not None, "no tensor cores"


def test_matrix_instructions_are_read_from_the_code(triton: None) -> None:
    exact = Matmul(dtype="float32", m=64, n=64, k=64, math="ieee")
    kernel = compile_kernel(exact, Config(template="matmul", m=32, n=32, k=32), "sm_90")
    assert kernel.matrix is None
    wgmma = "wgmma.mma_async.sync.aligned.m64n32k16.f32.f16.f16 {%f1}"
    assert matrix_instruction(f"ld.global; {wgmma}") == "wgmma m64n32k16"
    assert matrix_instruction("mma.sync.aligned.m16n8k8.row.col.f32.tf32") == "mma m16n8k8"
    assert matrix_instruction("fma.rn.f32 %f1; // comma.sync") is None


def test_arguments_are_those_the_unit_has(triton: None) -> None:
    kernel = compile_kernel(CONV, TILE, "sm_80")
    roles = [t.role for t in kernel.arguments]
    assert roles == [
        "input", "weight", "bias", "residual", "output", "workspace", "counters",
    ]  # fmt: skip
    assert kernel.grid == (8, 4, 1)  # 196 pixels and 64 channels in tiles of 64 x 32
    assert kernel.arguments[5].shape == (8, 4, 64, 32)
    assert kernel.arguments[6].shape == (8,)
    assert kernel.hidden_pointers == 2
    assert kernel.name == f"conv2d_{CONV.key[7:]}_64x32x64_s3_w4_split4_kn_p0"
    plain = Config(template="conv2d", m=64, n=32, k=64)
    assert len(compile_kernel(CONV, plain, "sm_80").arguments) == 5


def test_scratch_memory_is_an_argument(triton: None) -> None:
    unit = Matmul(dtype="float16", m=256, n=256, k=128)
    config = Config(template="persistent", m=64, n=128, k=64, split=4)
    kernel = compile_kernel(unit, config, "sm_90")
    assert kernel.grid == (4, 1, 1)
    assert kernel.arguments[-1].role == "scratch"
    assert kernel.arguments[-1].size_bytes == 4 * 2 * 128  # two descriptors per block
    assert kernel.hidden_pointers == 1


def test_dependent_launch_is_another_kernel_and_needs_sm_90(triton: None) -> None:
    kernel = compile_kernel(CONV, Config(template="conv2d", m=64, n=32, k=64, pdl=2), "sm_90")
    plain = compile_kernel(CONV, Config(template="conv2d", m=64, n=32, k=64), "sm_90")
    assert kernel.cubin != plain.cubin
    with pytest.raises(BuildError, match="sm_80 has no programmatic dependent launch"):
        compile_kernel(CONV, Config(template="conv2d", m=64, n=32, k=64, pdl=1), "sm_80")


@pytest.mark.parametrize("arch", ["sm_89", "sm_100", "sm_120"])
def test_drawn_configurations_of_the_space_fit_the_gpu(triton: None, arch: str) -> None:
    """The space's own estimate of shared memory must not be below the compiler's."""
    rng = random.Random(1)
    jobs = []
    for make in (
        draws.conv2d, draws.matmul, draws.attention, draws.depthwise, draws.norm, draws.softmax,
        draws.group_norm,
    ):  # fmt: skip
        unit = make(3)[0]
        offered = list(configs(unit, gpu_of(arch)))
        jobs += [Job(unit=unit, config=c, arch=arch) for c in rng.sample(offered, 2)]
    large = Matmul(dtype="float16", m=4096, n=4096, k=4096)
    offered = sorted(configs(large, gpu_of(arch)), key=lambda c: -c.m * c.n * c.k * c.stages)
    jobs += [Job(unit=large, config=c, arch=arch) for c in offered[:2]]
    failures = [o.reason for o in compile_many(jobs, workers=1) if isinstance(o, Failure)]
    assert not failures


def test_an_architecture_that_the_assembler_does_not_know_is_found(triton: None) -> None:
    assert assembles("sm_87")
    assert assembles("sm_103")
    assert not assembles("sm_999")


def test_failed_kernel_is_a_reason_and_costs_no_other(triton: None) -> None:
    jobs = [
        Job(unit=CONV, config=Config(template="matmul", m=16, n=16, k=16), arch="sm_80"),
        Job(unit=CONV, config=Config(template="conv2d", m=48, n=16, k=16), arch="sm_80"),
        Job(unit=CONV, config=TILE, arch="sm_80"),
    ]
    heard: list[int] = []
    outcomes = compile_many(jobs, workers=1, done=lambda index, _: heard.append(index))
    wrong, odd, fine = outcomes
    assert isinstance(wrong, Failure)
    assert wrong.reason == "matmul does not compute conv2d"
    assert isinstance(odd, Failure)
    assert "conv2d, 48x16x16" in odd.reason
    assert isinstance(fine, CompiledKernel)
    assert sorted(heard) == [0, 1, 2]


def test_slow_kernel_is_ended(triton: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tvmscope.cuda.cubins.compile_pool.START_S", 0.0)
    jobs = [Job(unit=CONV, config=TILE, arch="sm_80")]
    (outcome,) = compile_many(jobs, workers=1, timeout_s=0.01)
    assert isinstance(outcome, Failure)
    assert "did not answer" in outcome.reason


def test_plan_comes_back(triton: None, tmp_path: Path) -> None:
    kernel = compile_kernel(CONV, TILE, "sm_80")
    failed = Failure(job=Job(unit=CONV, config=TILE, arch="sm_80"), reason="no")
    size = write_candidates(tmp_path, [(CONV, 3.5, kernel), (CONV, 4.5, failed)], {"arch": "sm_80"})
    assert size > 1000
    (candidate,) = read_candidates(tmp_path)
    assert candidate.unit == CONV
    assert candidate.kernel == kernel
    assert candidate.estimate_us == 3.5


def test_interpreting_process_refuses_to_compile(
    triton: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TRITON_INTERPRET", "1")
    with pytest.raises(UsageError, match="TRITON_INTERPRET"):
        compile_kernel(CONV, TILE, "sm_80")


def test_cubin_that_is_none_is_refused() -> None:
    with pytest.raises(SchemaError, match="no 64-bit ELF header"):
        resources(b"hello", "kernel")


def test_launch_structures_have_the_drivers_layout() -> None:
    import ctypes

    assert ctypes.sizeof(_Attribute) == 72
    assert ctypes.sizeof(_LaunchConfig) == 56
    assert _LaunchConfig.stream.offset == 32
