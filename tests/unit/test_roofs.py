"""The machine's measured limits."""

from __future__ import annotations

import platform
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from tvmscope.core.profile import Roof
from tvmscope.core.target import Target
from tvmscope.errors import RunError
from tvmscope.machine import cpu_features
from tvmscope.profiling import gpu_roofs, roofs


@pytest.fixture(autouse=True)
def _alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing else runs, whatever the tests' machine does."""
    monkeypatch.setattr(roofs.load, "disturbances", lambda before, after: ())


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Target, tuple]:
    cache = tmp_path_factory.mktemp("cache")
    target = Target(kind="llvm", arch="host", features=tuple(cpu_features.reported()), cores=2)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(roofs.load, "disturbances", lambda before, after: ())
        return cache, target, roofs.measure(target, cache)


def test_every_roof_is_a_rate_that_a_computer_can_have(measured) -> None:
    _, _, found = measured
    for roof in found:
        rate = roof.flops_per_s or roof.bytes_per_s
        assert rate is not None
        assert 1e8 < rate < 1e14


def test_caches_are_faster_than_memory(measured) -> None:
    _, _, found = measured
    rates = {r.how.split(":")[0]: r.bytes_per_s for r in found if r.threads == 1}
    assert rates["L1"] > rates["DRAM"]


def test_roofs_are_kept_and_measured_again_only_when_asked(measured, monkeypatch) -> None:
    cache, target, found = measured
    monkeypatch.setattr(roofs, "_measure", lambda *_: ())
    assert roofs.measure(target, cache) == found
    assert roofs.measure(target, cache, fresh=True) == ()


def test_roofs_beside_other_work_are_measured_again_and_the_best_counts(
    monkeypatch, tmp_path: Path
) -> None:
    rates, busy = iter((3e9, 5e9, 4e9, 9e9)), [True, True, False]

    def made_up(target: Target, counts: list[int]) -> tuple[Roof, ...]:
        rate = next(rates)
        return (Roof(dtype="float32", threads=1, flops_per_s=rate, bytes_per_s=None, how="fma"),)

    monkeypatch.setattr(roofs, "_measure", made_up)
    monkeypatch.setattr(
        roofs.load, "disturbances", lambda before, after: ("other work",) * busy.pop(0)
    )
    target = Target(kind="llvm", arch="host", features=("avx2",))
    found = [roofs.measure(target, tmp_path)[0].flops_per_s for _ in range(4)]
    assert found == [3e9, 5e9, 5e9, 5e9]  # the third time nothing else ran: it is the last one


def test_a_machine_that_is_never_quiet_is_not_measured_for_ever(
    monkeypatch, tmp_path: Path
) -> None:
    times = []
    roof = Roof(dtype="float32", threads=1, flops_per_s=1e9, bytes_per_s=None, how="fma")
    monkeypatch.setattr(roofs, "_measure", lambda *_: times.append(1) or (roof,))
    monkeypatch.setattr(roofs.load, "disturbances", lambda before, after: ("other work",))
    monkeypatch.setattr(roofs.load, "is_quiet", lambda: False)
    target = Target(kind="llvm", arch="host", features=("avx2",))
    for _ in range(7):
        assert roofs.measure(target, tmp_path) == (roof,)
    assert len(times) == 4
    monkeypatch.setattr(roofs.load, "disturbances", lambda before, after: ())
    monkeypatch.setattr(roofs.load, "is_quiet", lambda: True)
    for _ in range(3):  # once it is quiet it is measured again, and that is kept
        roofs.measure(target, tmp_path)
    assert len(times) == 5


def test_a_damaged_file_is_measured_again(measured, monkeypatch) -> None:
    cache, target, _ = measured
    (file,) = cache.iterdir()
    file.write_text("[{")
    monkeypatch.setattr(roofs, "_measure", lambda *_: ())
    assert roofs.measure(target, cache) == ()


