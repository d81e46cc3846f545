"""Check compiled candidates against PyTorch and time them in CUDA graphs, beside PyTorch's own.

Used by cuda_kernels.py, in a process of its own that holds torch and the GPU. A graph has ten
launches. "cold": each launch has its own copy of the weights, and the L2 cache was filled with
other data before, as in a network whose weights exceed it; the input is touched just before, as a
predecessor would. "hot": the same graph run again at once.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable
from itertools import groupby
from pathlib import Path
from typing import Any

import torch
from torch.nn import functional

from tvmscope.cuda import config as configs
from tvmscope.cuda.binding import bind
from tvmscope.cuda.candidates import Candidate
from tvmscope.cuda.cubins.compiled_kernel import CompiledKernel
from tvmscope.cuda.kernel_bench import loaded as load_kernel
from tvmscope.cuda.library.call import LibraryCall, call_of
from tvmscope.cuda.library.call import configs as library_configs
from tvmscope.cuda.packing import pack_weight
from tvmscope.cuda.units import (
    Attention,
    Conv2d,
    Epilogue,
    GroupNorm,
    Matmul,
    Norm,
    Pool,
    Softmax,
    Tensor,
    Unit,
)
from tvmscope.errors import TvmscopeError, one_line

LAUNCHES = 10
REPEATS = 12
SCRUB_BYTES = 192 << 20
TOLERANCE = {"float16": 3e-3, "bfloat16": 2e-2, "tf32": 3e-3, "tf32x3": 2e-5, "ieee": 2e-5}
"""Largest error over the largest value of the reference."""
Tensors = dict[str, torch.Tensor]


def measure(
    candidates: list[Candidate],
    output: Path,
    *,
    first: int,
    budget_s: float,
    library: bool,
    timed: bool,
) -> None:
    """Measure from candidate `first` on; records and the state go to `output`."""
    started, index = time.monotonic(), 0
    scrub = torch.zeros(SCRUB_BYTES // 4, device="cuda")
    with (output / "records.jsonl").open("a") as file:
        for key, group in groupby(candidates, key=lambda c: c.unit.key):
            members = list(group)
            todo = [(index + i, c) for i, c in enumerate(members) if index + i >= first]
            index += len(members)
            if not todo:
                continue
            if time.monotonic() - started > budget_s:
                _tell(output, todo[0][0], finished=True)
                print(f"out of time before {members[0].unit.label} ({key})", flush=True)
                return
            bench = Bench(members[0].unit, scrub, timed)
            for number, candidate in todo:
                _tell(output, number, candidate=configs.to_json(candidate.kernel.config))
                file.write(json.dumps(bench.candidate(candidate)) + "\n")
                file.flush()
            if library and timed and len(todo) == len(members):
                # a layout after the other: packing weights takes longer than timing them
                unit = members[0].unit
                calls = sorted(library_configs(unit), key=lambda c: (c.template, c.layout))
                for config in calls:
                    _tell(output, todo[-1][0], candidate=configs.to_json(config))
                    file.write(json.dumps(bench.call(config)) + "\n")
                _tell(output, todo[-1][0], candidate="library")
                file.write(json.dumps(bench.library()) + "\n")
                file.flush()
            del bench
    _tell(output, index, finished=True)


def _tell(output: Path, index: int, *, finished: bool = False, candidate: Any = None) -> None:
    state = {"index": index, "finished": finished, "candidate": candidate}
    (output / "state.json").write_text(json.dumps(state))


class Bench:
    """One unit's tensors, its reference, and the ways to run it."""

    def __init__(self, unit: Unit, scrub: torch.Tensor, timed: bool) -> None:
        self.unit, self.scrub, self.timed = unit, scrub, timed
        self.tensors = _draw(unit)
        self.reference = _reference(unit, self.tensors)
        self.packed: dict[str, list[torch.Tensor]] = {}

    def candidate(self, candidate: Candidate) -> dict[str, Any]:
        """The record of one compiled kernel."""
        kernel = candidate.kernel
        record = self._record() | {
            "config": configs.to_json(kernel.config),
            "estimate_us": candidate.estimate_us,
            "registers": kernel.registers,
            "local_bytes": kernel.local_bytes,
            "shared_bytes": kernel.shared_bytes,
        }
        try:
            return record | self._checked(kernel)
        except TvmscopeError as e:  # the driver refused it; a fault on the device ends the process
            return record | {"reason": one_line(e)}

    def call(self, config: configs.Config) -> dict[str, Any]:
        """The record of a library's call in a kernel's place."""
        record = self._record() | {"config": configs.to_json(config)}
        try:
            return record | self._checked(call_of(self.unit, config))
        except (TvmscopeError, RuntimeError) as e:  # fewer algorithms, or a call that fails
            return record | {"reason": one_line(e)}

    def _checked(self, kernel: CompiledKernel | LibraryCall) -> dict[str, Any]:
        """What loading, one run, and then the timing of a kernel give."""
        loaded = load_kernel(kernel)
        arguments = bind(self.unit, kernel.config).arguments
        own = {t.role: _own(t) for t in arguments if t.role not in self.tensors}
        typed = {
            t.role: self.tensors[t.role].to(getattr(torch, t.dtype))
            for t in arguments
            if t.role in self.tensors and t.role != "weight"
        }
        weights = self._packed(kernel.config)

        def launch(i: int) -> None:
            weight = {"weight": weights[i % len(weights)]} if weights else {}
            values = typed | own | weight
            pointers = [values[t.role].data_ptr() for t in arguments]
            pointers += [0] * kernel.hidden_pointers
            loaded.launch(pointers, torch.cuda.current_stream().cuda_stream)

        launch(0)
        torch.cuda.synchronize()
        error = _error(_values(self.unit, own["output"]), self.reference)
        if error is None:
            return {"reason": "a value was not written, or is NaN"}
        if error > TOLERANCE[_tolerance_key(self.unit)]:
            return {"error": error, "reason": f"error {error:.2e}"}
        written = own["output"].clone()
        times = self._times(launch) if self.timed else self._again(launch)
        # bit by bit, NaN around a view included: split-K's order and counters must repeat
        if not torch.equal(written.view(torch.uint8), own["output"].view(torch.uint8)):
            return {"error": error, "reason": "two runs gave different bits"}
        loaded.close()
        return {"error": error, "correct": True, **times}

    def library(self) -> dict[str, Any]:
        """The record of what PyTorch has for the unit."""
        record = self._record()
        torch.backends.cudnn.benchmark = True
        try:
            name, call = _library(self.unit, self.tensors)
            got = call(0)
            torch.cuda.synchronize()
            error = _error(got, self.reference)
            record |= {"library": name, "error": error, "correct": error is not None}
            return record | self._times(call)
        except (RuntimeError, NotImplementedError) as e:
            return record | {"library": "none", "reason": one_line(e)}
        finally:  # references are computed once, so trying all algorithms first would be a waste
            torch.backends.cudnn.benchmark = False

    def _record(self) -> dict[str, Any]:
        return {
            "unit": self.unit.to_json(),
            "key": self.unit.key,
            "label": self.unit.label,
            "gpu": torch.cuda.get_device_name(),
            "correct": False,
            "error": None,
            "reason": None,
        }

    def _packed(self, config: configs.Config) -> list[torch.Tensor]:
        """Ten copies of the weight in a layout."""
        weight = self.tensors.get("weight")
        if weight is None:
            return []
        name = f"{config.template}-{config.layout}"
        if name not in self.packed:
            self.packed.clear()  # one layout at a time: weights are large
            values = pack_weight(self.unit, config, weight.float().cpu().numpy())
            packed = torch.from_numpy(values).to(weight.dtype).cuda()
            self.packed[name] = [packed.clone() for _ in range(LAUNCHES)]
        return self.packed[name]

    def _again(self, launch: Callable[[int], Any]) -> dict[str, Any]:
        """Many more runs, untimed."""
        for i in range(LAUNCHES):
            launch(i)
        torch.cuda.synchronize()
        return {"cold_us": [], "hot_us": []}

    def _times(self, launch: Callable[[int], Any]) -> dict[str, Any]:
        """Microseconds per launch of each graph run, cold and hot."""
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            launch(0)
            launch(1)
            stream.synchronize()
            # not torch.cuda.graph(), which collects garbage and empties torch's cache each time
            graph = torch.cuda.CUDAGraph()
            graph.capture_begin()
            for i in range(LAUNCHES):
                launch(i)
            graph.capture_end()
            graph.replay()
            touched = [t for role, t in self.tensors.items() if role != "weight"]
            events = [
                [torch.cuda.Event(enable_timing=True) for _ in range(3)] for _ in range(REPEATS)
            ]
            for before, between, after in events:
                self.scrub.sum()
                for tensor in touched:
                    tensor.view(-1)[: 32 << 20].sum()
                before.record()
                graph.replay()
                between.record()
                graph.replay()
                after.record()
            stream.synchronize()
        graph.reset()
        each = 1e3 / LAUNCHES
        return {
            "cold_us": [a.elapsed_time(b) * each for a, b, _ in events],
            "hot_us": [b.elapsed_time(c) * each for _, b, c in events],
        }


