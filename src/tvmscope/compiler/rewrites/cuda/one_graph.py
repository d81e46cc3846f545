"""Moves kernels that read the program's inputs in front of all others, and those that write its
outputs behind them.

    a = cast(x);  b = f(a);  o = cast(b);  c = cast(y);  p = g(b, c);  return o, p
->  a = cast(x);  c = cast(y);  b = f(a);  p = g(b, c);  o = cast(b);  return o, p

A CUDA graph holds fixed addresses; inputs have none, and outputs are allocated in each run. Their
kernels are launched before and after a graph. One in the middle would split it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from typing import Any

import tvm
from tvm import relax

from tvmscope.compiler.describe.edges import overwritten
from tvmscope.compiler.describe.sources import kernel_of
from tvmscope.compiler.units.graph import variables


def one_graph() -> tvm.transform.Pass:
    """Return the pass; it runs while kernels are calls without side effects."""

    @tvm.transform.module_pass(opt_level=0, name="OneGraph")
    def transform(module: tvm.IRModule, _: Any) -> tvm.IRModule:
        main = module["main"]
        blocks = list(main.body.blocks)
        if len(blocks) == 1 and isinstance(blocks[0], relax.DataflowBlock):
            bindings = _inputs_first(main.params, blocks[0].bindings)
            bindings = _outputs_last(bindings, main.body.body)
            if bindings == list(blocks[0].bindings):
                return module
            body = relax.SeqExpr([relax.DataflowBlock(bindings)], main.body.body)
            changed = relax.Function(main.params, body, main.ret_ty, main.is_pure, main.attrs)
            module.update_func(module.get_global_var("main"), changed)
            return relax.transform.Normalize()(module)  # the new body has no type yet
        return module

    return transform


def _inputs_first(
    inputs: Sequence[relax.Var], bindings: Sequence[relax.Binding]
) -> list[relax.Binding]:
    """Return the bindings, those first that read inputs and otherwise only what is known then."""
    unfixed, known = set(inputs), set(inputs)
    moved, rest = list[relax.Binding](), list[relax.Binding]()
    for binding in bindings:
        read = _read(binding)
        if not read & unfixed or not read <= known:
            rest.append(binding)
            continue
        moved.append(binding)
        known.add(binding.var)
        if not _is_kernel(binding):
            unfixed.add(binding.var)  # a view of an input, or a part of a tuple
    return moved + rest


def _outputs_last(bindings: Sequence[relax.Binding], result: relax.Expr) -> list[relax.Binding]:
    """Return the bindings, those last that the function returns and that nothing else reads."""
    readers = Counter(var for binding in bindings for var in _read(binding))
    returned = {var for var in variables(result) if not readers[var]}
    for binding in reversed(bindings):
        if binding.var in returned:
            returned |= {var for var in _same_memory(binding) if readers[var] == 1}
    last = [b for b in bindings if b.var in returned]
    return [b for b in bindings if b.var not in returned] + last


def _same_memory(binding: relax.Binding) -> Collection[relax.Var]:
    """Return the values of which a value is a view, or a tuple, or into which it is written."""
    return set(overwritten(binding.value)) if _is_kernel(binding) else _read(binding)


def _read(binding: relax.Binding) -> set[relax.Var]:
    return set(variables(binding.value))


def _is_kernel(binding: relax.Binding) -> bool:
    return kernel_of(binding.value) is not None
