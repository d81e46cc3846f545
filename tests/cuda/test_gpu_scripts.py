"""The scripts that check a GPU machine, as far as a machine without one can run them."""

from __future__ import annotations

import ctypes
import json
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from tvmscope.cuda.config import Config
from tvmscope.cuda.cubins.compile_pool import Failure
from tvmscope.cuda.cubins.compiled_kernel import CompiledKernel
from tvmscope.cuda.packing import pack_weight
from tvmscope.cuda.plan import read_plan
from tvmscope.cuda.reference import norm_sum, output_values, reference
from tvmscope.cuda.units import Conv2d, Epilogue, Matmul, Norm, Unit, View

SCRIPTS = Path(__file__).resolve().parents[2] / "scripts"
CONV = Conv2d(
    dtype="bfloat16", n=1, h=5, w=4, c=3, oc=5, r=2, s=3, padding=(1, 1, 1, 1),
    epilogue=Epilogue(bias=True, activation="relu"), output=View(pitch=9, offset=2),
)  # fmt: skip


@pytest.fixture
def odd(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(SCRIPTS))
    import cuda_odd

    return cuda_odd


@pytest.fixture
def gpu_check(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(SCRIPTS))
    import gpu_check

    return gpu_check


class Device:
    """A driver whose memory is this process's, and whose kernels compute the reference."""

    def __init__(
        self, odd: ModuleType, unit: Unit, kernel: CompiledKernel, fault: str = ""
    ) -> None:
        self.odd, self.unit, self.kernel, self.fault = odd, unit, kernel, fault
        self.held: dict[int, Any] = {}
        self.launches = 0

    def call(self, name: str, *args: Any) -> None:
        getattr(self, name)(*args)

    def cuMemAlloc_v2(self, out: Any, size: Any) -> None:  # noqa: N802 - the driver's names
        memory = ctypes.create_string_buffer(size.value)
        out._obj.value = ctypes.addressof(memory)
        self.held[ctypes.addressof(memory)] = memory

    def cuMemFree_v2(self, pointer: Any) -> None:  # noqa: N802
        del self.held[pointer.value]

    def cuMemsetD8_v2(self, pointer: Any, value: Any, size: Any) -> None:  # noqa: N802
        ctypes.memset(pointer.value, value.value, size.value)

    def cuMemcpyHtoD_v2(self, pointer: Any, data: bytes, size: Any) -> None:  # noqa: N802
        ctypes.memmove(pointer.value, data, size.value)

    def cuMemcpyDtoH_v2(self, data: Any, pointer: Any, size: Any) -> None:  # noqa: N802
        ctypes.memmove(data, pointer.value, size.value)

    def cuCtxSynchronize(self) -> None:  # noqa: N802
        pass

    def Kernel(self, *_: Any, **__: Any) -> Any:  # noqa: N802
        return self

    def close(self) -> None:
        pass

    def launch(self, pointers: list[int]) -> None:
        self.launches += 1
        if self.fault == "nothing":
            return
        places = dict(zip((t.role for t in self.kernel.arguments), pointers, strict=False))
        given = self._given(places)
        (out,) = (t for t in self.kernel.arguments if t.role == "output")
        memory = (ctypes.c_char * out.size_bytes).from_address(places["output"])
        buffer = self.odd.from_bytes(bytes(memory), out.dtype).reshape(out.shape)
        values = output_values(self.unit, buffer)
        values[...] = reference(self.unit, given).reshape(values.shape)
        if self.fault == "around":
            buffer.reshape(-1)[0] = 1.0
        if self.fault == "wrong":
            values[(-1,) * values.ndim] += 1.0
        if self.fault == "bits":
            values[(-1,) * values.ndim] += self.launches
        raw = self.odd.to_bytes(buffer, out.dtype)
        ctypes.memmove(places["output"], raw, len(raw))

    def _given(self, places: dict[str, int]) -> dict[str, Any]:
        given = {}
        for tensor in self.kernel.arguments:
            if tensor.role in self.odd.OWN:
                continue
            data = (ctypes.c_char * tensor.size_bytes).from_address(places[tensor.role])
            values = self.odd.from_bytes(bytes(data), tensor.dtype)
            if tensor.role == "weight":
                rows = self.unit.tensor("weight").shape  # type: ignore[union-attr]
                packed = pack_weight(
                    self.unit, self.kernel.config, np.arange(values.size).reshape(rows)
                )
                plain = np.empty_like(values)
                plain[packed.reshape(-1).astype(int)] = values
                values = plain.reshape(rows)
            given[tensor.role] = values.reshape(
                self.unit.tensor(tensor.role).shape  # type: ignore[union-attr]
            )
        return given


