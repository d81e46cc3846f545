"""Units and configurations drawn from a seed: small, odd, and different in every axis."""

from __future__ import annotations

from dataclasses import replace
from random import Random
from typing import Any, get_args

from tvmscope.cuda.config import Config
from tvmscope.cuda.units import (
    Activation,
    Attention,
    Conv2d,
    Epilogue,
    GroupNorm,
    Heads,
    Matmul,
    Matrix,
    Norm,
    Pool,
    Pooled,
    Rows,
    Softmax,
    View,
)

PARAMETERS = {"clip": (-0.5, 1.25), "leaky_relu": (0.1,)}
ACTIVATIONS = get_args(Activation)


def epilogue(seed: int, first: int) -> Epilogue:
    """Activations in their order, by seed; each template has another `first` one, so that all of
    them come up although a template has fewer seeds."""
    rng = Random(seed)
    kind = ACTIVATIONS[(seed + first) % len(ACTIVATIONS)]
    return Epilogue(
        bias=rng.random() < 0.7,
        residual=rng.choice(("none", "before", "after", "factor")),
        activation=kind,
        parameters=PARAMETERS.get(kind, ()),
        output=rng.choice((None, None, "float32")),
    )


def kind_of(rng: Random) -> dict[str, Any]:
    """A type; the interpreter cannot multiply bfloat16."""
    return rng.choice(({"dtype": "float16"}, {"dtype": "float32", "math": "ieee"}))


def view(rng: Random, channels: int) -> View:
    if rng.random() < 0.6:
        return View()
    offset = rng.randrange(4)
    return View(pitch=channels + offset + rng.randrange(3), offset=offset)


def conv2d(seed: int) -> tuple[Conv2d, Config]:
    rng = Random(seed)
    groups = rng.choice((1, 1, 2, 3))
    c, oc = groups * rng.choice((1, 3, 8, 16, 19)), groups * rng.choice((1, 5, 16, 21))
    r, s = rng.choice((1, 1, 2, 3)), rng.choice((1, 2, 3))
    unit = Conv2d(
        **kind_of(rng),
        n=rng.choice((1, 2)),
        h=rng.randrange(r * 2, 9),
        w=rng.randrange(s * 2, 9),
        c=c,
        oc=oc,
        r=r,
        s=s,
        stride=(rng.choice((1, 2)), rng.choice((1, 2, 3))),
        padding=(rng.randrange(2), rng.randrange(3), rng.randrange(2), rng.randrange(2)),
        dilation=(rng.choice((1, 2)), rng.choice((1, 2))),
        groups=groups,
        epilogue=epilogue(seed, 0),
        input=view(rng, c),
        residual=view(rng, oc),
        output=view(rng, oc),
    )
    k = rng.choice((16, 32))
    return unit, Config(
        template="conv2d",
        m=rng.choice((16, 32)),
        n=16,
        k=k,
        split=_split(rng, unit.k, k),
        group=rng.choice((1, 2, 8)),
        layout=rng.choice(("kn", "nk")),
    )


def gated(seed: int) -> tuple[Conv2d, Config]:
    """A 1x1 convolution whose input is multiplied by a factor for each image and channel."""
    rng = Random(seed)
    unit, config = conv2d(seed)
    sizes = {"groups": 1, "r": 1, "s": 1, "stride": (1, 1), "dilation": (1, 1)}
    plain = replace(unit, **sizes, padding=(0, 0, 0, 0))  # type: ignore[arg-type]
    split = _split(rng, plain.k, config.k)
    return replace(plain, gated=True), replace(config, split=split)


def pooled(seed: int) -> tuple[Conv2d, Config]:
    """A convolution with a pool: small windows, with and without empty rows, or the whole image."""
    rng = Random(seed)
    drawn = ((conv2d(100 * seed + i)) for i in range(100))
    unit, config = next((u, c) for u, c in drawn if u.p > 1 and u.q > 1 and u.p * u.q <= 32)
    window = rng.choice(((2, 2), (2, 2), (1, 2), (3, 2), (unit.p, unit.q), (unit.p, unit.q)))
    r, s = (min(window[0], unit.p), min(window[1], unit.q))
    pool = Pooled(form=rng.choice(("max", "mean")), r=r, s=s)
    output = view(rng, unit.oc)
    return replace(unit, pooled=pool, output=output), replace(config, m=max(config.m, pool.rows))


