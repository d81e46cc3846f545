"""Computes a batch in parts if the activations of all its images would not fit the caches.

    split_batch   main(x[8, ...]) becomes main(x[1, ...]): all that follows sees one image
    join_batch    the main function calls that on slices and puts the results together

Between the two passes an attribute of the function has the number of parts. A graph is split only
if every operator is known to treat each image separately.
"""

from __future__ import annotations

from math import prod
from typing import Any

import tvm
import tvm_ffi
from tvm import relax, topi

from tvmscope.compiler.cost.tiles import NEAR_BYTES
from tvmscope.compiler.describe import sources
from tvmscope.compiler.graph.per_image import TREATS_EACH_ALONE
from tvmscope.compiler.graph.rewrite import flat, operator_name, static_shape, with_vars
from tvmscope.core.target import Target

PARTS = "tvmscope.parts"
_PART = "part_of_batch"


class _Together(Exception):
    """The images of this graph cannot be separated, or separating them gains nothing."""


def join_batch() -> tvm.transform.Pass:
    """Return the second pass; a module that was not split is unchanged."""

    @tvm.transform.module_pass(opt_level=0, name="JoinBatch")
    def transform(module: tvm.IRModule, _: tvm.transform.PassContext) -> tvm.IRModule:
        return joined(module)

    return transform


def parts_of(module: tvm.IRModule) -> int:
    """Return how many times a module that is split, and not yet joined, is called for a batch."""
    attrs = module["main"].attrs
    return int(attrs[PARTS]) if attrs and PARTS in attrs else 1


def joined(module: tvm.IRModule) -> tvm.IRModule:
    """Return the module for the whole batch, whatever the passes made of the one for a part."""
    main, parts = module["main"], parts_of(module)
    if parts == 1:
        return module
    others = {v: f for v, f in module.functions_items() if v.name_hint != "main"}
    builder = relax.BlockBuilder(tvm.IRModule(others, attrs=module.attrs))
    part = main.without_attr(PARTS).without_attr("global_symbol")
    call = builder.add_func(part, _PART)
    inputs = [relax.Var(p.name, _larger(p.ty, parts)) for p in main.params]
    with builder.function("main", inputs, attrs=dict(main.without_attr(PARTS).attrs)):
        with builder.dataflow():
            results = [_one(builder, call, inputs, i, parts) for i in range(parts)]
            whole = [builder.emit_te(topi.concatenate, list(r)) for r in zip(*results, strict=True)]
            several = isinstance(main.ret_ty, relax.TupleType)
            output = builder.emit_output(relax.Tuple(whole) if several else whole[0])
        builder.emit_func_output(output)
    return builder.get()


def _one(
    builder: relax.BlockBuilder, call: Any, inputs: list[relax.Var], index: int, parts: int
) -> list[relax.Expr]:
    """Return the results of one part."""
    slices = []
    for whole in inputs:
        shape = static_shape(whole)
        assert shape is not None  # otherwise it would not have been split
        size = shape[0] // parts
        cut = topi.strided_slice, whole, [index * size], [(index + 1) * size], [1], [0]
        slices.append(builder.emit_te(*cut))
    made = builder.emit(relax.Call(call, slices))
    fields = getattr(made.ty, "fields", None)
    return [made] if fields is None else [builder.emit(made[i]) for i in range(len(fields))]


def split_batch(target: Target) -> tvm.transform.Pass:
    """Return the first pass."""

    @tvm.transform.module_pass(opt_level=0, name="SplitBatch")
    def transform(module: tvm.IRModule, _: tvm.transform.PassContext) -> tvm.IRModule:
        main = module["main"]
        try:
            batch = _batch(main)
            part = _part(main, batch, target.cores * NEAR_BYTES)
            split = _Split(module, batch, part).function(main)
        except _Together:
            return module
        module.update_func(module.get_global_var("main"), split)
        return module

    return transform


def _batch(main: relax.Function) -> int:
    """Return the first dimension of all inputs."""
    shapes = [static_shape(param) for param in main.params]
    leading = {shape[0] if shape else 1 for shape in shapes}
    if len(leading) != 1:
        raise _Together
    return leading.pop()


