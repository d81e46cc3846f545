"""Maps a unit and a configuration to a kernel's constants, arguments and grid; needs no Triton."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tvmscope.cuda.config import Config
from tvmscope.cuda.library.call import call_of
from tvmscope.cuda.library.operands import arguments
from tvmscope.cuda.units import (
    ITEM_BYTES,
    Attention,
    Conv2d,
    GroupNorm,
    Matmul,
    Norm,
    Pool,
    Rows,
    Softmax,
    Tensor,
    Unit,
    View,
)
from tvmscope.errors import UsageError
from tvmscope.messages import msg

PARAMETERS = {
    "input": "x",
    "gate": "gate",
    "query": "q",
    "key": "k",
    "value": "v",
    "mask": "mask",
    "weight": "w",
    "second": "w",
    "scale": "scale",
    "bias": "bias",
    "residual": "residual",
    "output": "y",
    "sum": "total",
    "workspace": "workspace",
    "counters": "counters",
    "scratch": "",
}
"""The kernel parameter of each role, in the order in which kernels take them. Triton adds scratch
memory, which has no name."""

_CONTRACTION = ("x", "w", "bias", "residual", "y", "workspace", "counters")
DESCRIPTOR_BYTES = 128
"""The size of the tensor memory accelerator's description of one matrix."""
_EARLY_SUMS = 32
"""Residuals of at most this many values per thread are fetched before the main loop, to hide their
latency; more would take its registers."""
EARLY_HELD = 2
"""The value of a kernel's EARLY that also prevents such a residual from being used early; 1 does
not, for Triton's interpreter, which has no instructions."""


@dataclass(frozen=True, kw_only=True)
class Binding:
    """A template's arguments: `function` is `module:name`, `absent` are parameters that this unit
    does not have."""

    function: str
    constants: dict[str, Any]
    arguments: tuple[Tensor, ...]
    absent: tuple[str, ...]
    grid: tuple[int, int, int]


def bind(unit: Unit, config: Config) -> Binding:
    """Return the binding of a unit; raise if the template cannot compute it."""
    maker = _MAKERS.get((unit.kind, config.template))
    if maker is None:
        raise UsageError(
            msg("{template} does not compute {kind}", template=config.template, kind=unit.kind)
        )
    return maker(unit, config)


