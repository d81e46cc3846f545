"""Sessions with fixed numbers, one per situation a renderer meets."""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from typing import Any

from support.rows import key
from tvmscope.core.comparison import Comparison, compare
from tvmscope.core.diagnosis.findings import Finding
from tvmscope.core.environment import Environment
from tvmscope.core.measurement import Accuracy, Measurement, Result
from tvmscope.core.model import Model, TensorSpec
from tvmscope.core.profile import KernelTime, Profile, Roof
from tvmscope.core.row import RowKey, Task
from tvmscope.core.session import Session
from tvmscope.core.target import Target
from tvmscope.core.tuning import Candidate, Part, TunedTask, TuningPoint
from tvmscope.stages.facts import informed

CPU = Target(kind="llvm", arch="znver4", features=("avx2", "fma"), cores=2)
CUDA = Target(kind="cuda", arch="sm_90", attrs={"thread_warp_size": 32})
HOSTILE = "\x1b[31mevil\x1b[0m[bold]|`<b>\n# x" + "y" * 200


def measurement(median_s: float, *, rounds: int = 9, spread: float = 0.01) -> Measurement:
    """Nine rounds of five values around `median_s`, in a fixed pattern."""
    steps = [spread * (i - 2) / 2 for i in range(5)]
    drift = [spread * ((i * 7) % 5 - 2) / 4 for i in range(rounds)]
    values = tuple(tuple(median_s * (1 + s + d) for s in steps) for d in drift)
    return Measurement(rounds_s=values, warmups_s=(median_s * 1.5, median_s * 1.1))


def accuracy(error: float = 1.2e-6, *, passed: bool = True, detail: str | None = None) -> Accuracy:
    return Accuracy(
        reference="torch", passed=passed, max_abs=error * 10, error=error,
        cosine=0.999999, tolerance=1e-4, detail=detail,
    )  # fmt: skip


def result(
    backend: str | RowKey, median_s: float | None, target: str = "cpu:znver4", **more: Any
) -> Result:
    """A row, by its backend's name or its key; without a time it is not measured."""
    if isinstance(backend, str):
        backend = key(backend, target, more.pop("precision", "float32"))
    task = Task(
        model="resnet50", digest="d" * 64, key=backend, threads=2,
        shapes={"x": (1, 3, 224, 224)},
    )  # fmt: skip
    if median_s is not None:
        more = {
            "status": "ok", "measurement": measurement(median_s), "accuracy": accuracy(),
            "peak_memory_bytes": 300 * 2**20, "build_s": 1.25, "load_s": 0.5,
            "settings": {"threads": "2"}, **more,
        }  # fmt: skip
    return Result(task=task, **more)


def compared(results: tuple[Result, ...]) -> tuple[Comparison, ...]:
    """Ours against every other row of the same target."""
    pairs = product(results, results)
    return tuple(
        compare(a, b)
        for a, b in pairs
        if a.task.variant.backend == "tvmscope"
        and b.task.variant.backend != "tvmscope"
        and a.status == b.status == "ok"
        and a.task.target == b.task.target
    )


def session(*results: Result, **more: Any) -> Session:
    """A session of `resnet50` on a CPU."""
    return Session(
        **{
            "command": "tvmscope bench resnet50",
            "started": "2026-01-02T03:04:05+00:00",
            "environment": Environment(
                cpu="AMD EPYC", cpu_features=("avx2", "fma"), cores=2, threads=2, host="lab-7",
                load=0.25, versions={"tvm": "0.27.0.post1", "torch": "2.13.0"},
            ),
            "model": MODEL,
            "targets": (CPU,),
            "results": results,
            "comparisons": compared(results),
            **more,
        }
    )  # fmt: skip


MODEL = Model(
    name="resnet50", source="torchvision:resnet50", format="torch", digest="d" * 64,
    inputs=(TensorSpec("x", (1, 3, 224, 224), "float32"),),
    outputs=(TensorSpec("logits", (1, 1000), "float32"),),
    weights="pretrained",
)  # fmt: skip


def complete() -> Session:
    """Everything went well; TVM as it comes is a hundred times slower."""
    return session(
        result("onnxruntime", 0.055),
        result("torch", 0.094, warnings=("noisy: half of the values spread over 12%",)),
        result("tvm", 5.475),
        result("openvino", 0.0485),
        result("tvmscope", 0.0482),
        profiles=(
            Profile(
                key=key("tvmscope", "cpu:skylake-avx512"),
                kernels=(KERNEL,),
                how="VM instrument",
                runs=9,
                end_to_end_s=0.011,
                profiled_s=0.012,
                host_s=0.001,
            ),
        ),
        roofs=(Roof(dtype="float32", threads=2, flops_per_s=1.5e11, bytes_per_s=None, how="gemm"),),
        findings=(FINDING,),
    )


