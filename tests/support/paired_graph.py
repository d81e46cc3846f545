"""Small graphs built twice, as Relax and as PyTorch values, then compiled and compared."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch
import torch.nn.functional as nnf
import tvm
from hypothesis import Phase, settings
from tvm import relax
from tvm.s_tir.analysis import OOBChecker

from tvmscope.compiler import pipeline, targets
from tvmscope.core.options import CompileOptions
from tvmscope.core.target import Target

Array = np.ndarray[Any, Any]
TOLERANCE = {"float32": 1e-5, "float16": 4e-3, "bfloat16": 2e-2}
"""max|a-b| / max|reference|; half precision keeps eleven bits, and a chain rounds a few times."""
WINOGRAD_TOLERANCE = 5e-5
"""Its transforms multiply by up to 64 what they then subtract again."""
DIRECT = CompileOptions(overrides={"winograd": False})
_CONVERSION = re.compile(r"(fused_)?(to|from)_blocks\d*$")


def drawn(examples: int) -> settings:
    """The same examples in every run, each with the time that a compilation takes.

    Some run in the fast suite and many in the slow one. A failing one is shown as it is: to make
    it smaller takes hundreds of compilations.
    """
    phases = (Phase.explicit, Phase.generate)
    return settings(
        max_examples=examples, deadline=None, derandomize=True, database=None, phases=phases
    )


@dataclass(frozen=True, eq=False)
class Node:
    """One value of the graph: how TVM computes it and what PyTorch computed."""

    op: Callable[..., relax.Expr]
    args: tuple[Node, ...]
    value: torch.Tensor


@dataclass(frozen=True)
class Ran:
    """What the compiled graph gave, and how it was compiled."""

    outputs: tuple[Array, ...]
    rules: dict[str, str | None]
    """The schedule rule that took each kernel; None where no rule did."""
    remarks: tuple[str, ...]

    def taken_by(self, rule: str | None) -> list[str]:
        """The kernels that `rule` scheduled, without those that only convert the layout."""
        found = [kernel for kernel, name in self.rules.items() if name == rule]
        return [kernel for kernel in found if not _CONVERSION.match(kernel)]

    @property
    def convolutions(self) -> int:
        """Kernels that a rule for dense convolutions took."""
        return len(self.taken_by("conv2d")) + len(self.taken_by("winograd"))

    @property
    def conversions(self) -> int:
        """Kernels that only convert the layout."""
        return sum(bool(_CONVERSION.match(kernel)) for kernel in self.rules)


class Graph:
    """A function under construction; every operator runs in PyTorch at once, in TVM at the end."""

    def __init__(self, seed: int = 0) -> None:
        self._random = torch.Generator().manual_seed(seed)
        self._inputs: dict[Node, relax.Var] = {}
        self._operators: list[Node] = []

    # ---- leaves ------------------------------------------------------------------------------

    def random(self, *shape: int, scale: float = 1.0) -> torch.Tensor:
        """Normally distributed numbers."""
        return torch.randn(shape, generator=self._random) * scale

    def input(self, *shape: int) -> Node:
        """A float32 parameter of the function, filled with random numbers."""
        return self.input_of(self.random(*shape))

    def input_of(self, value: torch.Tensor) -> Node:
        """A parameter with this value."""
        name, dtype = f"input{len(self._inputs)}", str(value.dtype).removeprefix("torch.")
        var = relax.Var(name, relax.TensorType(tuple(value.shape), dtype))
        node = Node(lambda: var, (), value)
        self._inputs[node] = var
        return node

    def constant(self, value: torch.Tensor) -> Node:
        """A value that the compiler knows."""
        dtype = str(value.dtype).removeprefix("torch.")
        return Node(lambda: relax.const(value.numpy(), dtype), (), value)

    # ---- operators ---------------------------------------------------------------------------

    def apply(
        self, op: Callable[..., relax.Expr], reference: Callable[..., Any], *args: Node
    ) -> Node:
        """An operator in both worlds."""
        value = reference(*(a.value for a in args))
        node = Node(op, args, value.contiguous())
        self._operators.append(node)
        return node

    def conv2d(
        self,
        x: Node,
        outputs: int,
        kernel: int | tuple[int, int] = 3,
        *,
        stride: int | tuple[int, int] = 1,
        padding: int | tuple[int, int, int, int] = 0,
        dilation: int | tuple[int, int] = 1,
        groups: int = 1,
    ) -> Node:
        """A convolution with constant weights; `padding` is top, left, bottom, right."""
        kh, kw = (kernel, kernel) if isinstance(kernel, int) else kernel
        inputs = x.value.shape[1] // groups
        weight = self.random(outputs, inputs, kh, kw, scale=(inputs * kh * kw) ** -0.5)
        top, left, bottom, right = (padding,) * 4 if isinstance(padding, int) else padding
        return self.apply(
            partial(
                relax.op.nn.conv2d,
                strides=stride,
                padding=(top, left, bottom, right),
                dilation=dilation,
                groups=groups,
            ),
            lambda x, w: nnf.conv2d(
                nnf.pad(x, (left, right, top, bottom)), w, None, stride, 0, dilation, groups
            ),
            x,
            self.constant(weight),
        )

    def add(self, x: Node, y: Node) -> Node:
        """x + y, with broadcasting."""
        return self.apply(relax.op.add, torch.add, x, y)

    def multiply(self, x: Node, y: Node) -> Node:
        """x * y, with broadcasting."""
        return self.apply(relax.op.multiply, torch.mul, x, y)

    def bias(self, x: Node) -> Node:
        """Add a constant along the channels (4-D) or the last axis."""
        shape = (1, x.value.shape[1], 1, 1) if x.value.ndim == 4 else (x.value.shape[-1],)
        return self.add(x, self.constant(self.random(*shape)))

    def relu(self, x: Node) -> Node:
        """max(x, 0)."""
        return self.apply(relax.op.nn.relu, torch.relu, x)

    def reshape(self, x: Node, *shape: int) -> Node:
        """The same values in another shape."""
        return self.apply(lambda v: relax.op.reshape(v, shape), lambda v: v.reshape(shape), x)

    def epilogue(self, x: Node, name: str) -> Node:
        """What may follow a convolution or a matmul, by name."""
        if name == "residual":
            return self.add(x, self.input(*x.value.shape))
        if name == "gate":
            return self.multiply(x, self.apply(relax.op.sigmoid, torch.sigmoid, x))
        simple = {
            "clip": (lambda v: relax.op.clip(v, -0.5, 1.5), lambda v: v.clip(-0.5, 1.5)),
            "silu": (relax.op.nn.silu, nnf.silu),
            "gelu": (relax.op.nn.gelu, nnf.gelu),
            "scale": (lambda v: relax.op.multiply(v, relax.const(0.125)), lambda v: v * 0.125),
        }
        return self.apply(*simple[name], x) if name in simple else getattr(self, name)(x)

    # ---- compiling ---------------------------------------------------------------------------

    def module(self, *outputs: Node) -> tvm.IRModule:
        """The function that returns `outputs`."""
        builder = relax.BlockBuilder()
        exprs: dict[Node, relax.Expr] = {}

        def expr(node: Node) -> relax.Expr:
            return exprs[node] if node in exprs else node.op()

        with builder.function("main", list(self._inputs.values())):
            with builder.dataflow():
                for node in self._operators:
                    exprs[node] = builder.emit(node.op(*(expr(a) for a in node.args)))
                results = [expr(o) for o in outputs]
                whole = results[0] if len(results) == 1 else relax.Tuple(results)
                output = builder.emit_output(whole)
            builder.emit_func_output(output)
        return builder.get()

    def run(self, *outputs: Node, target: Target, options: CompileOptions | None = None) -> Ran:
        """Compile for `target` and run here."""
        tvm_target = tvm.target.Target(targets.to_tvm(target))
        options = options or CompileOptions()
        lowered = pipeline.run(self.module(*outputs), target, tvm_target, options)
        assert_in_bounds(lowered.module)
        executable = relax.build(lowered.module, tvm_target, relax_pipeline=None)
        machine = relax.VirtualMachine(executable, tvm.cpu())
        got = machine["main"](*(tvm.runtime.tensor(i.value.numpy()) for i in self._inputs))
        tensors = [got] if len(outputs) == 1 else list(got)
        return Ran(tuple(t.numpy() for t in tensors), rules(lowered.module), lowered.remarks)

    def check(self, *outputs: Node, target: Target, options: CompileOptions | None = None) -> Ran:
        """Compile, run, and compare with PyTorch; no rule may have failed on the way."""
        ran = self.run(*outputs, target=target, options=options)
        assert ran.remarks == (), ran.remarks
        tolerance = TOLERANCE[options.precision.dtype if options else "float32"]
        if ran.taken_by("winograd"):
            tolerance = max(tolerance, WINOGRAD_TOLERANCE)
        for node, got in zip(outputs, ran.outputs, strict=True):
            assert_close(got, node.value.numpy(), tolerance)
        return ran


def rules(module: tvm.IRModule) -> dict[str, str | None]:
    """Which rule took each kernel of a lowered module."""
    found: dict[str, str | None] = {}
    for var, function in module.functions_items():
        if isinstance(function, tvm.tirx.PrimFunc):
            rule = function.attrs.get("tvmscope.rule") if function.attrs else None
            found[var.name_hint] = None if rule is None else str(rule)
    return found


def assert_in_bounds(module: tvm.IRModule) -> None:
    """No convolution reads beside its data, not even for columns that are cropped afterwards.

    TVM's checker does not see through the guards of the other rules.
    """
    for kernel, rule in rules(module).items():
        if rule in ("conv2d", "depthwise"):
            OOBChecker()(tvm.IRModule({kernel: module[kernel]}))


def assert_close(got: Array, expected: Array, tolerance: float) -> None:
    """Same shape and type; floats within `tolerance` of the largest value, the rest equal."""
    assert (got.shape, got.dtype) == (expected.shape, expected.dtype)
    if expected.dtype.kind in "biu":
        np.testing.assert_array_equal(got, expected)
        return
    assert np.isfinite(expected).all(), "the reference proves nothing"
    scale = max(float(np.abs(expected).max()), 1e-6)
    error = float(np.abs(got.astype(np.float64) - expected).max()) / scale
    assert error < tolerance, f"off by {error:.1e} of the largest value"
