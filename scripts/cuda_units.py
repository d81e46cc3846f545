"""The distinct units of the built-in models, as JSON for cuda_kernels.py.

python scripts/cuda_units.py -o units.json [--models resnet50,minilm] [--batches 1,8,32]

A model is exported once at batch 1; convolutions and linear layers take the batch norm, activation
and addition that follow them. Where a choice is open to the compiler (an addition behind two
convolutions, three projections of one input as one) the units of each way are listed.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch.fx import Node

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "src"))

from tvmscope.core.options import LoadOptions  # noqa: E402
from tvmscope.cuda.rewrites import as_patches, with_channels  # noqa: E402
from tvmscope.cuda.units import (  # noqa: E402
    Activation,
    Attention,
    Conv2d,
    Epilogue,
    Heads,
    Matmul,
    Norm,
    Pool,
    Softmax,
    Unit,
)
from tvmscope.models.catalog import built_ins  # noqa: E402
from tvmscope.storage.codec import encode  # noqa: E402

MODELS = (
    "resnet50", "mobilenet_v2", "efficientnet_lite0", "vit_b_16", "minilm", "yolov3", "yolov4_tiny",
)  # fmt: skip
MOVES = {
    "view", "reshape", "transpose", "permute", "contiguous", "clone", "dropout", "flatten",
    "unflatten", "unsqueeze", "squeeze", "_unsafe_view", "to",
}  # fmt: skip
ACTIVATIONS: dict[str, Activation] = {
    "relu": "relu", "relu6": "relu6", "silu": "silu", "sigmoid": "sigmoid",
    "hardswish": "hardswish", "gelu": "gelu", "leaky_relu": "leaky_relu", "hardtanh": "clip",
}  # fmt: skip


def main() -> None:
    """Export, collect, write."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("-o", "--output", type=Path, required=True)
    parser.add_argument("--models", default=",".join(MODELS))
    parser.add_argument("--batches", default="1,8,32", help="of float16; float32 has batch 1")
    parser.add_argument("--types", default="float16,float32")
    parser.add_argument("--odd", type=int, help="so many drawn odd shapes per template instead")
    arguments = parser.parse_args()
    if arguments.odd:
        entries = list(odd_units(arguments.odd))
        arguments.output.write_text(json.dumps(entries, indent=1))
        print(f"{len(entries)} drawn units in {arguments.output}")
        return
    found: dict[str, dict[str, Any]] = {}
    for name in arguments.models.split(","):
        units = list(model_units(name))
        for unit in typed(units, arguments):
            entry = found.setdefault(unit.key, {"unit": unit.to_json(), "models": []})
            if name not in entry["models"]:
                entry["models"].append(name)
        print(f"{name}: {len(units)} units, {len({u.key for u in units})} distinct", flush=True)
    arguments.output.write_text(json.dumps(list(found.values()), indent=1))
    kinds = Counter(e["unit"]["kind"] for e in found.values())
    print(f"{len(found)} units in {arguments.output}: {dict(kinds)}")


def odd_units(count: int) -> Iterator[dict[str, Any]]:
    """The units that the interpreted tests draw, with their configurations, for a GPU: every other
    float16 one in bfloat16, and every launch of sm_90."""
    sys.path.insert(0, str(ROOT / "tests" / "cuda"))
    import draws

    makers = (
        draws.conv2d, draws.matmul, draws.matvec, draws.persistent, draws.depthwise, draws.pool,
        draws.attention, draws.norm,
    )  # fmt: skip
    for make in makers:
        for seed in range(count):
            unit, config = make(seed)
            if unit.dtype == "float16" and seed % 2:
                unit = replace(unit, dtype="bfloat16")
            config = replace(config, pdl=seed % 3)
            yield {"unit": unit.to_json(), "config": encode(config)}


def typed(units: list[Unit], arguments: argparse.Namespace) -> Iterator[Unit]:
    """The float16 units of batch 1 in every type and batch that is asked for."""
    types = arguments.types.split(",")
    for unit in units:
        if "float16" in types:
            for batch in arguments.batches.split(","):
                yield from for_tensor_cores(at_batch(unit, int(batch)))
        if "float32" in types:
            for changes in wide_types(unit):
                yield from for_tensor_cores(replace(unit, **changes))


def wide_types(unit: Unit) -> list[dict[str, Any]]:
    """float32, and how it is multiplied: PyTorch's default has TF32 in convolutions only."""
    if isinstance(unit, Conv2d):
        return [{"dtype": "float32", "math": "tf32"}]
    if isinstance(unit, Matmul | Attention):
        return [{"dtype": "float32", "math": math} for math in ("tf32", "tf32x3", "ieee")]
    return [{"dtype": "float32"}]