def matmul(seed: int) -> tuple[Matmul, Config]:
    rng = Random(seed)
    m, n, k = rng.choice((1, 7, 33)), rng.choice((1, 18, 40)), rng.choice((5, 33, 64))
    batch = rng.choice(((1, 1), (1, 1), (2, 3)))
    weight = batch == (1, 1) and rng.random() < 0.7
    a, b = None, None
    if rng.random() < 0.5:  # heads inside rows: [outer, m, inner, k]
        a = Matrix(row=batch[1] * k, column=1, outer=m * batch[1] * k, inner=k)
    elif rng.random() < 0.5:
        a = Matrix(row=1, column=m + 2, outer=(m + 2) * k * batch[1], inner=(m + 2) * k, offset=1)
    if not weight and rng.random() < 0.7:
        b = Matrix(row=1, column=k, outer=n * k * batch[1], inner=n * k)
    unit = Matmul(
        **kind_of(rng),
        m=m,
        n=n,
        k=k,
        batch=batch,
        a=a,
        b=b,
        weight=weight,
        scale=rng.choice((1.0, 0.25)),
        epilogue=epilogue(seed, 0),
    )
    step = 16
    return unit, Config(
        template="matmul",
        m=16,
        n=rng.choice((16, 32)),
        k=step,
        split=_split(rng, k, step),
        group=rng.choice((1, 2)),
        layout=rng.choice(("kn", "nk")) if weight else "kn",
    )


def matvec(seed: int) -> tuple[Matmul, Config]:
    rng = Random(seed)
    k, step = rng.choice((31, 64, 200)), rng.choice((32, 64, 256))
    unit = Matmul(
        **kind_of(rng),
        m=rng.choice((1, 1, 3)),
        n=rng.choice((1, 9, 22)),
        k=k,
        epilogue=epilogue(seed, 12),
    )
    split = _split(rng, k, step)
    return unit, Config(
        template="matvec", m=1, n=rng.choice((1, 4)), k=step, split=split, layout="nk"
    )


def depthwise(seed: int) -> tuple[Conv2d, Config]:
    rng = Random(seed)
    c, r, s = rng.choice((1, 3, 10)), rng.choice((1, 3)), rng.choice((2, 3, 5))
    oc = c * rng.choice((1, 1, 2))
    unit = Conv2d(
        **kind_of(rng),
        n=rng.choice((1, 2)),
        h=rng.randrange(r * 2, 10),
        w=rng.randrange(s * 2, 12),
        c=c,
        oc=oc,
        r=r,
        s=s,
        stride=(rng.choice((1, 2)), rng.choice((1, 2))),
        padding=(rng.randrange(2), rng.randrange(3), rng.randrange(2), rng.randrange(2)),
        dilation=(rng.choice((1, 2)), rng.choice((1, 2))),
        groups=c,
        epilogue=epilogue(seed, 6),
        input=view(rng, c),
        residual=view(rng, oc),
        output=view(rng, oc),
    )
    return unit, Config(template="depthwise", m=rng.choice((8, 32)), n=8, k=rng.choice((2, 8)))


def pool(seed: int) -> tuple[Pool, Config]:
    rng = Random(seed)
    r, s = rng.choice((2, 3)), rng.choice((2, 3))
    unit = Pool(
        dtype=rng.choice(("float16", "float32")),
        n=rng.choice((1, 2)),
        h=rng.randrange(4, 11),
        w=rng.randrange(4, 11),
        c=rng.choice((1, 7, 12)),
        form=rng.choice(("max", "mean")),
        r=r,
        s=s,
        stride=(rng.choice((1, 2, 3)), rng.choice((1, 2))),
        padding=(rng.randrange(r), rng.randrange(s), rng.randrange(r), rng.randrange(s)),
        count_padding=rng.random() < 0.5,
        round_up=rng.random() < 0.5,
    )
    return unit, Config(template="pool", m=rng.choice((8, 32)), n=8, k=rng.choice((2, 8)))