KERNEL = KernelTime(name="fused_conv2d", source_ops=("conv1",), calls=1, total_s=0.01, flops=2e8)
FINDING = Finding(
    rule="not-vectorized", severity="high", effort="low", title="t", evidence="e", advice="a"
)


def failed_backend() -> Session:
    return session(
        result("tvmscope", 0.048),
        result(
            "openvino", None, status="failed", reason="killed by signal 11 (segmentation fault)"
        ),
    )


def wrong_result() -> Session:
    bad = accuracy(0.3, passed=False, detail="output 'logits': max|a-b| / max|ref| is 3e-01")
    return session(
        result("onnxruntime", 0.055),
        result("tvmscope", 0.011, status="wrong", accuracy=bad, reason=bad.detail),
    )


def unavailable() -> Session:
    return session(
        result("tvmscope", 0.048),
        result("openvino", None, status="unavailable", reason="pip install 'tvmscope[openvino]'"),
    )


def only_unavailable() -> Session:
    """What a machine without a GPU makes of a CUDA target."""
    reason = "cross-compiled into a, not run: no CUDA device here"
    return session(
        result("tvmscope", None, "cuda:sm_90", status="unavailable", reason=reason), targets=(CUDA,)
    )


def interrupted() -> Session:
    return session(
        result("tvmscope", 0.048),
        result("torch", None, status="interrupted", reason="stopped before it was measured"),
        complete=False,
    )


def random_weights() -> Session:
    return session(result("tvmscope", 0.048), model=replace(MODEL, weights="random"))


def several_targets() -> Session:
    events = Measurement(rounds_s=((0.0009, 0.00091),), clock="cuda-events")
    return session(
        result("onnxruntime", 0.055),
        result("tvmscope", 0.048),
        result("torch", 0.00596, "cuda:sm_90"),
        result("tvmscope", 0.00094, "cuda:sm_90", device_measurement=events),
        targets=(CPU, CUDA),
    )


def throughput() -> Session:
    """Batches of eight."""
    return session(result("onnxruntime", 0.4, items=8), result("tvmscope", 0.32, items=8))


def hostile_names() -> Session:
    """A model file and a library that write escape codes, markup and pages of text."""
    return session(
        result("tvmscope", 0.048, warnings=(HOSTILE,)),
        result(HOSTILE, 0.052),
        result("openvino", None, status="failed", reason=HOSTILE),
        model=replace(MODEL, name=HOSTILE, inputs=(TensorSpec(HOSTILE, (), "int64"),)),
        warnings=(HOSTILE,),
    )


def failed_model() -> Session:
    model = replace(MODEL, name="broken", inputs=(), outputs=(), digest="", weights="file")
    return session(model=model, targets=(), failure="no importer for 'aten::amax'")


def tuned() -> Session:
    """A tuned model: one task that gained, one that did not, one that was left alone."""
    common: dict[str, Any] = {"calls": 2, "least_s": 0.01, "flops": 2e8, "candidates": 40}
    tasks = (
        TunedTask(
            workload="conv2d 1x64x56x56 64x64x3x3 stride 1x1",
            kernel="fused_conv2d",
            rule="conv2d",
            total_s=0.02,
            share=0.4,
            expected_s=0.006,
            expected_per_minute_s=0.009,
            trials=30,
            earlier=10,
            failed=1,
            untuned_s=0.01,
            best_s=0.008,
            points=(
                TuningPoint(trial=11, elapsed_s=1.0, best_s=0.009),
                TuningPoint(trial=40, elapsed_s=60.0, best_s=0.008),
            ),
            chosen=Candidate(params={"columns": 4, "unroll": 8}),
            speedup=1.2,
            interval=(1.15, 1.25),
            own={"unroll": 4},
            parts=(
                Part(name="columns", kind="parameter", reason="building: no such row"),
                Part(name="unroll", kind="parameter", factor=1.1, interval=(1.05, 1.15)),
                Part(name="vectorize", kind="primitive", factor=6.5, interval=(6.0, 7.0)),
            ),
            **common,
        ),
        TunedTask(
            workload=HOSTILE,
            kernel=HOSTILE,
            rule=None,
            total_s=0.004,
            share=0.08,
            trials=3,
            untuned_s=0.002,
            best_s=0.002,
            note="no candidate was faster",
            **common,
        ),
        TunedTask(
            workload="matmul 1x8x8",
            kernel="matmul",
            rule="matmul",
            total_s=1e-5,
            share=2e-4,
            note="too small: 0.02% of the model",
            **common,
        ),
    )
    return informed(
        session(result("tvmscope", 0.05), result("tvmscope-tuned", 0.045), tuning=tasks)
    )


ALL = {
    f.__name__: f
    for f in (
        complete, failed_backend, wrong_result, unavailable, only_unavailable, interrupted,
        random_weights, several_targets, throughput, hostile_names, failed_model, tuned,
    )
}  # fmt: skip
