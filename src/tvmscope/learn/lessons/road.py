"""From a file to machine code: every stage of compilation, for a tiny network."""

from __future__ import annotations

import re
from collections import Counter
from typing import TYPE_CHECKING, Any

import numpy as np

from tvmscope.core.target import Target
from tvmscope.learn import exercises
from tvmscope.learn.explain.machine_code import hot_loop
from tvmscope.learn.facts import Exhibit
from tvmscope.learn.lesson import Lesson
from tvmscope.measure.remote import here
from tvmscope.messages import msg

if TYPE_CHECKING:
    import tvm
    from tvm import tirx


def tiny_network(size: int) -> Any:
    """Make an ONNX model: convolution, ReLU, mean over the image, a matrix product."""
    import onnx
    from onnx import TensorProto, helper, numpy_helper

    rng = np.random.default_rng(0)
    weights = {
        "kernel": rng.standard_normal((16, 3, 3, 3)).astype(np.float32),
        "bias": rng.standard_normal(16).astype(np.float32),
        "matrix": rng.standard_normal((16, 4)).astype(np.float32),
    }
    nodes = [
        helper.make_node(
            "Conv", ["picture", "kernel", "bias"], ["c"], pads=[1, 1, 1, 1], kernel_shape=[3, 3]
        ),
        helper.make_node("Relu", ["c"], ["r"]),
        helper.make_node("GlobalAveragePool", ["r"], ["m"]),
        helper.make_node("Flatten", ["m"], ["f"]),
        helper.make_node("MatMul", ["f", "matrix"], ["classes"]),
    ]
    graph = helper.make_graph(
        nodes,
        "tiny",
        [helper.make_tensor_value_info("picture", TensorProto.FLOAT, [1, 3, size, size])],
        [helper.make_tensor_value_info("classes", TensorProto.FLOAT, [1, 4])],
        [numpy_helper.from_array(value, name) for name, value in weights.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    model.ir_version = 8  # the newest that older runtimes read
    onnx.checker.check_model(model)
    return model


def exhibits(size: int, target: Target, live: bool) -> tuple[Exhibit, ...]:
    """Show each stage, with its changes."""
    from tvmscope.runtime import tvm_compat

    tvm_compat.import_tvm(torch=False)
    model = tiny_network(size)
    names = [node.op_type for node in model.graph.node]
    stages = [
        Exhibit(
            title=msg("1. The file"),
            words=msg(
                "An ONNX file lists operators by name: {names}. It says nothing about loops.",
                names=names,
            ),
        )
    ]
    imported, graph, legal, fused = _modules(model)
    stages += _graph_stages(imported, graph, legal, fused)
    return (*stages, *_kernel_stages(fused, target))


def _modules(model: Any) -> tuple[tvm.IRModule, ...]:
    import tvm
    from tvm import relax
    from tvm.relax import transform as rx
    from tvm.relax.frontend.onnx import from_onnx

    imported = from_onnx(model, keep_params_in_input=False)
    graph = tvm.transform.Sequential(
        [rx.DecomposeOpsForInference(), rx.CanonicalizeBindings(), rx.FoldConstant()]
    )(imported)
    legal = relax.transform.LegalizeOps()(graph)
    fused = tvm.transform.Sequential(
        [rx.AnnotateTIROpPattern(), rx.FoldConstant(), rx.FuseOps(), rx.FuseTIR()]
    )(legal)
    return imported, graph, legal, fused


def _graph_stages(
    imported: tvm.IRModule, graph: tvm.IRModule, legal: tvm.IRModule, fused: tvm.IRModule
) -> list[Exhibit]:
    before, after = _operators(imported), _operators(graph)
    return [
        Exhibit(
            title=msg("2. Import: a Relax function"),
            words=msg(
                "{count} calls of operators, each with types and shapes. Relax is TVM's language "
                "for whole graphs; what used to be Relay.",
                count=sum(before.values()),
            ),
            code=_main(imported),
            language="python",
        ),
        Exhibit(
            title=msg("3. Graph passes"),
            words=msg(
                "Operators that only training needs are taken apart, what depends on constants "
                "alone is computed now: {before} calls became {after}.",
                before=sum(before.values()),
                after=sum(after.values()),
            ),
            code=_main(graph),
            language="python",
        ),
        Exhibit(
            title=msg("4. Legalisation: every operator becomes loops"),
            words=msg(
                "Each call now names a TIR function that spells its loops out: {count} of them.",
                count=len(_kernels(legal)),
            ),
            code=_main(legal),
            language="python",
        ),
        Exhibit(
            title=msg("5. Fusion"),
            words=msg(
                "Operators that follow each other without need to wait become one function: "
                "{before} kernels became {after}. What lies between them never goes to memory.",
                before=len(_kernels(legal)),
                after=len(_kernels(fused)),
            ),
            code=_main(fused),
            language="python",
        ),
    ]


def _kernel_stages(fused: tvm.IRModule, target: Target) -> list[Exhibit]:
    from tvmscope.compiler.describe.kernel_ir import RULE
    from tvmscope.compiler.schedules import rules
    from tvmscope.compiler.schedules.apply import schedule_first

    name, kernel = max(_kernels(fused).items(), key=lambda item: len(item[1].script()))
    remarks: list[str] = []
    scheduled = schedule_first(rules("cpu"), kernel, name, target, remarks) or kernel
    assembly = _assembly(scheduled, target)
    hot = hot_loop(assembly)
    lines = [
        line for line in assembly.splitlines() if line.startswith("\t") and "." not in line[:2]
    ]
    return [
        Exhibit(
            title=msg("6. TIR: the loops of one kernel"),
            words=msg("{name}, as legalisation and fusion wrote it.", name=name),
            code=_script(kernel),
            language="python",
        ),
        Exhibit(
            title=msg("7. Schedule"),
            words=msg(
                "tvmscope's rule '{rule}' has taken it: loops are in parallel, vectors are formed. "
                "TVM by itself would leave the loops as they are.",
                rule=str(scheduled.attrs.get(RULE, "none")),
            ),
            code=_script(scheduled),
            language="python",
        ),
        Exhibit(
            title=msg("8. Machine code"),
            words=msg(
                "LLVM made {count} instructions of it. This is the innermost loop with the most "
                "arithmetic; it works on {bits}-bit registers.",
                count=len(lines),
                bits=0 if hot is None else max(hot.vector_bits, 32),
            ),
            code="" if hot is None else "\n".join(hot.text),
            language="gas",
        ),
    ]


def _operators(module: tvm.IRModule) -> Counter[str]:
    from tvm import relax

    found: Counter[str] = Counter()
    for block in module["main"].body.blocks:
        for binding in block.bindings:
            if isinstance(binding.value, relax.Call):
                found[str(getattr(binding.value.op, "name", "call"))] += 1
    return found


def _kernels(module: tvm.IRModule) -> dict[str, tirx.PrimFunc]:
    from tvm import tirx

    return {
        var.name_hint: func
        for var, func in module.functions_items()
        if isinstance(func, tirx.PrimFunc)
    }


def _script(func: tirx.PrimFunc) -> str:
    """Return TVMScript without attributes for other tools, and without the types of its numbers."""
    for note in list(func.attrs.keys()):
        if str(note).startswith("tvmscope."):
            func = func.without_attr(str(note))
    return re.sub(r"T\.int64\((-?\d+)\)", r"\1", func.script(show_meta=False))


def _main(module: tvm.IRModule) -> str:
    return str(module["main"].script(show_meta=False))


def _assembly(func: tirx.PrimFunc, target: Target) -> str:
    import tvm

    from tvmscope.compiler.targets import to_tvm

    module = tvm.IRModule({"main": func.with_attr("global_symbol", "main")})
    built = tvm.compile(module, target=tvm.target.Target(to_tvm(target)))
    return str(built.mod.inspect_source("asm"))


LESSON = Lesson(
    name="road",
    title=msg("The road of a model, from a file to machine code"),
    idea=msg(
        "A model goes through five languages on its way: the framework's file, Relax (a graph of "
        "operators), TIR (loops over buffers), LLVM's, and machine code. Each stage below is "
        "printed for a network with one convolution and one matrix product, with what changed.\n\n"
        "Where speed is decided: fusion (what goes to memory) and the schedule (how loops run). "
        "The other lessons are about the schedule."
    ),
    size=32,
    smallest=8,
    exhibits=here(exhibits),
    exercise=exercises.choice(
        msg(
            "At which stage does 'for i in range(32)' appear for the first time? (a) import, (b) "
            "legalisation, (c) schedule."
        ),
        {
            "a": msg("No: a Relax call names an operator and its shapes, not its loops."),
            "b": msg("Yes: legalisation replaces each operator by a TIR function with loops."),
            "c": msg("No: a schedule changes loops that are there already."),
        },
        "b",
    ),
    closing=msg("Next: tvmscope learn schedule"),
)
