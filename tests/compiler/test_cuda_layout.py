"""Networks in NHWC on CUDA: what stays in that layout, what is left alone, and that it is right.

No GPU is needed: the passes run for one, and each unit is computed by its numpy reference.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as nnf
from torch import Tensor, nn
from tvm import relax

from support import placed_units
from tvmscope.compiler.frontends.torch.importer import decomposed, translate
from tvmscope.compiler.units import emit
from tvmscope.core.options import CompileOptions
from tvmscope.core.precision import FLOAT16, FLOAT32, Precision
from tvmscope.cuda.units import Attention, Conv2d, GroupNorm, Matmul, Pooled, Unit

pytest.importorskip("triton", reason="CUDA kernels are generated where Triton is installed")

TOLERANCE = {FLOAT32: 1e-5, FLOAT16: 1e-2}
PRECISIONS = pytest.mark.parametrize("precision", [FLOAT32, FLOAT16], ids=str)
SHAPE = (2, 16, 9, 7)


class Net(nn.Module):
    """A convolution, something in between, and another convolution."""

    def __init__(
        self,
        middle: Callable[..., Tensor],
        *parts: nn.Module,
        first: nn.Module | None = None,
        channels: int = 16,
    ) -> None:
        super().__init__()
        self.first = conv(16, 16) if first is None else first
        self.last, self.parts, self.middle = conv(channels, 8), nn.ModuleList(parts), middle

    def forward(self, *x: Tensor) -> Tensor:
        found: Tensor = self.last(self.middle(self.first(x[0]), *x, *self.parts))
        return found


def conv(inputs: int, outputs: int, size: int = 3, **how: Any) -> nn.Conv2d:
    return nn.Conv2d(inputs, outputs, size, padding=size // 2, **how)


@dataclass(frozen=True, kw_only=True)
class Made:
    units: list[Unit]
    calls: list[str]
    """The kernels that are no units', in order."""
    moves: int
    """Kernels with a permutation."""


def made(net: nn.Module, *inputs: Tensor, precision: Precision = FLOAT16) -> Made:
    """What becomes of a network, whose result is compared with PyTorch's."""
    with torch.no_grad():
        wanted = net.eval()(*inputs).numpy()
        program = torch.export.export(net, inputs, strict=False)
    module = translate(decomposed(program), "net").module
    lowered = placed_units.lowered(module, CompileOptions(precision=precision)).module
    units, calls = launched(lowered)
    (found,) = placed_units.run(lowered, *(x.numpy() for x in inputs))
    assert np.abs(found - wanted).max() / np.abs(wanted).max() < TOLERANCE[precision]
    return Made(units=units, calls=calls, moves=sum("transpose" in name for name in calls))


def launched(module: Any) -> tuple[list[Unit], list[str]]:
    """The units that a program launches, and its other kernels, each in order."""
    bindings = (b for block in module["main"].body.blocks for b in block.bindings)
    values = (b.value for b in bindings if isinstance(b, relax.VarBinding))
    kernels = [
        v.args[0] for v in values
        if isinstance(v, relax.Call) and getattr(v.op, "name", "").startswith("relax.call_tir")
    ]  # fmt: skip
    read = [(k.name_hint, emit.read(module[k])) for k in kernels]
    return [p[0] for _, p in read if p is not None], [name for name, p in read if p is None]


@pytest.fixture(autouse=True)
def _seed() -> None:
    torch.manual_seed(0)


def image(*shape: int) -> Tensor:
    return torch.randn(*(shape or SHAPE))


def gated(y: Tensor, x: Tensor, first: nn.Module, second: nn.Module) -> Tensor:
    """Squeeze and excite with fully connected layers."""
    gate = torch.sigmoid(second(nnf.relu(first(y.mean((2, 3))))))
    return y * gate[:, :, None, None]


def shuffled_channels(y: Tensor, x: Tensor) -> Tensor:
    return nnf.channel_shuffle(nnf.relu(y), 4)


def embedded(y: Tensor, x: Tensor, layer: nn.Module) -> Tensor:
    """A step's embedding is added to every pixel, as in diffusion models."""
    return y + layer(x.mean((1, 2)))[:, :, None, None]


