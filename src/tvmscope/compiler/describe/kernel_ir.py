"""Describes compiled kernels for people and rules: loops, buffers, schedule, work of one call."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace

import tvm
from tvm import s_tir, tirx

from tvmscope.compiler.describe import kernel_work
from tvmscope.compiler.tunable.knobs import workload_of
from tvmscope.compiler.units import emit
from tvmscope.core.profile import Buffer, KernelIR, Loop, Products
from tvmscope.core.tuning import Choice
from tvmscope.cuda import config as configs
from tvmscope.cuda.config import Config
from tvmscope.cuda.units import Unit
from tvmscope.errors import one_line
from tvmscope.messages import msg

RULE = "tvmscope.rule"
TRACE = "tvmscope.trace"
"""Attributes in which the scheduling pass records what it did to a function."""
_LONGEST_TEXT = 240
_TYPED = re.compile(r"T\.(?:int|uint|float|bfloat)\d+\((-?[\w.+-]+)\)")
_MODES = {
    int(tirx.ForKind.SERIAL): "serial",
    int(tirx.ForKind.PARALLEL): "parallel",
    int(tirx.ForKind.VECTORIZED): "vectorized",
    int(tirx.ForKind.UNROLLED): "unrolled",
}


def describe(
    before: tvm.IRModule,
    scheduled: tvm.IRModule,
    remarks: list[str],
    choices: Mapping[str, Choice] | None = None,
) -> tuple[KernelIR, ...]:
    """Describe all kernels of a module; work is counted in the functions as they were `before`."""
    plain = {
        var.name_hint: func
        for var, func in before.functions_items()
        if isinstance(func, tirx.PrimFunc)
    }
    found = []
    for var, func in scheduled.functions_items():
        if not isinstance(func, tirx.PrimFunc):
            continue
        try:
            written = plain.get(var.name_hint, func)
            found.append(_describe(var.name_hint, written, func, choices or {}))
        except Exception as e:  # an unknown node costs the description, not the build
            remarks.append(
                msg(
                    "kernel {kernel} cannot be described: {reason}",
                    kernel=var.name_hint,
                    reason=one_line(e),
                )
            )
    return tuple(found)


def _describe(
    name: str, plain: tirx.PrimFunc, func: tirx.PrimFunc, choices: Mapping[str, Choice]
) -> KernelIR:
    if (placed := emit.read(func)) is not None:
        return _generated(name, func, *placed, choices)
    work = kernel_work.count(plain)
    workload = workload_of(plain)
    params = [p for p in func.params if isinstance(p.ty, tirx.BufferType)]
    return KernelIR(
        name=name,
        tree=loop_tree(func),
        buffers=tuple(_buffer(b) for b in (*params, *_allocated(func.body))),
        trace=tuple(str(line) for line in func.attrs.get(TRACE) or ()),
        rule=_rule(func.attrs),
        workload=workload,
        tuned=choices.get(workload),
        kind="layout" if work.moves_only else "compute",
        flops=work.flops,
        bytes=work.bytes,
    )


def _generated(
    name: str, func: tirx.PrimFunc, unit: Unit, config: Config, choices: Mapping[str, Choice]
) -> KernelIR:
    """Describe a generated kernel, which has no loop nest: what it computes, its configuration."""
    return KernelIR(
        name=name,
        tree=(Loop(text=unit.label, body=(Loop(text=config.label),)),),
        buffers=tuple(_buffer(p) for p in func.params if isinstance(p.ty, tirx.BufferType)),
        rule=config.rule,
        workload=unit.key,
        tuned=_taken(choices.get(unit.key), config),
        flops=float(unit.flops),
        bytes=float(unit.moved_bytes),
        products=_products(unit, config),
    )


def _products(unit: Unit, config: Config) -> Products | None:
    """Return how tensor cores multiply float32 in it; a library forms no triple products."""
    math = getattr(unit, "math", None)
    if math == "tf32" and (config.of_library or config.template in configs.MATRIX):
        return "tf32"
    return "tf32x3" if math == "tf32x3" and config.template in configs.MATRIX else None


def _taken(choice: Choice | None, config: Config) -> Choice | None:
    """Return the record if the kernel follows it; a record that is illegal here was not used."""
    if choice is None or not choice.candidate.params:
        return choice
    named = configs.from_json(dict(choice.candidate.params))
    return choice if replace(named, pdl=config.pdl) == config else None


def _rule(attributes: tvm.ir.DictAttrs) -> str | None:
    """Return the rule: ours store their name; TVM's GPU pipeline only says that DLight was used."""
    if RULE in attributes:
        return str(attributes[RULE])
    return "dlight" if attributes.get("tirx.is_scheduled") else None


