"""The planted problems once more, built and profiled for real: loud enough for a busy machine."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from onnx import helper

from support import samples
from support.command import save_onnx
from support.planted import UNFUSED, casts, convolution, elementwise, matmul, scatters
from tvmscope.backends import all_backends
from tvmscope.backends.api import LoadRequest
from tvmscope.compiler import targets
from tvmscope.compiler.build import build
from tvmscope.core.diagnosis.findings import Finding
from tvmscope.core.model import Prepared
from tvmscope.core.options import CompileOptions, LoadOptions
from tvmscope.core.precision import FLOAT32
from tvmscope.core.profile import Roof
from tvmscope.core.session import Session
from tvmscope.core.target import Target
from tvmscope.diagnose import loops
from tvmscope.diagnose.engine import diagnose
from tvmscope.machine import cpu_features
from tvmscope.models.prepare import prepare
from tvmscope.profiling import roofs
from tvmscope.profiling.kernels import profile_row
from tvmscope.runtime import artifact as artifacts
from tvmscope.stages import places

pytestmark = pytest.mark.slow  # by the clock

UNFIXED = CompileOptions(disabled_passes=("fast-scatter",))
SINE = [helper.make_node("Sin", ["x"], ["y"], name="sin")]


@pytest.fixture(scope="module")
def measured_roofs(host: Target) -> tuple[Roof, ...]:
    return roofs.measure(host, places.cache_folder())


@pytest.fixture
def measure(
    tmp_path: Path, host: Target, measured_roofs: tuple[Roof, ...]
) -> Callable[..., Session]:
    """Build, run and profile a graph as `analyze` does, in one worker."""
    backend = all_backends()[0]["tvmscope"]

    def run(
        nodes: list,
        shape: tuple[int, ...],
        target: Target = host,
        options: CompileOptions | None = None,
    ) -> Session:
        options = options or CompileOptions()
        place = tmp_path / f"{len(list(tmp_path.iterdir()))}"
        place.mkdir()
        file = save_onnx(place / "planted.onnx", *nodes, shape=shape)
        ready = Prepared(place / "ready", prepare(str(file), str(place / "ready"), LoadOptions()))
        built = build(ready, place / "artifact", target, host, options)
        row = samples.result("tvmscope", 1.0, target.label)
        request = LoadRequest(
            folder=str(ready.folder), device="cpu", precision=FLOAT32, threads=2,
            artifact=str(built.path),
        )  # fmt: skip
        found = profile_row(
            row.key, backend.load, request, backend.env(2), timeout_s=120, budget_s=0.3
        )
        left_out = {"disabled_passes": ",".join(built.disabled_passes)}
        row = replace(row, measurement=samples.measurement(found.end_to_end_s), settings=left_out)
        base = samples.session(row)
        here = replace(base.environment, cpu_features=tuple(cpu_features.reported()))
        return replace(
            base, environment=here, targets=(target,), profiles=(found,), roofs=measured_roofs,
            kernel_ir=artifacts.read_kernels(built.path),
        )  # fmt: skip

    return run


def first(session: Session) -> Finding:
    done = diagnose(session)
    assert not [w for w in done.warnings if w.startswith("diagnosis")]
    # Under a roof that was measured on a busy machine a finding may be worth nothing.
    return next(f for f in done.findings if f.severity != "info")


def silent(session: Session, rule: str) -> bool:
    return rule not in [f.rule for f in diagnose(session).findings]


def test_scatters_in_a_loop_of_slices(measure) -> None:
    found = first(measure(scatters(), (16, 65536), options=UNFIXED))
    assert found.rule == "hot-operator"
    assert "scatter" in found.title
    assert silent(measure(SINE, (16, 65536)), "hot-operator")


def test_a_serial_kernel(measure) -> None:
    # Four rows and one panel of columns are one tile, and so one task, on every CPU.
    planted = measure(matmul(32768, 16), (4, 32768))
    assert [loops.parallelism(ir) for ir in planted.kernel_ir if ir.rule == "matmul"] == [1]
    assert first(planted).rule == "serial-kernel"
    assert silent(measure(matmul(4096, 256), (8, 4096)), "serial-kernel")


@pytest.mark.skipif("avx2" not in cpu_features.reported(), reason="this CPU has no AVX2 to miss")
def test_a_missing_target_feature(measure, host: Target) -> None:
    plain = targets.resolve("cpu:x86-64", cores=2)
    found = first(measure(convolution(6), (1, 32, 64, 64), plain))
    assert found.rule == "target-feature-unused"
    assert found.fix == {"target": "cpu"}
    assert silent(measure(convolution(6), (1, 32, 64, 64)), "target-feature-unused")


def test_an_unfused_chain(measure) -> None:
    found = first(measure(elementwise(), (1024, 4096), options=UNFUSED))
    assert found.rule == "unfused-chain"
    assert found.fix == {"disabled_passes": []}
    assert silent(measure(elementwise(), (1024, 4096)), "unfused-chain")


def test_a_storm_of_casts(measure) -> None:
    found = first(measure(casts(), (1024, 4096), options=UNFUSED))
    assert found.rule == "casts"
    assert silent(measure(casts(), (1024, 4096)), "casts")


def test_a_pass_that_is_switched_off(measure) -> None:
    off = CompileOptions(disabled_passes=("block-layout",))
    found = first(measure(convolution(6), (1, 32, 64, 64), options=off))
    assert found.rule == "pass-disabled"
    assert found.fix == {"disabled_passes": []}
    assert silent(measure(convolution(6), (1, 32, 64, 64)), "pass-disabled")


def test_no_schedule_at_all(measure) -> None:
    found = first(measure(convolution(6), (1, 32, 64, 64), options=CompileOptions(pipeline="tvm")))
    assert found.rule == "no-schedule"
    assert silent(measure(convolution(6), (1, 32, 64, 64)), "no-schedule")