def _part(main: relax.Function, batch: int, near_bytes: int) -> int:
    """Return the images to compute at once: as many as the caches hold between convolutions."""
    convolved, multiplied, largest = 0, 0, 0
    for binding in sources.bindings(main):
        name, shapes = _name(binding.value), _shapes(binding.value)
        out = static_shape(binding.var)
        if out is None or None in shapes:
            continue
        if name == "nn.conv2d":
            data, weight = shapes[0], shapes[1]
            convolved += prod(out) * prod(weight[1:])
            largest = max(largest, 4 * (prod(data) + prod(out)) // batch)
        elif name == "matmul":
            multiplied += prod(out) * shapes[0][-1]
    divisors = [d for d in range(1, batch) if batch % d == 0]
    if convolved <= multiplied or batch * largest <= near_bytes or not divisors:
        raise _Together
    return max([d for d in divisors if d * largest <= near_bytes], default=1)


def _name(value: relax.Expr) -> str:
    return operator_name(value).removeprefix("relax.")


def _larger(kind: relax.TensorType, parts: int) -> relax.TensorType:
    assert isinstance(kind.shape, relax.ShapeExpr)  # all split values have static shapes
    first, *others = kind.shape.values
    return relax.TensorType([first * parts, *others], kind.dtype)


def _shapes(value: relax.Expr) -> list[Any]:
    """Return the shapes of a call's tensor arguments."""
    tensors = (a for a in flat(getattr(value, "args", ())) if isinstance(a.ty, relax.TensorType))
    return [static_shape(tensor) for tensor in tensors]


class _Split:
    """Rewrites the function for `part` images; `apart` are the values that differ by image."""

    def __init__(self, module: tvm.IRModule, batch: int, part: int) -> None:
        self.builder = relax.BlockBuilder(module)
        self.batch, self.part = batch, part
        self.rows: list[relax.Binding] = []
        self.values: dict[relax.Var, relax.Expr] = {}
        self.apart: set[relax.Var] = set()

    def function(self, main: relax.Function) -> relax.Function:
        params = [relax.Var(p.name, self._smaller(p.ty)) for p in main.params]
        self.values.update(zip(main.params, params, strict=True))
        self.apart.update(main.params)
        for binding in sources.bindings(main):
            self._binding(binding)
        output = self._emit(self._result(main.body.body), relax.Var, "output")
        body = relax.SeqExpr([relax.DataflowBlock(self.rows)], output)
        split = relax.Function(params, body, output.ty, main.is_pure, main.attrs)
        return split.with_attr(PARTS, self.batch // self.part)

    def _emit(self, value: relax.Expr, kind: type[relax.Var], name: str) -> relax.Var:
        value = self.builder.normalize(value)
        var = kind(name, value.ty)
        self.rows.append(relax.VarBinding(var, value))
        return var

    def _result(self, value: relax.Expr) -> relax.Expr:
        if not all(isinstance(v, relax.Var) and v in self.apart for v in flat([value])):
            raise _Together
        return self._new(value)

    def _binding(self, binding: relax.Binding) -> None:
        var, value = binding.var, getattr(binding, "value", None)
        if value is None or not isinstance(binding, relax.VarBinding):
            raise _Together
        operands = getattr(value, "args", [getattr(value, "tuple_value", value)])
        differs = any(self._differs(v) for v in flat(operands))
        if differs and isinstance(value, relax.Call):
            value = self._call(value, var)
        elif isinstance(value, relax.Call) and _name(value) == "broadcast_to":
            differs, value = self._spread(value)
        else:
            value = self._new(value)
        made = self._emit(value, relax.DataflowVar, var.name)
        if differs:
            self.apart.add(var)
            if not tvm_ffi.structural_equal(made.ty, self._smaller(var.ty)):
                raise _Together
        self.values[var] = made

    def _call(self, call: relax.Call, var: relax.Var) -> relax.Expr:
        known, kind = TREATS_EACH_ALONE.get(_name(call)), var.ty
        first = kind.fields[0] if isinstance(kind, relax.TupleType) else kind
        differs = [self._differs(a) for a in flat(call.args)]
        if known is None or not known(call, differs, tuple(int(d) for d in first.shape)):
            raise _Together
        args = [self._new(a) for a in call.args]
        if _name(call) == "reshape":
            args[1] = self._shape(call.args[1])
        return relax.Call(call.op, args, call.attrs, call.ty_args)

    def _spread(self, call: relax.Call) -> tuple[bool, relax.Expr]:
        """Rewrite a value that all images share, such as a class token beside their patches."""
        shape, source = static_shape(call), static_shape(call.args[0])
        if shape is None or source is None:
            raise _Together
        if shape[0] != self.batch:
            return False, self._new(call)
        if len(source) == len(shape) and source[0] != 1:  # it differs by image
            raise _Together
        args = [self._new(call.args[0]), self._shape(call.args[1])]
        return True, relax.Call(call.op, args, call.attrs)

    def _differs(self, value: relax.Expr) -> bool:
        return any(isinstance(v, relax.Var) and v in self.apart for v in flat([value]))

    def _new(self, value: relax.Expr) -> relax.Expr:
        return with_vars(value, self.values.__getitem__)

    def _shape(self, shape: relax.Expr) -> relax.ShapeExpr:
        if not isinstance(shape, relax.ShapeExpr):
            raise _Together
        return relax.ShapeExpr([self.part, *list(shape.values)[1:]])

    def _smaller(self, kind: Any) -> Any:
        """Return a type for `part` images."""
        if isinstance(kind, relax.TupleType):
            return relax.TupleType([self._smaller(field) for field in kind.fields])
        shape = getattr(kind, "shape", None)
        if not isinstance(shape, relax.ShapeExpr) or not len(shape) or shape[0] != self.batch:
            raise _Together
        return relax.TensorType(self._shape(shape), kind.dtype)