def loop_tree(func: tirx.PrimFunc) -> tuple[Loop, ...]:
    """Return a function's loop nest, readable without TVM."""
    return tuple(_loops(func.body))


def _loops(s: tirx.Stmt) -> Iterator[Loop]:
    if isinstance(s, tirx.For):
        yield from _loop(s)
    elif isinstance(s, tirx.SeqStmt):
        for part in s.seq:
            yield from _loops(part)
    elif isinstance(s, s_tir.SBlockRealize):
        if s.block.init is not None:
            yield from _loops(s.block.init)
        yield from _loops(s.block.body)
    elif isinstance(s, tirx.BufferStore):
        indices = ", ".join(_text(i) for i in s.indices)
        name = str(s.buffer.name).replace(".", "_")  # as TVM's printer writes it where it is read
        yield Loop(text=_short(f"{name}[{indices}] = {_text(s.value)}"))
    elif isinstance(s, tirx.IfThenElse):
        inside = (*_loops(s.then_case), *(_loops(s.else_case) if s.else_case is not None else ()))
        yield Loop(text=_short(f"if {_text(s.condition)}"), body=inside)
    elif hasattr(s, "body"):
        yield from _loops(s.body)
    elif isinstance(s, tirx.Evaluate):
        yield Loop(text=_short(_text(s.value)))


def _loop(s: tirx.For) -> Iterator[Loop]:
    extent = int(s.extent) if isinstance(s.extent, tirx.IntImm) else None
    thread = s.thread_binding.thread_tag if s.thread_binding is not None else None
    mode = str(thread) if thread else _MODES.get(int(s.kind), "serial")
    if extent == 1 and mode == "serial":  # it carries no information, and schedules leave many
        yield from _loops(s.body)
        return
    name = s.loop_var.name if extent is not None else f"{s.loop_var.name} < {_text(s.extent)}"
    yield Loop(text=_short(name), extent=extent, mode=mode, body=tuple(_loops(s.body)))


def _allocated(s: tirx.Stmt) -> Iterator[tirx.Buffer]:
    if isinstance(s, s_tir.SBlockRealize):
        yield from s.block.alloc_buffers
        yield from _allocated(s.block.body)
    elif isinstance(s, tirx.SeqStmt):
        for part in s.seq:
            yield from _allocated(part)
    elif hasattr(s, "body"):
        yield from _allocated(s.body)


def _buffer(buffer: tirx.Buffer) -> Buffer:
    return Buffer(
        name=str(buffer.name),
        shape=tuple(int(d) if isinstance(d, tirx.IntImm) else -1 for d in buffer.shape),
        dtype=str(buffer.dtype),
        scope=str(buffer.scope()),
    )


def _text(e: tirx.Expr) -> str:
    """Return TVM's text without the types of its numbers: T.int64(3) is 3."""
    return _TYPED.sub(r"\1", str(e).rpartition("\n")[2])  # declarations may precede it


def _short(text: str) -> str:
    return text if len(text) <= _LONGEST_TEXT else text[: _LONGEST_TEXT - 1] + "…"
