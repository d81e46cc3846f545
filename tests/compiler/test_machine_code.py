"""What LLVM makes of the kernels' inner loops, for CPUs that need not be here."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pytest
import tvm
from tvm import te

from support.machine_code import Loop, inner_loops
from tvmscope.compiler import targets
from tvmscope.compiler.cost import dense_tiles, tiles
from tvmscope.compiler.kernels import blocked, convolutions, packing
from tvmscope.compiler.kernels.marks import TILE
from tvmscope.compiler.schedules import cpu
from tvmscope.compiler.schedules.apply import apply_schedules
from tvmscope.compiler.tunable.knobs import Knobs
from tvmscope.core.target import Target

MACHINES = {
    "cpu:znver4": "zmm",
    "cpu:znver3": "ymm",
    "cpu:emeraldrapids": "zmm",
    "arm64:cortex-a72": "v",
}
"""Targets, and the registers that their multiply-adds use."""


@dataclass(frozen=True)
class Case:
    """A convolution of a square image, padded so that stride 1 keeps its size."""

    inputs: int
    size: int
    outputs: int
    kernel: int = 1
    stride: int = 1
    groups: int = 1
    winograd: bool = False

    def __str__(self) -> str:
        groups = f" in {self.groups} groups" if self.groups > 1 else ""
        way = " Winograd" if self.winograd else ""
        shape = f"{self.kernel}x{self.kernel} {self.inputs}->{self.outputs}"
        return f"{shape} at {self.size}/{self.stride}{groups}{way}"


FEW = (
    Case(64, 56, 256),
    Case(2048, 7, 512),
    Case(256, 28, 512, stride=2),
    Case(128, 56, 128, 3, 2),
    Case(128, 28, 128, 3, winograd=True),
)
MANY = (
    Case(3, 224, 64, 7, 2),
    Case(64, 56, 64),
    Case(256, 56, 64),
    Case(256, 56, 128),
    Case(128, 28, 512),
    Case(512, 28, 128),
    Case(512, 28, 256),
    Case(256, 14, 1024),
    Case(1024, 14, 256),
    Case(512, 7, 2048),
    Case(1024, 14, 2048, stride=2),
    Case(256, 28, 256, 3, 2),
    Case(512, 14, 512, 3, 2),
    Case(512, 14, 1024, 3),
    Case(64, 208, 32),
    Case(48, 112, 96),
    Case(24, 56, 144),
    Case(144, 28, 40),
    Case(240, 14, 80),
    Case(1152, 7, 320),
    Case(128, 28, 128, 3, groups=8),
    Case(256, 14, 256, 3, groups=4),
    Case(64, 56, 64, 3, winograd=True),
    Case(256, 14, 256, 3, winograd=True),
    Case(512, 7, 512, 3, winograd=True),
)


def scheduled(case: Case, target: Target) -> tvm.IRModule:
    """A convolution's function, as a compilation schedules it."""
    pad, channels = case.kernel // 2, case.inputs // case.groups
    size = (case.size + 2 * pad - case.kernel) // case.stride + 1
    asked = convolutions.Convolution(
        kernel=np.ones((case.outputs, channels, case.kernel, case.kernel), np.float32),
        window=blocked.Window((case.stride, case.stride), (pad,) * 4, (1, 1)),
        groups=case.groups,
        given=(1, case.inputs, case.size, case.size),
        result=(1, case.outputs, size, size),
        dtype="float32",
    )
    is_blocked = case.inputs > 3
    kernel = convolutions.choose(asked, target, is_blocked, winograd=case.winograd, knobs=Knobs())
    blocks = -(-case.inputs // 16)
    shape = (1, blocks, *asked.given[2:], 16) if is_blocked else asked.given
    x, w = te.placeholder(shape, name="x"), te.placeholder(kernel.weight.shape, name="w")
    y = kernel.compute(x, w)
    out = te.compute(y.shape, lambda *i: te.max(y(*i), 0.0))
    return _applied(te.create_prim_func([x, w, out]), target)


def _applied(function: tvm.tirx.PrimFunc, target: Target) -> tvm.IRModule:
    module = tvm.IRModule({"main": function.with_attr("global_symbol", "main")})
    remarks: list[str] = []
    with tvm.target.Target(targets.to_tvm(target)):
        module = apply_schedules(cpu.RULES, target, remarks)(module)
    assert remarks == []
    return module


def inner_loop(module: tvm.IRModule, target: Target) -> Loop:
    """The loop that sums up in registers; a transform stores what it computes at once."""
    built = tvm.tirx.build(module, target=tvm.target.Target(targets.to_tvm(target)))
    loops = [loop for loop in inner_loops(built.inspect_source("asm")) if not loop.stores]
    assert loops, "no inner loop sums up in registers"
    return max(loops, key=lambda loop: loop.fmas)


def check(case: Case, name: str) -> None:
    target = replace(targets.resolve(name), cores=4)
    module = scheduled(case, target)
    loop = inner_loop(module, target)
    shown = "\n".join(loop.lines)
    assert loop.registers == {MACHINES[name]}, shown
    assert loop.loads <= _most_loads(module, target) * loop.fmas, shown


def loads_per_fma(tile: dense_tiles.Tile, target: Target) -> float:
    """Loads of weights and data for each multiply-add."""
    vectors = tile.blocks * tiles.block_registers(target)
    return (vectors + tile.pixels) / (vectors * tile.pixels)


def _most_loads(module: tvm.IRModule, target: Target) -> float:
    """Loads per multiply-add that the model of the machine counts on, and a little more: the
    constants of a few instructions are read from memory."""
    noted = module.script().split(f'"{TILE}": "')
    if len(noted) > 1:
        tile = dense_tiles.named(noted[1].split('"')[0])
        return 1.1 * loads_per_fma(tile, target)
    return 1.3 if dense_tiles.by_rows(target) else 1.0


@pytest.mark.parametrize("name", MACHINES)
@pytest.mark.parametrize("case", FEW, ids=str)
def test_inner_loops_keep_their_tile_in_registers(case: Case, name: str) -> None:
    check(case, name)


@pytest.mark.slow
@pytest.mark.parametrize("name", MACHINES)
@pytest.mark.parametrize("case", MANY, ids=str)
def test_the_inner_loops_of_many_convolutions_do_so_too(case: Case, name: str) -> None:
    check(case, name)


@pytest.mark.parametrize("case", [Case(2048, 7, 512), Case(512, 7, 512, 3, winograd=True)], ids=str)
def test_a_core_that_computes_fast_spreads_its_prefetches(case: Case) -> None:
    steps = {}
    for name in ("cpu:emeraldrapids", "cpu:znver4"):
        script = scheduled(case, replace(targets.resolve(name), cores=1)).script()
        assert "llvm.prefetch" in script
        steps[name] = int(script.split('spread\\": ')[1].split("}")[0])
    assert steps["cpu:emeraldrapids"] > 1
    assert steps["cpu:znver4"] == 1


@pytest.mark.parametrize("name", MACHINES)
def test_a_matmul_keeps_its_tile_in_registers(name: str) -> None:
    target = replace(targets.resolve(name), cores=4)
    weight = np.ones((768, 3072), np.float32)
    packed = packing.pack_columns(weight, tiles.panel(target))
    x, w = te.placeholder((197, 768), name="x"), te.placeholder(packed.shape, name="w")
    rows = tiles.padded_rows(197, target)
    y = blocked.matmul(x, w, 3072, rows, "float32")
    loop = inner_loop(_applied(te.create_prim_func([x, w, y]), target), target)
    assert loop.registers == {MACHINES[name]}
    assert loop.loads <= 0.8 * loop.fmas