def _own(tensor: Tensor) -> torch.Tensor:
    """Memory that a kernel writes: counters are zero, what holds numbers is poisoned."""
    value = 0 if tensor.dtype == "int32" else float("nan")
    dtype = getattr(torch, tensor.dtype)
    return torch.full(tensor.shape, value, dtype=dtype, device="cuda")


def _draw(unit: Unit) -> Tensors:
    """Random tensors; weights are scaled so that outputs are of the order of one."""
    generator = torch.Generator("cuda").manual_seed(0)
    out: Tensors = {}
    for t in unit.tensors:
        if t.role in ("output", "sum"):
            continue
        values = torch.randn(t.shape, generator=generator, device="cuda")
        if t.role == "weight":
            values *= (2.0 / getattr(unit, "k", 1)) ** 0.5
        elif t.role == "second":
            values *= (1.0 / getattr(unit, "k", 1)) ** 0.5
        out[t.role] = values.to(getattr(torch, t.dtype))
    return out


def _tolerance_key(unit: Unit) -> str:
    products = getattr(unit, "math", "ieee")
    (output,) = (t.dtype for t in unit.tensors if t.role == "output")
    if output != "float32":
        return str(output)
    return unit.dtype if products == "tensor" else str(products)


def _wide(unit: Unit, tensor: torch.Tensor) -> torch.Tensor:
    """In the type of the reference: float64, or float32 where that would take too long."""
    return tensor.double() if unit.flops < 2e10 else tensor.float()