STAYS: dict[str, Callable[[], Net]] = {
    "gate of a linear layer": lambda: Net(gated, nn.Linear(16, 4), nn.Linear(4, 16)),
    "embedding of a step": lambda: Net(embedded, nn.Linear(7, 16)),
    "one slope per channel": lambda: Net(lambda y, x, f: f(y), nn.PReLU(16)),
    "elu": lambda: Net(lambda y, x: nnf.elu(y)),
    "where": lambda: Net(lambda y, x: torch.where(y > 0.1, y, y * y)),
    "softmax over channels": lambda: Net(lambda y, x: y.softmax(1)),
    "mirrored border": lambda: Net(lambda y, x: nnf.pad(y, (2, 1, 1, 2), mode="reflect")),
    "rotation": lambda: Net(lambda y, x: torch.roll(y, (1, 2), (2, 3))),
    "flip": lambda: Net(lambda y, x: y.flip(3)),
    "repeated channels": lambda: Net(lambda y, x: y.repeat(1, 2, 1, 1), channels=32),
    "mean of channels": lambda: Net(lambda y, x: y / y.norm(dim=1, keepdim=True)),
    "layer norm of channels": lambda: Net(
        lambda y, x, f: f(y.permute(0, 2, 3, 1)).permute(0, 3, 1, 2), nn.LayerNorm(16)
    ),
}


@pytest.mark.parametrize("name", STAYS)
@PRECISIONS
def test_between_convolutions_nothing_is_permuted(name: str, precision: Precision) -> None:
    found = made(STAYS[name](), image(), precision=precision)
    assert found.moves == 2, found.calls  # the graph's input and its result


SHUFFLES: dict[str, Callable[[], Net]] = {
    "pixel shuffle": lambda: Net(
        lambda y, x: nnf.relu(nnf.pixel_shuffle(y, 2)), first=conv(16, 24), channels=6
    ),
    "pixel unshuffle": lambda: Net(
        lambda y, x: nnf.silu(nnf.pixel_unshuffle(nnf.pad(y, (0, 1, 0, 1)), 2)),
        first=conv(16, 5), channels=20,
    ),
    "shuffled channels": lambda: Net(shuffled_channels),
}  # fmt: skip


@pytest.mark.parametrize("name", SHUFFLES)
@PRECISIONS
def test_a_shuffle_is_one_kernel_behind_the_activation(name: str, precision: Precision) -> None:
    found = made(SHUFFLES[name](), image(), precision=precision)
    assert found.moves == 3, found.calls  # the shuffle permutes pieces of pixels
    if name != "pixel unshuffle":  # padded in between
        assert next(u.epilogue.activation for u in found.units if isinstance(u, Conv2d)) == "relu"


@pytest.mark.parametrize(
    ("stride", "size", "padding", "extra"), [(2, 2, 0, 0), (2, 4, 1, 0), (2, 3, 1, 1), (3, 5, 2, 1)]
)
@PRECISIONS
def test_a_transposed_convolution_is_one_with_an_epilogue(
    stride: int, size: int, padding: int, extra: int, precision: Precision
) -> None:
    up = nn.ConvTranspose2d(16, 5, size, stride, padding, extra)
    net = Net(lambda y, x: nnf.leaky_relu(y, 0.2), first=up, channels=5)
    found = made(net, image(), precision=precision)
    first = next(u for u in found.units if isinstance(u, Conv2d))
    assert (first.oc, first.epilogue.activation) == (5 * stride**2, "leaky_relu")
    assert first.epilogue.bias
    assert found.moves == 3


def test_a_shuffle_with_two_readers_keeps_its_activation() -> None:
    def twice(y: Tensor, x: Tensor) -> Tensor:
        z = nnf.pixel_shuffle(y, 2) + 0.0
        return z.tanh() * z

    found = made(Net(twice, first=conv(16, 24), channels=6), image())
    assert {u.epilogue.activation for u in found.units if isinstance(u, Conv2d)} == {"none"}


def test_an_operand_without_a_twin_is_permuted_once() -> None:
    found = made(Net(lambda y, x: torch.cat([y, x], 1), channels=32), image(), precision=FLOAT32)
    assert found.moves == 2, found.calls
    residual = made(Net(lambda y, x: y + x), image(), precision=FLOAT32)
    assert residual.units[0].epilogue.residual == "before"  # type: ignore[attr-defined]
    assert residual.moves == 2