def at_batch(unit: Unit, batch: int) -> Unit:
    """The unit of batch 1 at another batch."""
    if isinstance(unit, Conv2d | Pool):
        return replace(unit, n=unit.n * batch)
    if isinstance(unit, Matmul):
        return replace(unit, m=unit.m * batch)
    if isinstance(unit, Norm | Softmax):
        return replace(unit, rows=unit.rows * batch)
    if isinstance(unit, Attention):
        return replace(unit, batch=unit.batch * batch)
    raise NotImplementedError(unit.kind)


def for_tensor_cores(unit: Unit) -> Iterator[Unit]:
    """Convolutions of three channels with more of them, or over rows of patches."""
    if not isinstance(unit, Conv2d) or unit.c > 4:
        yield unit
        return
    patches = as_patches(unit)
    if patches is not None:
        yield patches
        return
    for channels in (4, 8) if unit.dtype == "float16" else (4,):
        yield with_channels(unit, channels)


def model_units(name: str) -> Iterator[Unit]:
    """Every unit of a model in float16 at batch 1, as often as it occurs."""
    model = built_ins()[name].load(LoadOptions(offline=True, need_onnx=False))
    with torch.no_grad():
        program = torch.export.export(model.module, model.args, model.kwargs)
    for node in program.graph.nodes:
        yield from node_units(node)


def op(node: Any) -> str:
    """The name of what a node calls, without its overload and in-place underscore."""
    if not isinstance(node, Node) or node.op != "call_function":
        return ""
    return str(node.target).removeprefix("aten.").split(".")[0].rstrip("_")


def shape(node: Any) -> tuple[int, ...]:
    """Of a node's value."""
    return tuple(int(s) for s in node.meta["val"].shape)


def pair(value: Any) -> tuple[int, int]:
    """PyTorch's way to give one number for both axes."""
    values = list(value) if isinstance(value, list | tuple) else [value, value]
    return (int(values[0]), int(values[-1]))


def argument(node: Node, index: int, default: Any) -> Any:
    """A positional argument, or its default."""
    return node.args[index] if len(node.args) > index else default


def node_units(node: Node) -> Iterator[Unit]:
    """The units that begin at a node."""
    name = op(node)
    if name == "conv2d":
        yield from (conv_unit(node, e) for e in epilogues(node))
    elif name == "linear":
        yield from linear_units(node)
    elif name == "scaled_dot_product_attention":
        yield from attention_units(node)
    elif name == "layer_norm":
        yield from norm_units(node)
    elif name in ("max_pool2d", "avg_pool2d", "adaptive_avg_pool2d"):
        yield pool_unit(node, name)
    elif name == "softmax":
        size = shape(node)
        yield Softmax(dtype="float16", rows=torch.Size(size[:-1]).numel(), columns=size[-1])


def conv_unit(node: Node, epilogue: Epilogue) -> Conv2d:
    """A convolution with what follows it."""
    source, before = unpadded(node.args[0])
    (n, c, h, w), (oc, _, r, s) = shape(source), shape(node.args[1])
    top, left = pair(argument(node, 4, 0))
    around = (top + before[0], left + before[1], top + before[2], left + before[3])
    return Conv2d(
        dtype="float16", n=n, h=h, w=w, c=c, oc=oc, r=r, s=s,
        stride=pair(argument(node, 3, 1)),
        padding=around,
        dilation=pair(argument(node, 5, 1)),
        groups=int(argument(node, 6, 1)),
        epilogue=epilogue,
    )  # fmt: skip


def unpadded(node: Any) -> tuple[Any, tuple[int, int, int, int]]:
    """What a zero padding pads, and its top, left, bottom and right; any other node as it is."""
    if op(node) in ("pad", "constant_pad_nd"):
        widths = [int(v) for v in node.args[1]]
        value = argument(node, 3 if op(node) == "pad" else 2, 0.0) or 0.0
        if len(widths) == 4 and float(value) == 0.0 and min(widths) >= 0:
            left, right, top, bottom = widths
            return node.args[0], (top, left, bottom, right)
    return node, (0, 0, 0, 0)


def linear_units(node: Node) -> Iterator[Matmul]:
    """A linear layer; three of the same input also as one."""
    source, weight = node.args[0], node.args[1]
    rows, (n, k) = torch.Size(shape(source)[:-1]).numel(), shape(weight)
    for epilogue in epilogues(node):
        yield Matmul(dtype="float16", m=rows, n=n, k=k, epilogue=epilogue)
    alike = [u for u in source.users if op(u) == "linear" and shape(u.args[1]) == (n, k)]
    if len(alike) == 3 and alike[0] is node:
        yield Matmul(dtype="float16", m=rows, n=3 * n, k=k, epilogue=Epilogue(bias=True))