class _Exact:
    """No TF32 while the reference is computed."""

    def __enter__(self) -> None:
        self.before = (torch.backends.cudnn.allow_tf32, torch.backends.cuda.matmul.allow_tf32)
        torch.backends.cudnn.allow_tf32 = torch.backends.cuda.matmul.allow_tf32 = False

    def __exit__(self, *_: object) -> None:
        torch.backends.cudnn.allow_tf32, torch.backends.cuda.matmul.allow_tf32 = self.before


def _reference(unit: Unit, tensors: Tensors) -> torch.Tensor:
    wide = {role: _wide(unit, t) for role, t in tensors.items()}
    with _Exact(), torch.no_grad():
        return _compute(unit, wide)


def _activate(x: torch.Tensor, epilogue: Epilogue) -> torch.Tensor:
    forms: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
        "none": lambda v: v,
        "relu": functional.relu,
        "relu6": functional.relu6,
        "clip": lambda v: torch.clamp(v, *epilogue.parameters),
        "leaky_relu": lambda v: functional.leaky_relu(v, epilogue.parameters[0]),
        "sigmoid": torch.sigmoid,
        "silu": functional.silu,
        "hardswish": functional.hardswish,
        "gelu": functional.gelu,
        "quick_gelu": lambda v: v * torch.sigmoid(1.702 * v),
        "gelu_tanh": lambda v: functional.gelu(v, approximate="tanh"),
        "tanh": torch.tanh,
        "elu": functional.elu,
        "selu": functional.selu,
        "softplus": functional.softplus,
        "mish": functional.mish,
        "softsign": functional.softsign,
        "relu_squared": lambda v: functional.relu(v).square(),
    }
    return forms[epilogue.activation](x)