def test_roofs_of_different_vectors_are_kept_apart(monkeypatch, tmp_path: Path) -> None:
    def made_up(target: Target, counts: list[int]) -> tuple[Roof, ...]:
        how = f"{target.vector_bits} bits"
        return (Roof(dtype="float32", threads=1, flops_per_s=1e9, bytes_per_s=None, how=how),)

    wide = Target(kind="llvm", arch="host", features=("avx2", "avx512f"))
    narrow = replace(wide, features=("avx2",))
    monkeypatch.setattr(roofs, "_measure", made_up)
    kept = [roofs.measure(target, tmp_path) for target in (wide, narrow)]
    monkeypatch.setattr(roofs, "_measure", lambda *_: ())
    assert [roofs.measure(target, tmp_path) for target in (wide, narrow)] == kept
    assert [found[0].how for found in kept] == ["512 bits", "256 bits"]


def test_the_threads_of_the_run_have_a_roof_of_their_own(monkeypatch, tmp_path: Path) -> None:
    asked = []
    monkeypatch.setattr(roofs, "_measure", lambda _, counts: asked.append(counts) or ())
    target = Target(kind="llvm", arch="host", features=("avx2",), cores=16)
    for threads in (8, 16, None):
        roofs.measure(target, tmp_path, threads)
    assert asked == [[1, 8, 16], [1, 16]]  # the last one is kept from before


@pytest.mark.skipif(platform.machine() != "x86_64", reason="reads x86 code")
@pytest.mark.skipif(shutil.which("objdump") is None, reason="objdump is not installed")
def test_roofs_of_a_target_without_avx512_are_built_without_it(tmp_path: Path) -> None:
    roofs._build(Target(kind="llvm", arch="host", features=("avx2", "fma")), tmp_path)
    done = subprocess.run(
        ["objdump", "-d", str(tmp_path / "roofs.so")], capture_output=True, text=True, check=True
    )
    assert "%ymm" in done.stdout
    # registers that only AVX-512 has
    assert not {"%zmm0", "%ymm16", "%ymm31", "%xmm16"} & set(done.stdout.replace(",", " ").split())


class Library:
    """The kernels of roofs.cu on a GPU of which these rates are known."""

    def __init__(self, **rates: float) -> None:
        for name, rate in rates.items():
            setattr(self, name, lambda *_, rate=rate: rate)


def gpu_roofs_of(library: Library, monkeypatch, product: float | None = None) -> list[Roof]:
    monkeypatch.setattr(gpu_roofs, "_torch_product", lambda kind: product)
    monkeypatch.setattr(gpu_roofs, "find", lambda: None)
    return [roof for roof in gpu_roofs._measure(library) if roof.flops_per_s is not None]


def test_each_type_of_tensor_core_product_has_a_roof(monkeypatch) -> None:
    library = Library(
        fma_float32=5e13, mma_float16=6e14, mma_bfloat16=5e14, mma_tf32=3e14, read_bytes=4e12
    )
    found = gpu_roofs_of(library, monkeypatch, product=5.5e14)
    assert [(r.dtype, r.products, r.flops_per_s) for r in found] == [
        ("float32", None, 5e13), ("float16", None, 6e14), ("bfloat16", None, 5.5e14),
        ("float32", "tf32", 5.5e14),
    ]  # fmt: skip
    assert "PyTorch's product" in found[2].how


def test_older_tensor_cores_have_only_float16(monkeypatch) -> None:
    found = gpu_roofs_of(Library(fma_float32=8e12, mma_float16=6e13, read_bytes=3e11), monkeypatch)
    assert [r.dtype for r in found] == ["float32", "float16"]


def test_a_tensor_core_kernel_that_fails_is_no_roof(monkeypatch) -> None:
    library = Library(fma_float32=5e13, mma_float16=6e14, mma_bfloat16=-700.0, read_bytes=4e12)
    with pytest.raises(RunError, match="700"):
        gpu_roofs_of(library, monkeypatch)


@pytest.mark.skipif(shutil.which("nvcc") is None, reason="nvcc is not installed")
@pytest.mark.parametrize(("arch", "newer"), [("sm_75", False), ("sm_90", True)])
def test_the_gpu_kernels_compile(arch: str, newer: bool, tmp_path: Path) -> None:
    library = gpu_roofs._build(Target(kind="cuda", arch=arch), tmp_path)
    assert hasattr(library, "mma_float16")
    assert hasattr(library, "mma_bfloat16") == hasattr(library, "mma_tf32") == newer