def attention(seed: int) -> tuple[Attention, Config]:
    rng = Random(seed)
    batch, heads, dim = rng.choice((1, 2)), rng.choice((1, 3)), rng.choice((8, 16, 21))
    queries, keys = rng.choice((1, 17, 30)), rng.choice((5, 32, 41))
    packed: dict[str, Any] = {}
    if rng.random() < 0.5:
        keys, width = queries, heads * dim
        for i, name in enumerate("qkv"):
            packed[name] = Heads(
                batch=queries * 3 * width, head=dim, row=3 * width, offset=i * width
            )
    unit = Attention(
        **kind_of(rng),
        batch=batch,
        heads=heads,
        queries=queries,
        keys=keys,
        dim=dim,
        value_dim=None if packed else rng.choice((None, 12)),
        scale=rng.choice((1.0, 0.3)),
        causal=rng.random() < 0.5,
        mask=rng.choice((None, (0, 0, 0), (keys, 0, 0), (keys * queries, 0, keys))),
        **packed,
    )
    if heads == 3 and not packed and seed % 2:  # keys and values of groups of heads
        unit = replace(unit, heads=4, shared=rng.choice((2, 4)))
    if unit.mask is not None and seed % 3 == 0:  # windows: the masks of a batch repeat
        unit = replace(unit, batch=2 * batch, mask_batches=batch)
    return unit, Config(template="attention", m=16, n=rng.choice((16, 32)))


def norm(seed: int) -> tuple[Norm, Config]:
    rng = Random(seed)
    residual = rng.random() < 0.5
    unit = Norm(
        dtype=rng.choice(("float16", "float32")),
        rows=rng.choice((1, 5)),
        columns=rng.choice((3, 33, 64)),
        form=rng.choice(("layer", "rms", "length")),
        scale=rng.random() < 0.7,
        bias=rng.random() < 0.7,
        residual=residual,
        keep_sum=residual and rng.random() < 0.5,
        output=rng.choice((None, "float32")),
    )
    if not residual and seed % 2:  # heads inside a projection
        step = unit.columns + rng.randrange(3)
        within = Rows(sizes=(3, 2), steps=(9 * step, step, 4 * step), offset=rng.randrange(5))
        unit = replace(unit, rows=6 * unit.rows, x=within)
    return unit, Config(template="norm", m=rng.choice((1, 2)), n=rng.choice((32, 64)))


def softmax(seed: int) -> tuple[Softmax, Config]:
    rng = Random(seed)
    unit = Softmax(
        dtype=rng.choice(("float16", "float32")),
        rows=rng.choice((1, 5)),
        columns=rng.choice((3, 33, 64)),
        scale=rng.choice((1.0, 0.3, -0.5)),
        log=rng.random() < 0.5,
        output=rng.choice((None, "float32")),
    )
    return unit, Config(template="softmax", m=rng.choice((1, 2)), n=rng.choice((32, 64)))


def group_norm(seed: int) -> tuple[GroupNorm, Config]:
    rng = Random(seed)
    groups, width = rng.choice(((1, 5), (3, 4), (4, 10), (7, 1), (12, 1)))
    unit = GroupNorm(
        dtype=rng.choice(("float16", "float32")),
        n=rng.choice((1, 2)),
        pixels=rng.choice((1, 15, 21, 70)),
        c=groups * width,
        groups=groups,
        epilogue=epilogue(seed, 3),
    )
    each = 1 << (width - 1).bit_length()
    columns = each * rng.choice((1, 2, 4))
    return unit, Config(template="group_norm", m=rng.choice((16, 32)), n=columns)


def _split(rng: Random, k: int, step: int) -> int:
    """Parts of the sum, none of them empty."""
    steps = -(-k // step)
    fitting = [s for s in (1, 2, 3, 4) if s == 1 or (s - 1) * -(-steps // s) < steps]
    return rng.choice(fitting)


def persistent(seed: int) -> tuple[Matmul | Conv2d, Config]:
    rng = Random(seed)
    m, n, k = rng.choice((33, 70)), rng.choice((16, 40)), rng.choice((24, 48))
    config = Config(
        template="persistent",
        m=rng.choice((16, 32)),
        n=16,
        k=16,
        split=rng.choice((2, 5)),
        group=rng.choice((1, 2)),
        layout=rng.choice(("kn", "nk")),
    )
    if rng.random() < 0.5:
        unit = Matmul(**kind_of(rng), m=m, n=n, k=k, scale=0.5, epilogue=epilogue(seed, 9))
        return unit, config
    conv = Conv2d(
        **kind_of(rng), n=2, h=5, w=7, c=k, oc=n, r=1, s=1,
        epilogue=epilogue(seed, 9), output=View(pitch=n + 9, offset=3),
    )  # fmt: skip
    return conv, config


MAKERS = (
    conv2d, gated, pooled, matmul, matvec, persistent, depthwise, pool, attention, norm, softmax,
    group_norm,
)  # fmt: skip
"""Every draw, for what runs all templates at odd shapes."""