def _finish(
    x: torch.Tensor, epilogue: Epilogue, bias: torch.Tensor | None, z: torch.Tensor | None
) -> torch.Tensor:
    if bias is not None:
        x = x + bias
    if z is not None and epilogue.residual == "before":
        x = x + z
    x = _activate(x, epilogue)
    if z is not None and epilogue.residual == "factor":
        return x * z
    return x + z if z is not None and epilogue.residual == "after" else x


def _pooled(x: torch.Tensor, unit: Conv2d) -> torch.Tensor:
    if unit.pooled is None:
        return x
    pool = functional.max_pool2d if unit.pooled.form == "max" else functional.avg_pool2d
    return pool(x.permute(0, 3, 1, 2), (unit.pooled.r, unit.pooled.s)).permute(0, 2, 3, 1)


def _compute(unit: Unit, t: Tensors) -> torch.Tensor:
    """The unit by plain PyTorch calls, in whatever type the tensors have."""
    if isinstance(unit, Conv2d):
        at = unit.input.offset
        x = t["input"][..., at : at + unit.c].permute(0, 3, 1, 2)
        if unit.gated:
            x = x * t["gate"].reshape(unit.n, unit.c, 1, 1)
        w = t["weight"].permute(0, 3, 1, 2)
        top, left, bottom, right = unit.padding
        pad = (top, left)
        if (bottom, right) != pad:
            x, pad = functional.pad(x, (left, right, top, bottom)), (0, 0)
        y = functional.conv2d(x, w, None, unit.stride, pad, unit.dilation, unit.groups)
        z = t.get("residual")
        if z is not None:
            z = z[..., unit.residual.offset : unit.residual.offset + unit.oc]
        return _pooled(_finish(y.permute(0, 2, 3, 1), unit.epilogue, t.get("bias"), z), unit)
    if isinstance(unit, Matmul):
        a = _matrices(unit, t["input"], unit.matrix_a, unit.m, unit.k)
        b = (
            t["weight"]
            if unit.weight
            else _matrices(unit, t["second"], unit.matrix_b("kn"), unit.k, unit.n)
        )
        z = t.get("residual")
        if z is not None:
            z = _matrices(unit, z, unit.matrix_z, unit.m, unit.n)
        return _finish(a @ b * unit.scale, unit.epilogue, t.get("bias"), z)
    if isinstance(unit, Attention):
        q, k, v = (_heads(unit, t, role) for role in ("query", "key", "value"))
        scores = q @ k.transpose(-1, -2) * unit.scale
        if unit.mask is not None:
            batches = unit.mask_batches or unit.batch
            shape = (batches, unit.heads, unit.queries, unit.keys)
            mask = torch.as_strided(t["mask"], shape, (*unit.mask, 1))
            scores = scores + mask.repeat(unit.batch // batches, 1, 1, 1)
        if unit.causal:
            hidden = torch.ones_like(scores, dtype=torch.bool)
            hidden = hidden.triu(unit.keys - unit.queries + 1)
            scores = scores.masked_fill(hidden, float("-inf"))
        return torch.nan_to_num(scores.softmax(-1), nan=0.0) @ v
    if isinstance(unit, Softmax):
        scores = t["input"] * unit.scale
        return scores.log_softmax(-1) if unit.log else scores.softmax(-1)
    if isinstance(unit, Norm):
        x, shape = t["input"], (unit.columns,)
        if unit.x is not None:
            sizes = (unit.rows // math.prod(unit.x.sizes), *unit.x.sizes, *shape)
            x = torch.as_strided(x, sizes, (*unit.x.steps, 1), unit.x.offset)
            x = x.reshape(unit.rows, unit.columns)
        x = x + t["residual"] if unit.residual else x
        scale, bias = t.get("scale"), t.get("bias")
        if unit.form == "layer":
            return functional.layer_norm(x, shape, scale, bias, unit.epsilon)
        if unit.form == "length":
            x = functional.normalize(x, dim=-1, eps=unit.epsilon)
            x = x * scale if scale is not None else x
        else:
            x = functional.rms_norm(x, shape, scale, unit.epsilon)
        return x + bias if bias is not None else x
    if isinstance(unit, GroupNorm):
        x = t["input"].transpose(1, 2)
        y = functional.group_norm(x, unit.groups, t["scale"], None, unit.epsilon).transpose(1, 2)
        return _finish(y, unit.epilogue, t.get("bias"), t.get("residual"))
    if isinstance(unit, Pool):
        x = t["input"][..., unit.input.offset :][..., : unit.c].permute(0, 3, 1, 2)
        return _pool(unit, x).permute(0, 2, 3, 1)
    raise NotImplementedError(unit.kind)


def _pool(unit: Pool, x: torch.Tensor) -> torch.Tensor:
    if unit.whole:
        return x.mean((2, 3), keepdim=True) if unit.form == "mean" else x.amax((2, 3), keepdim=True)
    top, left, bottom, right = unit.padding
    pad = (top, left)
    if (bottom, right) != pad:
        if unit.form == "mean":
            raise NotImplementedError("uneven padding of a mean")
        x, pad = functional.pad(x, (left, right, top, bottom), value=float("-inf")), (0, 0)
    window = (unit.r, unit.s)
    if unit.form == "max":
        return functional.max_pool2d(x, window, unit.stride, pad, 1, unit.round_up)
    return functional.avg_pool2d(x, window, unit.stride, pad, unit.round_up, unit.count_padding)


def _matrices(unit: Matmul, buffer: torch.Tensor, at: Any, rows: int, columns: int) -> torch.Tensor:
    outer, inner = unit.batch
    view = torch.as_strided(
        buffer.view(-1),
        (outer, inner, rows, columns),
        (at.outer, at.inner, at.row, at.column),
        at.offset,
    )
    return view if unit.batches > 1 else view[0, 0]


def _heads(unit: Attention, t: Tensors, role: str) -> torch.Tensor:
    """A tensor as [batch, heads, rows, dim]; keys and values once for each head."""
    name: Any = role[0]
    at, rows = unit.heads_of(name), unit.queries if name == "q" else unit.keys
    shape = (unit.batch, unit.heads_in(name), rows, unit.dim_v if name == "v" else unit.dim)
    own = torch.as_strided(t[role].view(-1), shape, (at.batch, at.head, at.row, 1), at.offset)
    shared = unit.heads // shape[1]
    return own.repeat_interleave(shared, 1) if shared > 1 else own


def _values(unit: Unit, buffer: torch.Tensor) -> torch.Tensor:
    """What the unit wrote, in the reference's shape."""
    if isinstance(unit, Conv2d):
        return buffer[..., unit.output.offset : unit.output.offset + unit.oc]
    if isinstance(unit, Pool):
        return buffer[..., unit.output.offset : unit.output.offset + unit.c]
    if isinstance(unit, Matmul):
        return _matrices(unit, buffer, unit.matrix_y, unit.m, unit.n)
    if isinstance(unit, Attention):
        at = unit.heads_of("y")
        return torch.as_strided(
            buffer.view(-1),
            (unit.batch, unit.heads, unit.queries, unit.dim_v),
            (at.batch, at.head, at.row, 1),
            at.offset,
        )
    return buffer


def _error(got: torch.Tensor, reference: torch.Tensor) -> float | None:
    """Largest difference over the largest value; None where a value is NaN."""
    got = got.to(reference.dtype).reshape(reference.shape)
    error = float(((got - reference).abs().max() / reference.abs().max()).item())
    return None if math.isnan(error) else error


def _library(unit: Unit, t: Tensors) -> tuple[str, Callable[[int], torch.Tensor]]:
    """What PyTorch calls for this, at its best: cuDNN and cuBLAS with their fused epilogues where
    they have one, in channels-last; ten copies of the weight, as for ours."""
    if isinstance(unit, Conv2d):
        return _library_conv(unit, t)
    if isinstance(unit, Matmul) and unit.weight and unit.batches == 1:
        return _library_matmul(unit, t)
    if isinstance(unit, Attention) and unit.mask is None:
        q, k, v = (_heads(unit, t, role) for role in ("query", "key", "value"))
        call = functional.scaled_dot_product_attention
        return "sdpa", lambda _: call(q, k, v, is_causal=unit.causal, scale=unit.scale)
    wide = {
        role: v.to(t["input"].dtype) if role in ("scale", "bias") else v for role, v in t.items()
    }
    return "eager", lambda _: _compute(unit, wide)


def _library_conv(unit: Conv2d, t: Tensors) -> tuple[str, Callable[[int], torch.Tensor]]:
    torch.backends.cudnn.allow_tf32 = unit.math != "ieee"
    start = unit.input.offset
    x = t["input"][..., start : start + unit.c].contiguous().permute(0, 3, 1, 2)
    top, left, bottom, right = unit.padding
    pad = (top, left)
    if (bottom, right) != pad:
        x = functional.pad(x, (left, right, top, bottom))
        x, pad = x.contiguous(memory_format=torch.channels_last), (0, 0)
    w = t["weight"].permute(0, 3, 1, 2)
    ws = [w.contiguous(memory_format=torch.channels_last).clone() for _ in range(LAUNCHES)]
    bias = t["bias"].to(x.dtype) if "bias" in t else None
    e = unit.epilogue
    z = t["residual"][..., unit.residual.offset :][..., : unit.oc] if "residual" in t else None
    place = (unit.stride, pad, unit.dilation, unit.groups)
    fused = e.activation == "relu" and unit.groups == 1 and unit.pooled is None
    fused = fused and not unit.gated
    gate = t["gate"].reshape(unit.n, unit.c, 1, 1) if unit.gated else None
    if fused and e.residual == "none":
        call = torch.cudnn_convolution_relu
        return "cudnn_convolution_relu", lambda i: call(x, ws[i], bias, *place).permute(0, 2, 3, 1)
    if fused and e.residual == "before" and z is not None:
        zz, add = z.contiguous().permute(0, 3, 1, 2), torch.cudnn_convolution_add_relu
        return "cudnn_convolution_add_relu", lambda i: add(x, ws[i], zz, 1.0, bias, *place).permute(
            0, 2, 3, 1
        )

    def call_plain(i: int) -> torch.Tensor:
        scaled = x if gate is None else x * gate
        y = functional.conv2d(scaled, ws[i], bias, *place).permute(0, 2, 3, 1)
        return _pooled(_finish(y, e, None, z), unit)

    return "conv2d + eager", call_plain


def _library_matmul(unit: Matmul, t: Tensors) -> tuple[str, Callable[[int], torch.Tensor]]:
    torch.backends.cuda.matmul.allow_tf32 = unit.math != "ieee"
    a = _matrices(unit, t["input"], unit.matrix_a, unit.m, unit.k)
    ws = [t["weight"].t().contiguous().clone().t() for _ in range(LAUNCHES)]  # as nn.Linear has it
    bias = t["bias"].to(a.dtype) if "bias" in t else None
    z = t.get("residual")
    z = None if z is None else _matrices(unit, z, unit.matrix_z, unit.m, unit.n)
    e = unit.epilogue
    if (
        bias is not None
        and z is None
        and unit.scale == 1.0
        and e.activation in ("relu", "gelu_tanh")
    ):
        gelu = e.activation != "relu"
        call = torch._addmm_activation
        return "addmm_activation", lambda i: call(bias, a, ws[i], use_gelu=gelu)

    def call_plain(i: int) -> torch.Tensor:
        if bias is not None and unit.scale == 1.0:
            return _finish(torch.addmm(bias, a, ws[i]), e, None, z)
        y = a @ ws[i]
        return _finish(y if unit.scale == 1.0 else y * unit.scale, e, bias, z)

    return "addmm + eager", call_plain
