"""bfloat16: TVM's decisions for float16 with the other type, and generated kernels in it."""

from __future__ import annotations

import tvm
from tvm import relax
from tvm.script import relax as R

from tvmscope.compiler import targets
from tvmscope.compiler.rewrites.half_types import to_bfloat16
from tvmscope.compiler.units import choose
from tvmscope.cuda.units import Conv2d, Epilogue
from tvmscope.cuda.winners import load_winners


def module() -> tvm.IRModule:
    builder = relax.BlockBuilder()
    x = relax.Var("x", R.Tensor((1, 8, 6, 6), "float32"))
    w = relax.Var("w", R.Tensor((4, 8, 3, 3), "float32"))
    with builder.function("main", [x, w]):
        with builder.dataflow():
            y = builder.emit(relax.op.nn.relu(relax.op.nn.conv2d(x, w, padding=1)))
            out = builder.emit_output(relax.op.mean(y, [2, 3]))
        builder.emit_func_output(out)
    return builder.get()


def test_it_is_the_float16_model_in_the_other_type() -> None:
    step = relax.transform.ToMixedPrecision(out_dtype="float16")
    half, brain = (make(module()).script() for make in (step, to_bfloat16(step)))
    assert "float16" in half
    assert half.replace("float16", "bfloat16") == brain


def test_a_model_without_products_stays_as_it_is() -> None:
    plain = to_bfloat16(tvm.transform.Sequential([]))(module())
    tvm.ir.assert_structural_equal(plain, module())


def test_a_kernel_takes_the_tile_that_was_measured_in_float16() -> None:
    known = load_winners(choose.SHIPPED / "sm_90.jsonl").by_unit
    shape = {"n": 1, "h": 56, "w": 56, "c": 64, "oc": 64, "r": 1, "s": 1}
    epilogue = Epilogue(bias=True, activation="relu")
    half, brain = (
        Conv2d(dtype=dtype, epilogue=epilogue, **shape) for dtype in ("float16", "bfloat16")
    )
    assert half.key in known
    assert brain.key not in known
    chooser = choose.Chooser(targets.resolve("cuda:sm_90"), {})
    assert chooser(brain) == chooser(half)
