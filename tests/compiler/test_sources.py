"""Which source operators each kernel computes."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
import tvm

from tvmscope.compiler import frontends, pipeline, targets
from tvmscope.compiler.describe import sources
from tvmscope.core.model import Prepared
from tvmscope.core.options import CompileOptions
from tvmscope.core.target import Target


@pytest.fixture(params=["cpu", "cuda:sm_90"])
def target(request: pytest.FixtureRequest, host: Target) -> Target:
    if request.param == "cpu":
        return host
    pytest.importorskip("triton", reason="CUDA kernels are generated where Triton is installed")
    return targets.resolve(request.param)


def _kernels(
    ready: Prepared, target: Target, variant: str, overrides: Mapping[str, bool] | None = None
) -> list[tuple[str, str]]:
    imported = frontends.import_model(ready)
    on_host = None if target.kind == "llvm" else targets.to_tvm(targets.host_target())
    tvm_target = tvm.target.Target(targets.to_tvm(target), host=on_host)
    options = CompileOptions(pipeline=variant, overrides=overrides or {})
    lowered = pipeline.run(imported.module, target, tvm_target, options)
    calls = sources.name_calls(lowered.calls, imported.sources)
    return [(call.kernel, " ".join(call.source_ops)) for call in calls]


def test_fused_torch_kernels_name_their_modules(conv_net: Prepared, target: Target) -> None:
    kernels = _kernels(conv_net, target, "tvmscope")
    found = [ops for kernel, ops in kernels if "conv" in kernel]
    assert len(found) == 3
    assert "stem/conv2d" in found[0]
    for block, ops in zip(("first", "second"), found[1:], strict=True):
        for part in (f"{block}.conv/", f"{block}.norm/", f"{block}/add", f"{block}.act/relu"):
            assert part in ops
        assert "stem" not in ops


def test_same_kernel_called_twice_has_its_own_sources_each_time(
    conv_net: Prepared, target: Target
) -> None:
    outside = {"pools": False}  # the second would compute the pool behind it, too
    kernels = _kernels(conv_net, target, "tvmscope", outside)
    twice = [ops for kernel, ops in kernels if "conv" in kernel][1:]
    assert len({kernel for kernel, ops in kernels if "conv" in kernel}) == 2
    assert "second" not in twice[0]
    assert "first" not in twice[1]


def test_every_kernel_has_a_source_in_both_variants_and_formats(
    conv_net: Prepared, conv_net_onnx: Prepared, target: Target
) -> None:
    for ready in (conv_net, conv_net_onnx):
        for variant in ("tvm", "tvmscope"):
            kernels = _kernels(ready, target, variant)
            assert kernels
            assert all(ops for _, ops in kernels), kernels


def test_onnx_kernels_name_their_nodes(conv_net_onnx: Prepared, host: Target) -> None:
    import onnx

    nodes = {node.name for node in onnx.load(conv_net_onnx.onnx_path).graph.node}
    kernels = _kernels(conv_net_onnx, host, "tvmscope")
    named = {op.rsplit("/", 1)[0] for _, ops in kernels for op in ops.split(" ")}
    assert named <= nodes
    assert any("/Conv" in ops and "/Relu" in ops for _, ops in kernels)


def test_a_number_that_tvm_appends_to_a_name_is_no_source() -> None:
    for name, expected in (("src1s", (1,)), ("src1s2", (1,)), ("src1_4s12", (1, 4)), ("lv1", ())):
        assert (
            sources.labels(tvm.relax.Var(name, tvm.relax.TensorType((1,), "float32"))) == expected
        )
