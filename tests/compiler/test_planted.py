"""Problems planted in real builds: the right rule names them first, and stays silent next door.

Kernels, loops, buffers, work and source operators are those of the build. The times come from the
work on a slow machine of fixed rates: a test must not depend on who else uses the processor.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import tvm

from support import samples
from support.command import save_onnx
from support.planted import UNFUSED, casts, convolution, elementwise, matmul, scatters
from support.profiles import ROOFS, kernel, profile
from tvmscope.compiler import frontends, pipeline, targets
from tvmscope.compiler.describe import sources
from tvmscope.core.diagnosis.findings import Finding
from tvmscope.core.model import Prepared
from tvmscope.core.options import CompileOptions, LoadOptions
from tvmscope.core.precision import FLOAT16
from tvmscope.core.profile import KernelIR, Roof
from tvmscope.core.session import Session
from tvmscope.core.target import Target
from tvmscope.diagnose import loops
from tvmscope.diagnose.engine import diagnose
from tvmscope.models.prepare import prepare

FLOPS_PER_S, BYTES_PER_S = 10e9, 4e9
UNFIXED = CompileOptions(disabled_passes=("fast-scatter",))
GPU_ROOFS = (
    Roof(dtype="float32", threads=0, flops_per_s=50e12, bytes_per_s=None, how="", device="cuda"),
    Roof(dtype="float16", threads=0, flops_per_s=500e12, bytes_per_s=None, how="", device="cuda"),
)


@pytest.fixture
def lower(tmp_path: Path) -> Callable[..., Session]:
    """Build up to the kernels, and give each the time that its work takes."""

    def run(
        nodes: list,
        shape: tuple[int, ...],
        target: Target,
        options: CompileOptions | None = None,
        features: tuple[str, ...] | None = None,
    ) -> Session:
        options = options or CompileOptions()
        file = save_onnx(tmp_path / "planted.onnx", *nodes, shape=shape)
        ready = Prepared(
            tmp_path / "ready", prepare(str(file), str(tmp_path / "ready"), LoadOptions())
        )
        imported = frontends.import_model(ready)
        host = Target(kind="llvm", arch="x86-64")
        tvm_target = tvm.target.Target(targets.to_tvm(target), host=targets.to_tvm(host))
        lowered = pipeline.run(imported.module, target, tvm_target, options)
        calls = sources.name_calls(lowered.calls, imported.sources)
        described = {ir.name: ir for ir in lowered.kernels}
        times = [_timed(described[c.kernel], c.source_ops) for c in calls if c.kernel in described]
        row = samples.result("tvmscope", 1.0, target.label, precision=options.precision)
        found = profile(row.key, *times)
        base = samples.session(replace(row, measurement=samples.measurement(found.end_to_end_s)))
        here = replace(base.environment, cpu_features=features or target.features)
        return replace(
            base, environment=here, targets=(target,), profiles=(found,),
            kernel_ir=tuple(lowered.kernels), roofs=(*ROOFS, *GPU_ROOFS),
        )  # fmt: skip

    return run


def _timed(ir: KernelIR, source_ops: tuple[str, ...]):
    seconds = (ir.flops or 0) / FLOPS_PER_S + (ir.bytes or 0) / BYTES_PER_S
    return kernel(
        ir.name, max(seconds, 1e-7), *source_ops, flops=ir.flops, bytes=ir.bytes, kind=ir.kind
    )


def first(session: Session) -> Finding:
    done = diagnose(session)
    assert not [w for w in done.warnings if w.startswith("diagnosis")]
    assert done.findings, "no rule fired"
    return done.findings[0]


def silent(session: Session, rule: str) -> bool:
    return rule not in [f.rule for f in diagnose(session).findings]


def test_scatters_in_a_loop_of_slices(lower, host: Target) -> None:
    found = first(lower(scatters(), (16, 8192), host, UNFIXED))
    assert found.rule == "hot-operator"
    assert found.fix == {"disabled_passes": []}
    assert "scatter" in found.title
    assert {"put0/ScatterND", "put7/ScatterND"} <= set(found.source_ops)
    fixed = lower(scatters(), (16, 8192), host)  # eight copies have become one
    assert all(not f.fix for f in diagnose(fixed).findings if f.rule == "hot-operator")


def test_a_serial_kernel(lower, host: Target) -> None:
    found = first(lower(matmul(65536, 16), (1, 65536), host))
    assert found.rule == "serial-kernel"
    assert found.source_ops == ("n0/MatMul",)
    assert silent(lower(matmul(4096, 256), (1, 4096), host), "serial-kernel")


@pytest.mark.parametrize(
    ("arch", "cores", "tasks"),
    [("x86-64-v4", 2, 1), ("x86-64-v3", 2, 2), ("x86-64-v3", 4, 2)],
)
def test_a_kernel_is_serial_where_its_tiles_are_fewer_than_the_cores(
    arch: str, cores: int, tasks: int, lower
) -> None:
    # Eight rows are one tile of AVX-512's registers and two tiles of AVX2's.
    target = targets.resolve(f"cpu:{arch}", cores=cores)
    session = lower(matmul(16384, 16), (8, 16384), target)
    row = session.results[0]
    threads = replace(row.task, threads=cores)
    session = replace(session, results=(replace(row, task=threads),))
    (ir,) = (ir for ir in session.kernel_ir if ir.rule == "matmul")
    assert loops.parallelism(ir) == tasks
    assert silent(session, "serial-kernel") == (tasks >= cores)


@pytest.mark.parametrize(("rows", "tasks"), [(18, 3), (12, 2)])
def test_tiles_that_do_not_divide_among_the_cores_are_found(rows: int, tasks: int, lower) -> None:
    # Eighteen rows are three tiles of AVX2's registers: one core computes two of them.
    session = lower(matmul(16384, 16), (rows, 16384), targets.resolve("cpu:x86-64-v3", cores=2))
    (ir,) = (ir for ir in session.kernel_ir if ir.rule == "matmul")
    assert loops.parallelism(ir) == tasks
    assert silent(session, "serial-kernel") == (tasks % 2 == 0)


def test_a_missing_target_feature(lower, host: Target) -> None:
    has = (*host.features, "avx", "avx2", "fma")
    plain = targets.resolve("cpu:x86-64", cores=2)
    found = first(lower(convolution(), (1, 32, 32, 32), plain, features=has))
    assert found.rule == "target-feature-unused"
    assert found.fix == {"target": "cpu"}
    assert silent(lower(convolution(), (1, 32, 32, 32), host), "target-feature-unused")


def test_an_unfused_chain(lower, host: Target) -> None:
    found = first(lower(elementwise(), (256, 1024), host, UNFUSED))
    assert found.rule == "unfused-chain"
    assert len(found.kernels) >= 4
    assert silent(lower(elementwise(), (256, 1024), host), "unfused-chain")


def test_a_storm_of_casts(lower, host: Target) -> None:
    found = first(lower(casts(), (256, 1024), host, UNFUSED))
    assert found.rule == "casts"
    assert found.saving_s == pytest.approx(7 / 8 * 8 * 256 * 1024 * 12 / BYTES_PER_S, rel=0.01)
    assert silent(lower(casts(), (256, 1024), host), "casts")


def test_a_gemm_in_float32_that_could_use_less(lower) -> None:
    gpu = targets.resolve("cuda:sm_90")
    plain = CompileOptions(disabled_passes=("place-units",))  # TVM's own schedules
    named = {f.rule: f for f in diagnose(lower(matmul(512, 512), (512, 512), gpu, plain)).findings}
    found = named["tensor-cores-unused"]
    assert "float32" in found.title
    assert found.fix == {"precision": "float16"}
    half = replace(plain, precision=FLOAT16)
    assert silent(lower(matmul(512, 512), (512, 512), gpu, half), "tensor-cores-unused")
    assert silent(lower(matmul(512, 512), (512, 512), gpu), "tensor-cores-unused")


def test_no_schedule_at_all(lower, host: Target) -> None:
    found = first(lower(convolution(), (1, 32, 32, 32), host, CompileOptions(pipeline="tvm")))
    assert found.rule == "no-schedule"
    assert silent(lower(convolution(), (1, 32, 32, 32), host), "no-schedule")