def kernel_of(unit: Unit, config: Config) -> CompiledKernel:
    from tvmscope.cuda.binding import bind

    binding = bind(unit, config)
    return CompiledKernel(
        unit_key=unit.key, config=config, arch="sm_90", name="k", cubin=b"", grid=binding.grid,
        threads=128, shared_bytes=0, registers=1, local_bytes=0, arguments=binding.arguments,
        hidden_pointers=2, triton="3.6",
    )  # fmt: skip


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        ("", ""),
        ("nothing", "not written"),
        ("wrong", "error"),
        ("around", "around the view"),
        ("bits", "different bits"),
    ],
)
@pytest.mark.parametrize("layout", ["kn", "nk"])
def test_what_a_kernel_does_wrong_is_seen(
    fault: str, words: str, layout: Any, odd: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    kernel = kernel_of(CONV, Config(template="conv2d", m=16, n=16, k=16, split=1, layout=layout))
    device = Device(odd, CONV, kernel, fault)
    monkeypatch.setattr(odd, "driver", device)
    found = odd.check(CONV, kernel, seed=1)
    assert words in found
    assert bool(words) == bool(found)
    assert device.launches == 3
    assert not device.held, "memory was not given back"


def test_a_sum_that_a_norm_keeps_is_judged(odd: ModuleType) -> None:
    unit = Norm(dtype="float32", rows=3, columns=7, residual=True, keep_sum=True)
    given = odd.draw(unit, 0)
    (tensor,) = (t for t in unit.tensors if t.role == "sum")
    right = {"sum": odd.to_bytes(norm_sum(unit, given), tensor.dtype)}
    assert odd.judge_sums(unit, [tensor], right, given) == ""
    wrong = {"sum": b"\xff" * tensor.size_bytes}
    assert "error" in odd.judge_sums(unit, [tensor], wrong, given)


def test_bfloat16_is_rounded_to_even(odd: ModuleType) -> None:
    import torch

    values = np.random.default_rng(0).standard_normal(1000).astype(np.float32)
    wanted = torch.from_numpy(values).to(torch.bfloat16).float().numpy()
    found = odd.from_bytes(odd.to_bytes(values, "bfloat16"), "bfloat16")
    np.testing.assert_array_equal(found, wanted)
    assert np.isnan(odd.from_bytes(b"\xff" * 4, "bfloat16")).all()
    assert np.isnan(odd.from_bytes(b"\xff" * 4, "float16")).all()


@pytest.mark.parametrize("arch", ["sm_80", "sm_90"])
def test_every_template_type_and_launch_is_drawn(odd: ModuleType, arch: str) -> None:
    pairs = list(odd.drawn(6, arch))
    templates = {config.template for _, config in pairs}
    wanted = {"conv2d", "matmul", "matvec", "depthwise", "pool", "attention", "norm", "softmax"}
    assert wanted <= templates
    assert ("persistent" in templates) == (arch == "sm_90")
    assert {c.pdl for _, c in pairs} == ({0, 1, 2} if arch == "sm_90" else {0})
    kinds = {odd.tolerance_key(unit) for unit, _ in pairs}
    assert kinds == set(odd.TOLERANCE)


def test_a_folder_of_kernels_is_prepared(
    odd: ModuleType, triton: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    unit = Matmul(dtype="float16", m=7, n=18, k=33)
    config = Config(template="matmul", m=16, n=16, k=16)
    monkeypatch.setattr(odd, "drawn", lambda count, arch: iter([(unit, config), (unit, config)]))
    assert odd.prepare(tmp_path / "plan", 1, "sm_90") == 0
    (candidate,) = read_plan(tmp_path / "plan")
    assert not isinstance(candidate.kernel, Failure)
    assert candidate.unit == unit


def test_parts_end_in_time_and_leave_a_summary(
    gpu_check: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    work = gpu_check.Work(out=tmp_path, plan=tmp_path, artifact=tmp_path)
    python = sys.executable

    def part(code: str) -> Any:
        return lambda _work: [python, "-c", code]

    parts = {
        "good": (30, part("print('RACECHECK SUMMARY: 0 hazards displayed')")),
        "bad": (30, part("print('3 failed, 2 passed'); raise SystemExit(2)")),
        "slow": (0.5, part("import time; time.sleep(60)")),
        "absent": (30, lambda _work: "no tool here"),
    }
    monkeypatch.setattr(gpu_check, "PARTS", parts)
    assert gpu_check.check(list(gpu_check.PARTS), work, {"good": 20.0}) == 1
    found = {o["part"]: o for o in json.loads((tmp_path / "summary.json").read_text())}
    assert {p: o["status"] for p, o in found.items()} == {
        "good": "ok", "bad": "failed", "slow": "timeout", "absent": "unavailable",
    }  # fmt: skip
    assert found["good"]["said"] == "RACECHECK SUMMARY: 0 hazards displayed"
    assert found["bad"]["said"].startswith("3 failed")
    assert found["slow"]["seconds"] < 20
    assert (tmp_path / "bad.log").is_file()


def test_the_commands_name_what_is_there(gpu_check: ModuleType, tmp_path: Path) -> None:
    work = gpu_check.Work(out=tmp_path, plan=tmp_path / "p", artifact=tmp_path / "a")
    for name in ("tests", "odd", "repeat", "models"):
        command = gpu_check.PARTS[name][1](work)
        scripts = [Path(word) for word in command if word.endswith((".py", ".sh"))]
        assert all(script.is_file() for script in scripts)
    assert "tests/gpu" in gpu_check.PARTS["tests"][1](work)