def test_a_small_twin_does_not_permute_a_large_operand() -> None:
    """The gate goes to the image's layout, not the image to the gate's."""

    class Gate(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.gate = conv(16, 16, 1)

        def forward(self, x: Tensor) -> Tensor:
            found: Tensor = self.gate(x.mean((2, 3), keepdim=True)) * x
            return found

    assert made(Gate(), image(), precision=FLOAT32).moves == 0


def test_the_weight_of_a_flattened_image_takes_its_order() -> None:
    class Head(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.last = conv(16, 12), nn.Linear(12 * 63, 5)

        def forward(self, x: Tensor) -> Tensor:
            found: Tensor = self.last(nnf.relu(self.first(x)).flatten(1))
            return found

    found = made(Head(), image())
    assert found.moves == 1
    assert [type(u) for u in found.units] == [Conv2d, Matmul]


NORMS: dict[str, Callable[[], nn.Module]] = {
    "group": lambda: nn.GroupNorm(4, 16),
    "uneven group": lambda: nn.GroupNorm(8, 16, eps=1e-3),
    "one group": lambda: nn.GroupNorm(1, 16, affine=False),
    "instance": lambda: nn.InstanceNorm2d(16, affine=True),
    "instance without weights": lambda: nn.InstanceNorm2d(16),
}


@pytest.mark.parametrize("name", NORMS)
@pytest.mark.parametrize("batch", [1, 2])
@PRECISIONS
def test_a_norm_of_groups_is_one_kernel(name: str, batch: int, precision: Precision) -> None:
    norm = NORMS[name]()
    for weight in norm.parameters():
        nn.init.normal_(weight)
    net = Net(lambda y, x, f: nnf.silu(f(y) + y), norm)
    found = made(net, image(batch, *SHAPE[1:]), precision=precision)
    (unit,) = (u for u in found.units if isinstance(u, GroupNorm))
    assert (unit.epilogue.activation, unit.epilogue.residual) == ("silu", "before")
    assert found.moves == 2


def test_a_norm_with_computed_weights_is_left_alone_and_right() -> None:
    def computed(y: Tensor, x: Tensor) -> Tensor:
        return nnf.group_norm(y, 4, x.mean((0, 2, 3)), x.amax((0, 2, 3)))

    found = made(Net(computed), image(), precision=FLOAT32)
    assert not [u for u in found.units if isinstance(u, GroupNorm)]


def test_instance_norm_with_running_statistics_is_no_norm_of_groups() -> None:
    norm = nn.InstanceNorm2d(16, affine=True, track_running_stats=True)
    found = made(Net(lambda y, x, f: f(y), norm), image())
    assert not [u for u in found.units if isinstance(u, GroupNorm)]


@pytest.mark.parametrize("groups", [4, 16, 16 * 9])
def test_a_norm_of_rows_is_one_of_groups_where_the_rows_are_groups(groups: int) -> None:
    """As ONNX's norms are imported; with 144 rows per image they are rows of pixels."""
    x, weight = image(), torch.randn(16, 16, 1, 1)
    gain, bias = torch.randn(16, 1, 1), torch.randn(16, 1, 1)
    rows = (2 * groups, 16 * 63 // groups)
    ones, zeros = np.ones(rows[1], np.float32), np.zeros(rows[1], np.float32)
    builder, given = relax.BlockBuilder(), relax.Var("x", relax.TensorType(SHAPE, "float32"))
    op, emit_ = relax.op, builder.emit
    with builder.function("main", [given]):
        with builder.dataflow():
            y = emit_(op.nn.conv2d(given, relax.const(weight.numpy())))
            y = emit_(op.reshape(y, rows))
            y = emit_(op.nn.layer_norm(y, relax.const(ones), relax.const(zeros), [-1]))
            y = emit_(op.multiply(emit_(op.reshape(y, SHAPE)), relax.const(gain.numpy())))
            y = emit_(op.nn.relu(emit_(op.add(y, relax.const(bias.numpy())))))
            out = builder.emit_output(op.nn.conv2d(y, relax.const(weight.numpy())))
        builder.emit_func_output(out)
    normal = nnf.layer_norm(nnf.conv2d(x, weight).reshape(rows), rows[1:]).reshape(SHAPE)
    wanted = nnf.conv2d(nnf.relu(normal * gain + bias), weight).numpy()
    lowered = placed_units.lowered(builder.get(), CompileOptions()).module
    kinds = [u.kind for u in launched(lowered)[0]]
    assert kinds == ["conv2d", "group_norm" if groups <= 16 else "norm", "conv2d"]
    (found,) = placed_units.run(lowered, x.numpy())
    assert np.abs(found - wanted).max() / np.abs(wanted).max() < TOLERANCE[FLOAT32]


class Attended(nn.Module):
    """Attention over pixels, as a diffusion model's autoencoder has it."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.norm = conv(16, 32), nn.GroupNorm(4, 32)
        self.qkv, self.out = conv(32, 96, 1), conv(32, 32, 1)

    def forward(self, x: Tensor) -> Tensor:
        y = self.first(x)
        n, c, h, w = y.shape
        parts = self.qkv(self.norm(y)).reshape(n, 3, c, h * w).unbind(1)
        q, k, v = (part.transpose(1, 2)[:, None] for part in parts)
        seen = nnf.scaled_dot_product_attention(q, k, v)[:, 0]
        found: Tensor = y + self.out(seen.transpose(1, 2).reshape(n, c, h, w))
        return found


@PRECISIONS
def test_attention_reads_slices_of_a_projection_in_place(precision: Precision) -> None:
    found = made(Attended(), image(), precision=precision)
    kinds = sorted(u.kind for u in found.units)
    assert kinds == ["attention", "conv2d", "conv2d", "conv2d", "group_norm"]
    (unit,) = (u for u in found.units if isinstance(u, Attention))
    assert [unit.heads_of(name).offset for name in "qkv"] == [0, 32, 64]
    assert not [c for c in found.calls if "slice" in c]


# ---- channels for whole loads -------------------------------------------------------------------

LARGE = (1, 16, 40, 37)


def odd(middle: Callable[..., Tensor], *parts: nn.Module, channels: int = 27) -> Net:
    return Net(middle, *parts, first=conv(16, channels), channels=channels)


@pytest.mark.parametrize(("precision", "channels"), [(FLOAT16, 32), (FLOAT32, 28)], ids=str)
def test_the_producer_writes_channels_for_whole_loads(precision: Precision, channels: int) -> None:
    net = odd(lambda y, x: nnf.max_pool2d(torch.sigmoid(y), 2))
    found = made(net, image(*LARGE), precision=precision)
    first, last = (u for u in found.units if isinstance(u, Conv2d))
    assert (first.oc, last.c, last.oc) == (channels, channels, 8)
    assert first.pooled == Pooled(form="max", r=2, s=2)
    assert not [c for c in found.calls if "pad" in c]


def test_a_residual_between_has_as_many_channels() -> None:
    net = odd(lambda y, x, f: nnf.relu(f(nnf.relu(y)) + y), conv(27, 27))
    found = made(net, image(*LARGE))
    assert {(u.c, u.oc) for u in found.units if isinstance(u, Conv2d)} == {
        (16, 32), (32, 32), (32, 8),
    }  # fmt: skip


def test_an_input_is_padded_where_it_is_permuted() -> None:
    found = made(conv(119, 16), image(1, 119, 19, 19))
    assert [(u.c, u.oc) for u in found.units if isinstance(u, Conv2d)] == [(120, 16)]
    assert len(found.calls) == 2


def test_channels_that_others_read_too_are_not_padded_by_their_producer() -> None:
    found = made(odd(lambda y, x: y * y.mean(1, keepdim=True).softmax(2)), image(*LARGE))
    assert [u.oc for u in found.units if isinstance(u, Conv2d)] == [27, 8]


def test_even_channels_and_small_images_are_left_alone() -> None:
    found = made(odd(lambda y, x: nnf.relu(y), channels=24), image(*LARGE))
    assert [u.oc for u in found.units if isinstance(u, Conv2d)] == [24, 8]
    small = made(nn.Sequential(conv(16, 27, 1), conv(27, 8, 1)), image(1, 16, 2, 3))
    assert {u.oc for u in small.units if isinstance(u, Conv2d)} == {27, 8}


class Excited(nn.Module):
    """Squeeze and excitation between two convolutions, as EfficientNet has it."""

    def __init__(self, *, window: int = 1, read_twice: bool = False) -> None:
        super().__init__()
        self.first = nn.Conv2d(3, 16, 3, padding=1)
        self.down, self.up = nn.Conv2d(16, 8, 1), nn.Conv2d(8, 16, 1)
        self.last = nn.Conv2d(16, 24, window, padding=window // 2)
        self.read_twice = read_twice

    def forward(self, x: Tensor) -> Tensor:
        x = self.first(x).relu()
        gate = self.up(self.down(x.mean((2, 3), keepdim=True)).relu()).sigmoid()
        scaled = x * gate
        y = self.last(scaled)
        return y + scaled.mean() if self.read_twice else y


@pytest.mark.parametrize("precision", [FLOAT32, FLOAT16], ids=str)
@pytest.mark.parametrize("batch", [1, 3])
def test_factors_of_channels_are_part_of_the_convolution(batch: int, precision: Precision) -> None:
    x = torch.randn(batch, 3, 7, 6, generator=torch.Generator().manual_seed(0))
    units, _ = placed_units.of_torch(Excited(), precision, x)
    assert [unit.gated for unit in units if isinstance(unit, Conv2d)].count(True) == 1
    _, others = placed_units.launches(placed_units.lowered_torch(Excited(), precision, x))
    assert not [name for name in others if "multiply" in name]


@pytest.mark.parametrize(("window", "read_twice"), [(3, False), (1, True)])
def test_factors_of_channels_that_are_computed_before(window: int, read_twice: bool) -> None:
    x = torch.randn(2, 3, 7, 6, generator=torch.Generator().manual_seed(0))
    block = Excited(window=window, read_twice=read_twice)
    units, _ = placed_units.of_torch(block, FLOAT32, x)
    assert not [unit for unit in units if isinstance(unit, Conv2d) and unit.gated]
