"""Writes a product anew, in blocks whose loops are as tiles need them: see `products`.

left     A[b, m, k]      m and k padded with zeros to whole tiles, so that no tile has a condition
right    B[b, n, k]      or [b, k, n], as its elements lie in memory
sum      C[s, b, m, n]   float32; s is the part of the sum that other blocks of threads do not add
result   b, m, n         what follows the sum, at the places where the function stores it
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from tvmscope.compiler.schedules.cuda.products import Kind, Operand, Product

if TYPE_CHECKING:
    from tvm import s_tir, tirx

LEFT, RIGHT, SUM, RESULT = "left", "right", "sum", "result"
"""The names of the blocks."""


def normal_form(
    product: Product, tile: tuple[int, int, int], parts: int, sums: str = "float32"
) -> tirx.PrimFunc:
    """Return the function with sizes that are multiples of a tile of rows, columns and terms."""
    from tvm import tirx

    batch, m, n, k = product.sizes
    height, width, depth = tile
    rows, columns = _up(m, height), _up(n, width)
    terms = _up(k, depth * parts)

    def index(value: int) -> tirx.IntImm:
        return tirx.IntImm(product.index, value)

    left = _buffer(LEFT, map(index, (batch, rows, terms)), product.dtype)
    by_sum = product.right.along_sum
    shape = (batch, columns, terms) if by_sum else (batch, terms, columns)
    right = _buffer(RIGHT, map(index, shape), product.dtype)
    total = _buffer(SUM, map(index, (parts, batch, rows, columns)), sums)
    nests = [
        _operand(left, product, product.left, product.rows, True),
        _operand(right, product, product.right, product.columns, by_sum),
        _sum(total, left, right, index(terms // parts), by_sum),
        _result(product, total, index),
    ]
    root = _block("root", (), tirx.SeqStmt(nests), allocated=[left, right, total])
    body = _realize(root, ())
    return tirx.PrimFunc(product.func.params, body, product.func.ret_type, product.func.attrs)


def _operand(
    buffer: tirx.Buffer, product: Product, operand: Operand, axes: Kind, by_sum: bool
) -> tirx.Stmt:
    """Copy an operand, with zeros behind its ends."""

    def body(*at: tirx.Var) -> tirx.Stmt:
        from tvm import tirx

        b, outer, k = at if by_sum else (at[0], at[2], at[1])
        # an axis of one place may belong to either side
        places = unflattened(outer, product.rows) | unflattened(outer, product.columns)
        places |= unflattened(b, product.batch)
        places |= unflattened(outer, axes) | unflattened(k, product.terms)
        inside = [
            place < size
            for place, size, padded in (
                (outer, count(axes), buffer.shape[1 if by_sum else 2]),
                (k, count(product.terms), buffer.shape[2 if by_sum else 1]),
            )
            if int(padded) != size
        ]
        value = _guarded(inside, replaced(operand.value, places))
        return tirx.BufferStore(buffer, value, list(at))

    return _nest(str(buffer.name), buffer.shape, body)


def _sum(
    total: tirx.Buffer, left: tirx.Buffer, right: tirx.Buffer, terms: tirx.IntImm, by_sum: bool
) -> tirx.Stmt:
    from tvm import tirx

    parts = int(total.shape[0])
    dtype = str(total.dtype)

    def body(s: tirx.Var, b: tirx.Var, m: tirx.Var, n: tirx.Var, k: tirx.Var) -> tirx.Stmt:
        place = k if parts == 1 else s * terms + k
        factors = (left[b, m, place], right[b, n, place] if by_sum else right[b, place, n])
        a, w = (f if str(f.ty.dtype) == dtype else tirx.Cast(dtype, f) for f in factors)
        return tirx.BufferStore(total, total[s, b, m, n] + a * w, [s, b, m, n])

    def init(s: tirx.Var, b: tirx.Var, m: tirx.Var, n: tirx.Var, k: tirx.Var) -> tirx.Stmt:
        return tirx.BufferStore(total, tirx.const(0, dtype), [s, b, m, n])

    return _nest(SUM, [*total.shape, terms], body, init=init)


def _result(product: Product, total: tirx.Buffer, index: Callable[[int], tirx.IntImm]) -> tirx.Stmt:
    """Compute what follows the sums at the places of their result."""
    import tvm_ffi
    from tvm import ir, tirx

    store = product.result_store

    def body(b: tirx.Var, m: tirx.Var, n: tirx.Var) -> tirx.Stmt:
        places = unflattened(b, product.batch)
        places |= unflattened(m, product.rows) | unflattened(n, product.columns)
        at = {
            v.var: tirx.const(0, str(v.var.ty.dtype))
            for v in product.result.iter_vars
            if int(v.dom.extent) == 1
        }
        for read, own in zip(product.sum_read, product.indices, strict=True):
            if isinstance(read, tirx.Var):
                at[read] = replaced(own, places)
        parts = [total[index(s), b, m, n] for s in range(int(total.shape[0]))]
        whole = tirx.Cast(str(product.sums.dtype), _added(parts))

        def instead(load: ir.TensorLoad) -> tirx.Expr:
            return whole if load.source.same_as(product.sums) else load

        value = tvm_ffi.structural_map(
            store.value, [(ir.TensorLoad, instead), (tirx.Var, lambda v: at.get(v, v))]
        )
        indices = [replaced(i, at) for i in store.indices]
        return tirx.BufferStore(store.buffer, value, indices)

    return _nest(RESULT, [index(size) for size in product.sizes[:3]], body)


def unflattened(place: tirx.Expr, axes: Kind) -> dict[tirx.Var, tirx.Expr]:
    """Return the values of several axes at one place in all of them, the last axis fastest."""
    from tvm import tirx

    found: dict[tirx.Var, tirx.Expr] = {}
    behind = 1
    for axis in reversed(axes):
        extent = int(axis.dom.extent)
        if extent == 1:
            found[axis.var] = tirx.const(0, str(axis.var.ty.dtype))
            continue
        value = place if behind == 1 else place // behind
        behind *= extent
        found[axis.var] = value if behind == count(axes) else value % extent
    return found


def count(axes: Kind) -> int:
    """Return the number of places in several axes."""
    from math import prod

    return prod(int(v.dom.extent) for v in axes)


def replaced(value: tirx.Expr, values: Mapping[tirx.Var, tirx.Expr]) -> tirx.Expr:
    """Return an expression with other expressions in place of variables."""
    import tvm_ffi
    from tvm import tirx

    result: tirx.Expr = tvm_ffi.structural_map(value, (tirx.Var, lambda v: values.get(v, v)))
    return result


def _nest(
    name: str,
    extents: Sequence[tirx.Expr],
    body: Callable[..., tirx.Stmt],
    *,
    init: Callable[..., tirx.Stmt] | None = None,
) -> tirx.Stmt:
    """Return loops around a block; the last loop of a block with `init` is its sum."""
    from tvm import ir, tirx

    axes = [tirx.Var(f"v{i}", str(e.ty.dtype)) for i, e in enumerate(extents)]
    kinds = [tirx.IterVar.DataPar] * len(axes)
    if init is not None:
        kinds[-1] = tirx.IterVar.CommReduce
    variables = [
        tirx.IterVar(ir.Range(_zero(extent), extent), axis, kind)
        for axis, kind, extent in zip(axes, kinds, extents, strict=True)
    ]
    block = _block(name, variables, body(*axes), init=init(*axes) if init else None)
    loops = [tirx.Var(f"i{i}", str(e.ty.dtype)) for i, e in enumerate(extents)]
    nest: tirx.Stmt = _realize(block, loops)
    for loop, extent in reversed(list(zip(loops, extents, strict=True))):
        nest = tirx.For(loop, _zero(extent), extent, tirx.ForKind.SERIAL, nest)
    return nest


def _block(
    name: str,
    variables: Sequence[tirx.IterVar],
    body: tirx.Stmt,
    *,
    init: tirx.Stmt | None = None,
    allocated: Sequence[tirx.Buffer] = (),
) -> s_tir.SBlock:
    import tvm_ffi
    from tvm import ir, s_tir, tirx
    from tvm.s_tir.analysis import get_sblock_read_write_region

    block = s_tir.SBlock(
        list(variables), [], [], name, body, init=init, alloc_buffers=list(allocated)
    )
    if name == "root":
        return block
    used = dict[tirx.Buffer, tirx.Buffer]()
    tvm_ffi.structural_walk(
        body,
        [
            (ir.TensorLoad, lambda load: used.update({load.source: load.source})),
            (tirx.BufferStore, lambda store: used.update({store.buffer: store.buffer})),
        ],
    )
    reads, writes = get_sblock_read_write_region(block, used)
    return s_tir.SBlock(list(variables), reads, writes, name, body, init=init)


def _realize(block: s_tir.SBlock, values: Iterable[tirx.Expr]) -> tirx.Stmt:
    from tvm import s_tir

    return s_tir.SBlockRealize(list(values), True, block)


def _buffer(name: str, shape: Iterable[tirx.Expr], dtype: str) -> tirx.Buffer:
    from tvm import tirx

    return tirx.decl_buffer(list(shape), dtype, name)


def _zero(like: tirx.Expr) -> tirx.IntImm:
    from tvm import tirx

    return tirx.IntImm(str(like.ty.dtype), 0)


def _guarded(conditions: Sequence[tirx.Expr], value: tirx.Expr) -> tirx.Expr:
    """Return zero where a condition does not hold; one test for these and for those of a padding,
    because asynchronous copies can have one."""
    from tvm import ir, tirx

    whole = list(conditions)
    if isinstance(value, ir.Call) and str(getattr(value.op, "name", "")).endswith("if_then_else"):
        test, inner, other = value.args
        if isinstance(other, tirx.FloatImm) and float(other) == 0:
            whole, value = [*whole, test], inner
    if not whole:
        return value
    test = whole[0] if len(whole) == 1 else tirx.all(*whole)
    return tirx.if_then_else(test, value, tirx.const(0, str(value.ty.dtype)))


def _added(parts: Sequence[tirx.Expr]) -> tirx.Expr:
    total = parts[0]
    for part in parts[1:]:
        total = total + part
    return total


def _up(size: int, step: int) -> int:
    return -(-size // step) * step