def attention_units(node: Node) -> Iterator[Attention]:
    """Attention over separate projections, and over one that holds all three."""
    (batch, heads, queries, dim), keys = shape(node.args[0]), shape(node.args[1])[2]
    masked = argument(node, 3, None) is not None
    scale = node.kwargs.get("scale")
    unit = Attention(
        dtype="float16", batch=batch, heads=heads, queries=queries, keys=keys, dim=dim,
        scale=float(scale) if scale is not None else dim**-0.5,  # type: ignore[arg-type]
        causal=bool(argument(node, 5, False)),
        mask=(keys, 0, 0) if masked else None,
    )  # fmt: skip
    yield unit
    width = heads * dim
    q, k, v = (
        Heads(batch=queries * 3 * width, head=dim, row=3 * width, offset=i * width)
        for i in range(3)
    )
    yield replace(unit, q=q, k=k, v=v)


def norm_units(node: Node) -> Iterator[Norm]:
    """Layer norm, with the addition before it where there is one."""
    size = shape(node)
    unit = Norm(
        dtype="float16",
        rows=torch.Size(size[:-1]).numel(),
        columns=size[-1],
        epsilon=float(argument(node, 4, 1e-5)),
    )
    yield unit
    if op(node.args[0]) == "add":
        yield replace(unit, residual=True)
        if len(node.args[0].users) > 1:  # type: ignore[union-attr]
            yield replace(unit, residual=True, keep_sum=True)


def pool_unit(node: Node, name: str) -> Pool:
    """A pool by PyTorch's arguments."""
    n, c, h, w = shape(node.args[0])
    if name == "adaptive_avg_pool2d":
        if shape(node)[2:] != (1, 1):
            raise NotImplementedError(f"{name} to {shape(node)}")
        return Pool(dtype="float16", n=n, h=h, w=w, c=c, form="mean", r=h, s=w)
    window = pair(node.args[1])
    top, left = pair(argument(node, 3, 0))
    return Pool(
        dtype="float16", n=n, h=h, w=w, c=c,
        form="max" if name == "max_pool2d" else "mean",
        r=window[0], s=window[1],
        stride=pair(argument(node, 2, None) or window),
        padding=(top, left, top, left),
        round_up=bool(argument(node, 5 if name == "max_pool2d" else 4, False)),
    )  # fmt: skip


def epilogues(node: Node) -> list[Epilogue]:
    """What a contraction can take with it: all that follows, and, where an addition is among it,
    only what comes before that."""
    epilogue = Epilogue(bias=argument(node, 2, None) is not None)
    out: list[Epilogue] = []
    while (following := only_user(node)) is not None:
        name = op(following)
        if name == "batch_norm":
            epilogue = replace(epilogue, bias=True)
        elif name in ACTIVATIONS and epilogue.activation == "none":
            epilogue = replace(epilogue, **activation(following, name))
        elif name == "add" and epilogue.residual == "none" and same_shapes(following):
            out.append(epilogue)
            place = "before" if epilogue.activation == "none" else "after"
            epilogue = replace(epilogue, residual=place)
            if place == "after":
                out.append(epilogue)
                return out
        elif name not in MOVES:
            break
        node = following
    return [*out, epilogue]


def only_user(node: Node) -> Node | None:
    """The one node that takes a value, where there is one."""
    users = list(node.users)
    return users[0] if len(users) == 1 else None


def same_shapes(node: Node) -> bool:
    """Whether an addition has two tensors of the result's shape."""
    return all(isinstance(a, Node) and shape(a) == shape(node) for a in node.args[:2])


def activation(node: Node, name: str) -> dict[str, Any]:
    """The activation's kind and parameters."""
    kind = ACTIVATIONS[name]
    if name == "hardtanh":
        low, high = float(argument(node, 1, -1.0)), float(argument(node, 2, 1.0))
        if (low, high) == (0.0, 6.0):
            return {"activation": "relu6"}
        return {"activation": kind, "parameters": (low, high)}
    if name == "leaky_relu":
        return {"activation": kind, "parameters": (float(argument(node, 1, 0.01)),)}
    if name == "gelu" and node.kwargs.get("approximate", "none") == "tanh":
        return {"activation": "gelu_tanh"}
    return {"activation": kind}


if __name__ == "__main__":
    main()