def tiles_of(unit: Conv2d | Pool, config: Config) -> int:
    """Return the blocks of a template that tiles pixels in two dimensions, each `k` wide."""
    down, across = _ceil(unit.p, config.m // config.k), _ceil(unit.q, config.k)
    channels = unit.oc if isinstance(unit, Conv2d) else unit.c
    return unit.n * down * across * _ceil(channels, config.n)


def _ceil(value: int, step: int) -> int:
    return -(-value // step)


def _template(name: str) -> str:
    module, _, function = name.rpartition(":")
    return f"tvmscope.cuda.templates.{module or function}:{function}"


def _binding(
    template: str,
    unit: Unit,
    parameters: tuple[str, ...],
    constants: dict[str, Any],
    grid: tuple[int, int, int],
    extra: tuple[Tensor, ...] = (),
) -> Binding:
    order = list(PARAMETERS)
    tensors = sorted((*unit.tensors, *extra), key=lambda t: order.index(t.role))
    taken = {PARAMETERS[t.role] for t in tensors}
    return Binding(
        function=_template(template),
        constants=constants,
        arguments=tuple(tensors),
        absent=tuple(name for name in parameters if name not in taken),
        grid=grid,
    )


def _conv2d(unit: Conv2d, config: Config) -> Binding:
    channels, outputs = unit.c // unit.groups, unit.oc // unit.groups
    tiles = _ceil(unit.m, config.m) * _ceil(outputs, config.n) * unit.groups
    constants = {
        "N": unit.n,
        "C": channels,
        "OC": outputs,
        "G": unit.groups,
        "PRECISION": _precision(unit.math),
        "TILE_K": config.k,
        "SPLIT": config.split,
        "GROUP": config.group,
        "EARLY": _early(config),
        "KN": config.layout == "kn",
        "GATED": unit.gated,
        **_window(unit),
        **_pool_behind(unit),
        **_epilogue(unit),
        **_tile(config),
    }
    split = _split_tensors(tiles, config, config.m)
    parameters = ("x", "gate", *_CONTRACTION[1:])
    return _binding("conv2d", unit, parameters, constants, (tiles, config.split, 1), split)


def _depthwise(unit: Conv2d, config: Config) -> Binding:
    if not unit.depthwise or unit.pooled is not None:
        raise UsageError(msg("depthwise does not compute {unit}", unit=unit.label))
    constants = {
        "OC": unit.oc,
        "EACH": unit.oc // unit.c,
        "TILE_W": config.k,
        **_window(unit),
        **_epilogue(unit),
        **_tile(config),
    }
    return _binding("depthwise", unit, _CONTRACTION[:5], constants, (tiles_of(unit, config), 1, 1))


def _window(unit: Conv2d) -> dict[str, Any]:
    return {
        "H": unit.h,
        "W": unit.w,
        "P": unit.p,
        "Q": unit.q,
        "R": unit.r,
        "S": unit.s,
        "STRIDE_H": unit.stride[0],
        "STRIDE_W": unit.stride[1],
        "PAD_H": unit.padding[0],
        "PAD_W": unit.padding[1],
        "DILATE_H": unit.dilation[0],
        "DILATE_W": unit.dilation[1],
        "PADDED": unit.padded,
        **_view("X", unit.input, unit.c),
        **_view("Y", unit.output, unit.oc),
        **_view("Z", unit.residual, unit.oc),
    }


def _pool_behind(unit: Conv2d) -> dict[str, Any]:
    pool = unit.pooled
    if pool is None:
        return {"POOL": "none", "POOL_R": 1, "POOL_S": 1, "POOL_ROWS": 1}
    return {"POOL": pool.form, "POOL_R": pool.r, "POOL_S": pool.s, "POOL_ROWS": pool.rows}


def _view(name: str, view: View, channels: int) -> dict[str, Any]:
    return {f"{name}_PITCH": view.pitch or channels, f"{name}_OFFSET": view.offset}


def _matmul(unit: Matmul, config: Config) -> Binding:
    tiles = _ceil(unit.m, config.m) * _ceil(unit.n, config.n)
    constants = {
        "PRECISION": _precision(unit.math),
        "WEIGHT": unit.weight,
        "TILE_K": config.k,
        "SPLIT": config.split,
        "GROUP": config.group,
        "EARLY": _early(config),
        **_matrices(unit, config),
        **_epilogue(unit),
        **_tile(config),
    }
    split = _split_tensors(tiles * unit.batches, config, config.m)
    grid = (tiles, config.split, unit.batches)
    return _binding("matmul", unit, _CONTRACTION, constants, grid, split)


def _persistent(unit: Matmul | Conv2d, config: Config) -> Binding:
    product = as_product(unit)
    if product is None:
        raise UsageError(msg("persistent does not compute {unit}", unit=unit.label))
    m, n, k, (a, y, z) = product
    tiles = _ceil(m, config.m) * _ceil(n, config.n)
    blocks = min(tiles, config.split)
    constants = {
        "M": m,
        "N": n,
        "K": k,
        "A_M": a[0],
        "A_OFFSET": a[1],
        "Y_M": y[0],
        "Y_OFFSET": y[1],
        "Z_M": z[0],
        "Z_OFFSET": z[1],
        "SCALE": unit.scale if isinstance(unit, Matmul) else 1.0,
        "PRECISION": _precision(unit.math),
        "KN": config.layout == "kn",
        "TILE_K": config.k,
        "GROUP": config.group,
        "BLOCKS": blocks,
        **_epilogue(unit),
        **_tile(config),
    }
    # memory for the descriptors of each block
    scratch = Tensor(role="scratch", dtype="int32", shape=(blocks, 2 * DESCRIPTOR_BYTES // 4))
    return _binding("persistent", unit, _CONTRACTION[:5], constants, (blocks, 1, 1), (scratch,))


Pitch = tuple[int, int]
"""Elements between rows of a matrix, and its offset."""


def as_product(unit: Matmul | Conv2d) -> tuple[int, int, int, tuple[Pitch, Pitch, Pitch]] | None:
    """Return m, n, k and the rows of input, output and residual, if the unit is one product of
    row-major matrices whose weight has rows of whole 16 bytes, as descriptors require."""
    if isinstance(unit, Conv2d):
        window = (unit.r, unit.s, *unit.stride, unit.groups)
        if window != (1, 1, 1, 1, 1) or unit.padded or unit.pooled is not None:
            return None
        if unit.gated:
            return None
        m, n, k = unit.m, unit.oc, unit.c
        views = ((unit.input, k), (unit.output, n), (unit.residual, n))
        a, y, z = ((view.pitch or width, view.offset) for view, width in views)
    else:
        sides = (unit.matrix_a, unit.matrix_y, unit.matrix_z)
        if unit.batches > 1 or not unit.weight or any(side.column != 1 for side in sides):
            return None
        m, n, k = unit.m, unit.n, unit.k
        a, y, z = ((side.row, side.offset) for side in sides)
    item = ITEM_BYTES[unit.dtype]
    if any(size * item % 16 for size in (*a, n, k)):
        return None
    return m, n, k, (a, y, z)


def _matvec(unit: Matmul, config: Config) -> Binding:
    if unit.matrix_b(config.layout).row != 1:
        raise UsageError(msg("matvec: the right side must be contiguous along the sum"))
    rows = unit.m * unit.batches
    tiles = _ceil(unit.n, config.n)
    constants = {
        "WEIGHT": unit.weight,
        "TILE_N": config.n,
        "TILE_K": config.k,
        "SPLIT": config.split,
        "PDL": config.pdl,
        **_matrices(unit, config),
        **_epilogue(unit),
    }
    del constants["B_K"]  # the template assumes 1
    split = _split_tensors(tiles * rows, config, 1)
    return _binding("matvec", unit, _CONTRACTION, constants, (tiles, config.split, rows), split)


def _matrices(unit: Matmul, config: Config) -> dict[str, Any]:
    sides = {
        "A": (unit.matrix_a, "M", "K"),
        "B": (unit.matrix_b(config.layout), "K", "N"),
        "Y": (unit.matrix_y, "M", "N"),
        "Z": (unit.matrix_z, "M", "N"),
    }
    out: dict[str, Any] = {
        "M": unit.m,
        "N": unit.n,
        "K": unit.k,
        "BATCHES": unit.batches,
        "INNER": unit.batch[1],
        "SCALE": unit.scale,
    }
    for name, (matrix, row, column) in sides.items():
        out[f"{name}_{row}"], out[f"{name}_{column}"] = matrix.row, matrix.column
        out[f"{name}_OUTER"], out[f"{name}_INNER"] = matrix.outer, matrix.inner
        out[f"{name}_OFFSET"] = matrix.offset
    return out


def _attention(unit: Attention, config: Config) -> Binding:
    masks = unit.mask or (0, 0, 0)
    constants: dict[str, Any] = {
        "HEADS": unit.heads,
        "SHARED": unit.shared,
        "QUERIES": unit.queries,
        "KEYS": unit.keys,
        "DIM": unit.dim,
        "DIM_V": unit.dim_v,
        "SCALE": unit.scale,
        "CAUSAL": unit.causal,
        "MASKED": unit.mask is not None,
        "MASK_BATCHES": unit.mask_batches or 0,
        "PRECISION": _precision(unit.math),
        "TILE_D": padded(unit.dim),
        "TILE_V": padded(unit.dim_v),
        **dict(zip(("MASK_BATCH", "MASK_HEAD", "MASK_ROW"), masks, strict=True)),
        **_tile(config),
    }
    for name in ("q", "k", "v", "y"):
        at = unit.heads_of(name)
        for field in ("batch", "head", "row", "offset"):
            constants[f"{name}_{field}".upper()] = getattr(at, field)
    grid = (_ceil(unit.queries, config.m), unit.batch * unit.heads, 1)
    return _binding("attention", unit, ("q", "k", "v", "mask", "y"), constants, grid)


def padded(size: int) -> int:
    """Return the power of two, at least 16, that is large enough for a head's values."""
    return max(16, 1 << (size - 1).bit_length())


def _library(unit: Matmul | Conv2d, config: Config) -> Binding:
    """Bind a library's call, which has only arguments: it chooses its own grid."""
    call = call_of(unit, config)
    return Binding(
        function=call.library, constants={}, arguments=arguments(unit), absent=(), grid=(0, 0, 0)
    )


def _softmax(unit: Softmax, config: Config) -> Binding:
    constants = {
        "ROWS": unit.rows,
        "COLUMNS": unit.columns,
        "SCALE": unit.scale,
        "LOG": unit.log,
        **_tile(config),
    }
    grid = (_ceil(unit.rows, config.m), 1, 1)
    return _binding("norms:softmax", unit, ("x", "y"), constants, grid)


def _norm(unit: Norm, config: Config) -> Binding:
    constants = {
        "ROWS": unit.rows,
        "COLUMNS": unit.columns,
        "CENTRED": unit.form == "layer",
        "LENGTH": unit.form == "length",
        "EPSILON": unit.epsilon,
        "SCALED": unit.scale,
        "BIAS": unit.bias,
        "RESIDUAL": unit.residual,
        "KEEP": unit.keep_sum,
        **_rows("X", unit.x),
        **_tile(config),
    }
    parameters = ("x", "scale", "bias", "residual", "y", "total")
    return _binding("norms:norm", unit, parameters, constants, (_ceil(unit.rows, config.m), 1, 1))


def _rows(name: str, rows: Rows | None) -> dict[str, Any]:
    if rows is None:
        rows = Rows(sizes=(0, 0), steps=(0, 0, 0))
    steps = {f"{name}_{n}": step for n, step in enumerate(rows.steps)}
    sizes = dict(zip((f"{name}_MIDDLE", f"{name}_INNER"), rows.sizes, strict=True))
    return {**sizes, **steps, f"{name}_OFFSET": rows.offset}


def _group_norm(unit: GroupNorm, config: Config) -> Binding:
    each = width_of_group(unit)
    constants = {
        "PIXELS": unit.pixels,
        "C": unit.c,
        "GROUPS": unit.groups,
        "EACH": each,
        "EPSILON": unit.epsilon,
        **_epilogue(unit),
        **_tile(config),
    }
    grid = (unit.n * _ceil(unit.groups, config.n // each), 1, 1)
    parameters = ("x", "scale", "bias", "residual", "y")
    return _binding("group_norm", unit, parameters, constants, grid)


def width_of_group(unit: GroupNorm) -> int:
    """Return the columns of a tile that a group's channels take: a power of two."""
    return 1 << (unit.width - 1).bit_length()


def _pool(unit: Pool, config: Config) -> Binding:
    constants = {
        "P": unit.p,
        "Q": unit.q,
        "R": unit.r,
        "S": unit.s,
        "STRIDE_H": unit.stride[0],
        "STRIDE_W": unit.stride[1],
        "PAD_H": unit.padding[0],
        "PAD_W": unit.padding[1],
        "END_H": unit.h + unit.padding[2],
        "END_W": unit.w + unit.padding[3],
        "COUNT_PADDING": unit.count_padding,
        "TILE_W": config.k,
        **_pooled(unit, config),
    }
    return _binding("pool:pool", unit, ("x", "y"), constants, (tiles_of(unit, config), 1, 1))


def _mean(unit: Pool, config: Config) -> Binding:
    if not unit.whole:
        raise UsageError(msg("mean: the window is not the whole image"))
    grid = (unit.n * _ceil(unit.c, config.n), 1, 1)
    return _binding("pool:mean", unit, ("x", "y"), _pooled(unit, config), grid)


def _pooled(unit: Pool, config: Config) -> dict[str, Any]:
    return {
        "H": unit.h,
        "W": unit.w,
        "C": unit.c,
        "LARGEST": unit.form == "max",
        **_view("X", unit.input, unit.c),
        **_view("Y", unit.output, unit.c),
        **_tile(config),
    }


def _precision(math: str) -> str:
    return "tf32" if math == "tensor" else math  # 16-bit products ignore it


def _epilogue(unit: Conv2d | Matmul | GroupNorm) -> dict[str, Any]:
    epilogue = unit.epilogue
    (dtype,) = (t.dtype for t in unit.tensors if t.role == "output")
    narrow = epilogue.activation == "gelu" and ITEM_BYTES[dtype] == 2
    first, second = (*epilogue.parameters, 0.0, 0.0)[:2]
    return {
        "BIAS": epilogue.bias,
        "RESIDUAL": epilogue.residual,
        "KIND": "gelu_narrow" if narrow else epilogue.activation,
        "FIRST": first,
        "SECOND": second,
    }


def _tile(config: Config) -> dict[str, Any]:
    return {"TILE_M": config.m, "TILE_N": config.n, "PDL": config.pdl}


def _early(config: Config) -> int:
    early = config.split == 1 and config.m * config.n <= _EARLY_SUMS * 32 * config.warps
    return EARLY_HELD if early else 0


def _split_tensors(tiles: int, config: Config, rows: int) -> tuple[Tensor, ...]:
    """Return split-K's tensors: a part per block, a counter per tile."""
    if config.split == 1:
        return ()
    parts = (tiles, config.split, rows, config.n)
    return (
        Tensor(role="workspace", dtype="float32", shape=parts),
        Tensor(role="counters", dtype="int32", shape=(tiles,)),
    )


_MAKERS: dict[tuple[str, str], Callable[[Any, Config], Binding]] = {
    ("conv2d", "conv2d"): _conv2d,
    ("conv2d", "depthwise"): _depthwise,
    ("matmul", "matmul"): _matmul,
    ("matmul", "persistent"): _persistent,
    ("conv2d", "persistent"): _persistent,
    ("matmul", "matvec"): _matvec,
    ("matmul", "cublaslt"): _library,
    ("conv2d", "cublaslt"): _library,
    ("conv2d", "cudnn"): _library,
    ("attention", "attention"): _attention,
    ("softmax", "softmax"): _softmax,
    ("norm", "norm"): _norm,
    ("group_norm", "group_norm"): _group_norm,
    ("pool", "pool"): _pool,
    ("pool", "mean"): _mean,
}
