"""Small torch modules, one per form of an operator: what the torch frontend must import."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F

Tensor = torch.Tensor


class Of(nn.Module):
    """A function as a module."""

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.function = function

    def forward(self, *tensors: Tensor) -> Any:
        return self.function(*tensors)


class Takes(nn.Module):
    """A layer whose call needs arguments around the tensors, or gives more than tensors."""

    def __init__(self, layer: nn.Module, call: Callable[..., Any]) -> None:
        super().__init__()
        self.layer = layer
        self.call = call

    def forward(self, *tensors: Tensor) -> Any:
        return self.call(self.layer, *tensors)


class Counter(nn.Module):
    """A buffer that is changed before it is read."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("seen", torch.zeros(4))

    def forward(self, x: Tensor) -> Tensor:
        self.seen.add_(x.sum(0))
        self.seen[1] = 2.0
        return x + self.seen


class Scan(nn.Module):
    """A state-space scan: a loop over time in Python."""

    def forward(self, x: Tensor, a: Tensor, b: Tensor, c: Tensor) -> Tensor:
        state = torch.zeros(x.shape[0], x.shape[2], a.shape[1])
        found = []
        for step in range(x.shape[1]):
            state = state * torch.exp(-a.abs()) + x[:, step, :, None] * b[:, step, None, :]
            found.append((state * c[:, step, None, :]).sum(-1))
        return torch.stack(found, 1)


@dataclass(frozen=True)
class Form:
    """A module (or a function of tensors) and its inputs."""

    make: Callable[[], nn.Module] | Callable[..., Any]
    inputs: tuple[Any, ...]
    tolerance: float = 1e-4

    def module(self) -> nn.Module:
        """Seeded, in eval mode, without gradients."""
        torch.manual_seed(0)
        made = self.make
        if isinstance(made, type) or getattr(made, "makes", False):
            made = made()
        module = made if isinstance(made, nn.Module) else Of(made)
        return module.eval().requires_grad_(False)

    def tensors(self) -> tuple[Tensor, ...]:
        """Normal numbers for a shape; tensors stay."""
        torch.manual_seed(1)
        return tuple(torch.randn(i) if isinstance(i, tuple) else i for i in self.inputs)


def layer(kind: Callable[..., nn.Module], *args: Any, **kwargs: Any) -> Callable[[], nn.Module]:
    """A layer that is made when the form is used."""

    def make() -> nn.Module:
        return kind(*args, **kwargs)

    make.makes = True  # type: ignore[attr-defined]  # functions have no such attribute by type
    return make


def taken(call: Callable[..., Any], kind: Callable[..., nn.Module], *args: Any, **kwargs: Any):
    return layer(lambda: Takes(kind(*args, **kwargs), call))


def integers(high: int, *shape: int) -> Tensor:
    return torch.randint(0, high, shape, generator=torch.Generator().manual_seed(2))


def positive(*shape: int) -> Tensor:
    return torch.rand(shape, generator=torch.Generator().manual_seed(3)) + 0.5


def half(kind: torch.dtype, function: Callable[..., nn.Module], *args: Any, **kwargs: Any):
    return layer(lambda: function(*args, **kwargs).to(kind))


X = (2, 3, 8)
IMG = (1, 4, 9, 10)
VOL = (1, 4, 5, 6, 7)
f16 = torch.float16
bf16 = torch.bfloat16


def rand(*shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(4)).to(dtype)


def _chunked_index(x: Tensor, i: Tensor, j: Tensor) -> Tensor:
    return x[:, i, j]


FORMS: dict[str, Form] = {
    # ---- recurrent
    "lstm": Form(layer(nn.LSTM, 8, 5, batch_first=True), (X,)),
    "lstm 2 layers both ways": Form(layer(nn.LSTM, 8, 5, num_layers=2, bidirectional=True), (X,)),
    "lstm without bias": Form(layer(nn.LSTM, 8, 5, bias=False), (X,)),
    "lstm with states": Form(
        taken(lambda m, x, h, c: m(x, (h, c)), nn.LSTM, 8, 5), (X, (1, 3, 5), (1, 3, 5))
    ),
    "lstm with a projection": Form(layer(nn.LSTM, 8, 5, proj_size=3), (X,)),
    "lstm unbatched": Form(layer(nn.LSTM, 8, 5), ((6, 8),)),
    "lstm of 64 steps": Form(layer(nn.LSTM, 8, 5), ((64, 2, 8),)),
    "gru": Form(layer(nn.GRU, 8, 5, batch_first=True), (X,)),
    "gru 2 layers both ways": Form(layer(nn.GRU, 8, 5, num_layers=2, bidirectional=True), (X,)),
    "gru without bias": Form(layer(nn.GRU, 8, 5, bias=False), (X,)),
    "rnn tanh": Form(layer(nn.RNN, 8, 5, num_layers=2, bidirectional=True), (X,)),
    "rnn relu": Form(layer(nn.RNN, 8, 5, nonlinearity="relu", batch_first=True), (X,)),
    "lstm cell": Form(layer(nn.LSTMCell, 8, 5), ((3, 8),)),
    "gru cell": Form(layer(nn.GRUCell, 8, 5), ((3, 8),)),
    "rnn cell": Form(layer(nn.RNNCell, 8, 5), ((3, 8),)),
    "state-space scan": Form(Scan, ((1, 4, 6), (6, 3), (1, 4, 3), (1, 4, 3))),
    # ---- convolutions
    "conv1d": Form(layer(nn.Conv1d, 4, 6, 3, stride=2, padding=1, dilation=2), ((2, 4, 12),)),
    "conv1d groups same": Form(layer(nn.Conv1d, 4, 8, 3, padding="same", groups=4), ((2, 4, 12),)),
    "conv1d reflect": Form(
        layer(nn.Conv1d, 4, 8, 3, padding=2, padding_mode="reflect"), ((2, 4, 12),)
    ),
    "conv2d": Form(layer(nn.Conv2d, 4, 6, (3, 5), stride=(2, 1), padding=(1, 2)), (IMG,)),
    "conv2d groups dilated": Form(layer(nn.Conv2d, 4, 8, 3, groups=2, dilation=2), (IMG,)),
    "conv2d replicate": Form(
        layer(nn.Conv2d, 4, 6, 3, padding=1, padding_mode="replicate"), (IMG,)
    ),
    "conv2d circular": Form(layer(nn.Conv2d, 4, 6, 3, padding=1, padding_mode="circular"), (IMG,)),
    "conv2d unbatched": Form(layer(nn.Conv2d, 4, 6, 3), ((4, 9, 10),)),
    "conv2d same even": Form(layer(nn.Conv2d, 4, 6, 4, padding="same"), (IMG,)),
    "conv3d": Form(layer(nn.Conv3d, 4, 6, (3, 2, 3), stride=(1, 2, 2), padding=1), (VOL,)),
    "conv3d groups dilated": Form(layer(nn.Conv3d, 4, 8, 2, groups=4, dilation=2), (VOL,)),
    "conv3d depthwise": Form(layer(nn.Conv3d, 4, 4, 3, groups=4, padding=1), (VOL,)),
    "deconv1d": Form(
        layer(nn.ConvTranspose1d, 4, 6, 3, stride=2, padding=1, output_padding=1), ((2, 4, 7),)
    ),
    "deconv1d groups dilated": Form(
        layer(nn.ConvTranspose1d, 4, 6, 3, dilation=2, groups=2), ((2, 4, 7),)
    ),
    "deconv2d": Form(layer(nn.ConvTranspose2d, 4, 6, (3, 4), stride=(2, 3), padding=1), (IMG,)),
    "deconv2d groups dilated": Form(
        layer(nn.ConvTranspose2d, 4, 6, 3, stride=2, dilation=2, groups=2, output_padding=1), (IMG,)
    ),
    "deconv2d without bias": Form(layer(nn.ConvTranspose2d, 4, 6, 2, stride=2, bias=False), (IMG,)),
    "deconv3d": Form(
        layer(nn.ConvTranspose3d, 4, 6, 3, stride=2, padding=1, output_padding=1), (VOL,)
    ),
    "deconv3d groups dilated": Form(
        layer(nn.ConvTranspose3d, 4, 6, (2, 3, 2), dilation=(1, 2, 1), groups=2), (VOL,)
    ),
    "deconv3d asymmetric": Form(
        layer(
            nn.ConvTranspose3d,
            4,
            6,
            (3, 5, 3),
            stride=(1, 2, 3),
            padding=(1, 0, 2),
            output_padding=(0, 1, 2),
        ),
        (VOL,),
    ),
    # ---- pooling
    "max_pool1d": Form(layer(nn.MaxPool1d, 3, stride=2, padding=1, dilation=2), ((2, 4, 12),)),
    "max_pool1d ceil": Form(layer(nn.MaxPool1d, 3, stride=2, ceil_mode=True), ((2, 4, 12),)),
    "max_pool1d indices": Form(layer(nn.MaxPool1d, 3, return_indices=True), ((2, 4, 12),)),
    "max_pool2d dilation": Form(layer(nn.MaxPool2d, 3, stride=2, padding=1, dilation=2), (IMG,)),
    "max_pool2d ceil": Form(layer(nn.MaxPool2d, (3, 2), stride=(2, 3), ceil_mode=True), (IMG,)),
    "max_pool2d indices": Form(layer(nn.MaxPool2d, 2, return_indices=True), (IMG,)),
    "max_pool2d indices padded": Form(
        layer(nn.MaxPool2d, 3, 2, 1, dilation=2, return_indices=True), (IMG,)
    ),
    "max_pool3d": Form(layer(nn.MaxPool3d, 2, stride=2, padding=1, ceil_mode=True), (VOL,)),
    "max_pool3d dilation": Form(layer(nn.MaxPool3d, 2, stride=1, dilation=2), (VOL,)),
    "max_pool3d indices": Form(layer(nn.MaxPool3d, 2, return_indices=True), (VOL,)),
    "avg_pool1d": Form(layer(nn.AvgPool1d, 3, stride=2, padding=1), ((2, 4, 12),)),
    "avg_pool1d uncounted": Form(
        layer(nn.AvgPool1d, 3, stride=2, padding=1, count_include_pad=False), ((2, 4, 12),)
    ),
    "avg_pool2d": Form(layer(nn.AvgPool2d, 3, stride=2, padding=1, ceil_mode=True), (IMG,)),
    "avg_pool2d uncounted": Form(
        layer(nn.AvgPool2d, 3, stride=2, padding=1, count_include_pad=False), (IMG,)
    ),
    "avg_pool2d divisor": Form(layer(nn.AvgPool2d, 2, divisor_override=3), (IMG,)),
    "avg_pool3d": Form(layer(nn.AvgPool3d, 2, stride=2, padding=1), (VOL,)),
    "avg_pool3d uncounted": Form(
        layer(nn.AvgPool3d, 2, 2, 1, ceil_mode=True, count_include_pad=False), (VOL,)
    ),
    "adaptive_avg_pool1d": Form(layer(nn.AdaptiveAvgPool1d, 5), ((2, 4, 12),)),
    "adaptive_avg_pool2d": Form(layer(nn.AdaptiveAvgPool2d, (4, 3)), (IMG,)),
    "adaptive_avg_pool2d one": Form(layer(nn.AdaptiveAvgPool2d, (None, 1)), (IMG,)),
    "adaptive_avg_pool2d up": Form(layer(nn.AdaptiveAvgPool2d, (12, 12)), (IMG,)),
    "adaptive_avg_pool3d": Form(layer(nn.AdaptiveAvgPool3d, (2, 4, 3)), (VOL,)),
    "adaptive_max_pool1d": Form(layer(nn.AdaptiveMaxPool1d, 5), ((2, 4, 12),)),
    "adaptive_max_pool2d": Form(layer(nn.AdaptiveMaxPool2d, (4, 3)), (IMG,)),
    "adaptive_max_pool2d indices": Form(
        layer(nn.AdaptiveMaxPool2d, (4, 3), return_indices=True), (IMG,)
    ),
    "adaptive_max_pool3d": Form(layer(nn.AdaptiveMaxPool3d, (2, 4, 3)), (VOL,)),
    "lp_pool2d": Form(layer(nn.LPPool2d, 2, 3, stride=2), (positive(1, 4, 9, 10),)),
    "fractional_max_pool2d": Form(
        lambda x, u: F.fractional_max_pool2d(x, 2, output_size=(4, 4), _random_samples=u),
        (IMG, torch.full((1, 4, 2), 0.3)),
    ),
    "max_unpool2d": Form(
        lambda x: F.max_unpool2d(*F.max_pool2d(x, 2, return_indices=True), 2), ((1, 4, 8, 8),)
    ),
    # ---- cumulative
    "cumsum": Form(lambda x: x.cumsum(1), (X,)),
    "cumsum of integers": Form(lambda x: x.cumsum(-1), (integers(9, 3, 7),)),
    "cumsum of booleans": Form(lambda x: (x > 0).cumsum(1), (X,)),
    "cumsum reversed": Form(lambda x: x.flip(1).cumsum(1).flip(1), (X,)),
    "cumsum exclusive": Form(lambda x: x.cumsum(1) - x, (X,)),
    "cumsum exclusive by cat": Form(
        lambda x: torch.cat([torch.zeros_like(x.select(1, 0).unsqueeze(1)), x], 1)[:, :-1].cumsum(
            1
        ),
        (X,),
    ),
    "cumsum masked": Form(lambda x, m: (x * m).cumsum(1), (X, integers(2, 2, 3, 8).bool())),
    "cumsum in float64": Form(lambda x: x.cumsum(1, dtype=torch.float64), (X,)),
    "cumprod": Form(lambda x: x.cumprod(2), (X,)),
    "logcumsumexp": Form(lambda x: x.logcumsumexp(1), (X,)),
    "cummax": Form(lambda x: x.cummax(2), (X,)),
    "cummin": Form(lambda x: x.cummin(1), (X,)),
    "diff": Form(lambda x: x.diff(dim=1), (X,)),
    # ---- losses
    "cross_entropy": Form(lambda x, y: F.cross_entropy(x, y), ((5, 7), integers(7, 5))),
    "cross_entropy with weights": Form(
        lambda x, y, w: F.cross_entropy(x, y, w, label_smoothing=0.1),
        ((5, 7), integers(7, 5), positive(7)),
    ),
    "cross_entropy ignoring": Form(
        lambda x, y: F.cross_entropy(x, y, ignore_index=2), ((5, 7), integers(7, 5))
    ),
    "cross_entropy of images": Form(
        lambda x, y: F.cross_entropy(x, y, reduction="none"), ((2, 5, 3, 4), integers(5, 2, 3, 4))
    ),
    "cross_entropy of probabilities": Form(
        lambda x, y: F.cross_entropy(x, y.softmax(1)), ((5, 7), (5, 7))
    ),
    "nll": Form(
        lambda x, y: F.nll_loss(x.log_softmax(1), y, reduction="sum"), ((5, 7), integers(7, 5))
    ),
    "kl": Form(
        lambda x, y: F.kl_div(x.log_softmax(1), y.softmax(1), reduction="batchmean"),
        ((5, 7), (5, 7)),
    ),
    "kl of logs": Form(
        lambda x, y: F.kl_div(x.log_softmax(1), y.log_softmax(1), log_target=True, reduction="sum"),
        ((5, 7), (5, 7)),
    ),
    "huber": Form(lambda x, y: F.huber_loss(x, y, delta=0.7), ((5, 7), (5, 7))),
    "smooth_l1": Form(
        lambda x, y: F.smooth_l1_loss(x, y, beta=0.5, reduction="none"), ((5, 7), (5, 7))
    ),
    "smooth_l1 mean": Form(lambda x, y: F.smooth_l1_loss(x, y), ((5, 7), (5, 7))),
    "hinge": Form(lambda x, y: torch.mean(torch.clamp(1 - x * y.sign(), min=0)), ((5, 7), (5, 7))),
    "hinge embedding": Form(lambda x, y: F.hinge_embedding_loss(x, y.sign()), ((5, 7), (5, 7))),
    "multi margin": Form(lambda x, y: F.multi_margin_loss(x, y), ((5, 7), integers(7, 5))),
    "multilabel margin": Form(
        lambda x, y: F.multilabel_margin_loss(x, y),
        ((2, 4), torch.tensor([[3, 0, -1, 1], [1, -1, 0, 0]])),
    ),
    "margin ranking": Form(
        lambda x, y, z: F.margin_ranking_loss(x, y, z.sign()), ((5,), (5,), (5,))
    ),
    "triplet": Form(lambda a, p, n: F.triplet_margin_loss(a, p, n), ((5, 7), (5, 7), (5, 7))),
    "cosine embedding": Form(
        lambda x, y, z: F.cosine_embedding_loss(x, y, z.sign()), ((5, 7), (5, 7), (5,))
    ),
    "cosine similarity": Form(lambda x, y: F.cosine_similarity(x, y, dim=1), ((5, 7), (5, 7))),
    "mse": Form(lambda x, y: F.mse_loss(x, y), ((5, 7), (5, 7))),
    "l1": Form(lambda x, y: F.l1_loss(x, y, reduction="sum"), ((5, 7), (5, 7))),
    "bce": Form(lambda x, y: F.binary_cross_entropy(x.sigmoid(), y.sigmoid()), ((5, 7), (5, 7))),
    "bce with logits": Form(
        lambda x, y, w: F.binary_cross_entropy_with_logits(x, y.sigmoid(), pos_weight=w),
        ((5, 7), (5, 7), positive(7)),
    ),
    "poisson nll": Form(lambda x, y: F.poisson_nll_loss(x, y.abs()), ((5, 7), (5, 7))),
    "soft margin": Form(lambda x, y: F.soft_margin_loss(x, y.sign()), ((5, 7), (5, 7))),
    "pairwise distance": Form(lambda x, y: F.pairwise_distance(x, y), ((5, 7), (5, 7))),
    "cdist": Form(lambda x, y: torch.cdist(x, y), ((5, 7), (4, 7))),
    # ---- reductions
    "amax amin": Form(lambda x: (x.amax((0, 2)), x.amin(1, True)), (X,)),
    "aminmax": Form(lambda x: tuple(torch.aminmax(x, dim=1)), (X,)),
    "max and min": Form(lambda x: (*x.max(1), *x.min(2), x.max(), x.min()), (X,)),
    "argmax": Form(
        lambda x: (x.argmax(), x.argmax(1), x.argmin(2, keepdim=True), x.argmin()), (X,)
    ),
    "sum and mean": Form(lambda x: (x.sum(), x.sum((0, 2)), x.mean(1, True), x.mean()), (X,)),
    "prod": Form(lambda x: (x.prod(), x.prod(1)), (X,)),
    "std and var": Form(
        lambda x: (x.std(), x.std(1), x.var((0, 1), unbiased=False), x.var()), (X,)
    ),
    "norms": Form(
        lambda x: (
            x.norm(),
            x.norm(1, 1),
            x.norm(float("inf"), 2),
            torch.linalg.vector_norm(x, 3, (0, 1)),
        ),
        (X,),
    ),
    "frobenius": Form(lambda x: torch.norm(x, p="fro"), ((5, 7),)),
    "matrix norm": Form(lambda x: torch.linalg.matrix_norm(x), (X,)),
    "logsumexp": Form(lambda x: (x.logsumexp(1), x.logsumexp((0, 2))), (X,)),
    "any and all": Form(
        lambda x: (
            (x > 1).any(1),
            (x > -9).all(),
            (x > 0).all(2),
            (x > 9).any(),
            x.any(1),
            (x > 0).all(1, True),
        ),
        (X,),
    ),
    "count_nonzero": Form(
        lambda x: (torch.count_nonzero(x > 0), torch.count_nonzero(x > 0, 1)), (X,)
    ),
    "nansum": Form(lambda x: (torch.nansum(x), torch.nanmean(x, 1)), (X,)),
    "median": Form(lambda x: (*x.median(1), x.median()), (X,)),
    "quantile": Form(lambda x: torch.quantile(x, 0.3, dim=1), ((5, 7),)),
    "kthvalue": Form(lambda x: x.kthvalue(2, 1), ((5, 7),)),
    "mode": Form(lambda x: x.mode(1).values, (integers(3, 5, 7),)),
    "sort": Form(lambda x: (*x.sort(1), *x.sort(2, descending=True)), (X,)),
    "argsort": Form(lambda x: x.argsort(-1), (X,)),
    "topk": Form(lambda x: (*x.topk(2, 2), *x.topk(2, 1, largest=False)), (X,)),
    "histogram": Form(lambda x: torch.histc(x, 8, -2.0, 2.0), ((50,),)),
    "bincount": Form(lambda x: torch.bincount(x, minlength=5), (integers(5, 20),)),
    # ---- norms
    "batch_norm": Form(layer(nn.BatchNorm2d, 4), (IMG,)),
    "batch_norm training": Form(lambda x: F.batch_norm(x, None, None, training=True), (IMG,)),
    "batch_norm1d": Form(layer(nn.BatchNorm1d, 8), ((3, 8),)),
    "batch_norm3d": Form(layer(nn.BatchNorm3d, 4, affine=False), (VOL,)),
    "layer_norm": Form(layer(nn.LayerNorm, (3, 8)), (X,)),
    "layer_norm without bias": Form(layer(nn.LayerNorm, 8, bias=False), (X,)),
    "group_norm": Form(layer(nn.GroupNorm, 2, 4), (IMG,)),
    "group_norm without weights": Form(layer(nn.GroupNorm, 2, 4, affine=False), (IMG,)),
    "instance_norm1d": Form(layer(nn.InstanceNorm1d, 3), (X,)),
    "instance_norm2d": Form(layer(nn.InstanceNorm2d, 4, affine=True), (IMG,)),
    "instance_norm3d": Form(layer(nn.InstanceNorm3d, 4), (VOL,)),
    "instance_norm running": Form(
        layer(nn.InstanceNorm2d, 4, affine=True, track_running_stats=True), (IMG,)
    ),
    "rms_norm": Form(layer(nn.RMSNorm, 8), (X,)),
    "local_response_norm": Form(layer(nn.LocalResponseNorm, 3), (IMG,)),
    "normalize": Form(lambda x: (F.normalize(x, dim=1), F.normalize(x, p=1, dim=2)), (X,)),
    "weight_norm": Form(
        layer(lambda: nn.utils.parametrizations.weight_norm(nn.Linear(8, 4))), (X,)
    ),
    # ---- activations
    "activations": Form(
        lambda x: (
            F.relu(x),
            F.relu6(x),
            F.elu(x, 0.7),
            F.selu(x),
            F.celu(x, 1.3),
            F.gelu(x),
            F.gelu(x, approximate="tanh"),
            F.silu(x),
            F.mish(x),
            F.softplus(x, 2.0, 1.0),
            F.softsign(x),
            F.hardswish(x),
            F.hardsigmoid(x),
            F.hardtanh(x, -0.5, 0.7),
            F.leaky_relu(x, 0.2),
        ),
        (X,),
    ),
    "more activations": Form(
        lambda x: (
            F.logsigmoid(x),
            F.tanhshrink(x),
            F.hardshrink(x, 0.3),
            F.softshrink(x, 0.3),
            F.threshold(x, 0.1, 20.0),
            F.glu(x, 2),
            F.softmin(x, 1),
            F.softmax(x, 0),
            F.log_softmax(x, 2),
            F.rrelu(x),
            torch.sigmoid(x),
            torch.tanh(x),
        ),
        (X,),
    ),
    "prelu": Form(layer(nn.PReLU, 3), (X,)),
    # ---- attention
    "sdpa": Form(F.scaled_dot_product_attention, ((1, 2, 5, 4),) * 3),
    "sdpa causal": Form(
        lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=True), ((1, 2, 5, 4),) * 3
    ),
    "sdpa with a mask": Form(
        lambda q, k, v, m: F.scaled_dot_product_attention(q, k, v, m > 0),
        (*(((1, 2, 5, 4),) * 3), torch.ones(5, 5).tril()),
    ),
    "sdpa with a bias": Form(
        lambda q, k, v, m: F.scaled_dot_product_attention(q, k, v, m, scale=0.3),
        (*(((1, 2, 5, 4),) * 3), (1, 1, 5, 5)),
    ),
    "sdpa grouped": Form(
        lambda q, k, v: F.scaled_dot_product_attention(q, k, v, enable_gqa=True),
        ((1, 4, 5, 4), (1, 2, 5, 4), (1, 2, 5, 4)),
    ),
    "sdpa cross 3d": Form(F.scaled_dot_product_attention, ((2, 5, 4), (2, 7, 4), (2, 7, 6))),
    "multihead": Form(taken(lambda m, x: m(x, x, x)[0], nn.MultiheadAttention, 8, 2), (X,)),
    "multihead with weights": Form(
        taken(lambda m, x: m(x, x, x), nn.MultiheadAttention, 8, 2, batch_first=True), (X,)
    ),
    "transformer encoder": Form(
        layer(nn.TransformerEncoderLayer, 8, 2, 16, batch_first=True), (X,)
    ),
    "transformer decoder": Form(
        taken(lambda m, x, y: m(x, y), nn.TransformerDecoderLayer, 8, 2, 16), (X, X)
    ),
    # ---- products
    "einsum": Form(lambda x, y: torch.einsum("bij,bjk->bik", x, y), ((2, 3, 4), (2, 4, 5))),
    "einsum of four letters": Form(
        lambda x, y: torch.einsum("bhqd,bhkd->bhqk", x, y), ((1, 2, 3, 4), (1, 2, 5, 4))
    ),
    "einsum outer": Form(lambda x, y: torch.einsum("i,j->ij", x, y), ((3,), (4,))),
    "einsum diagonal": Form(lambda x: torch.einsum("bii->bi", x), ((2, 4, 4),)),
    "einsum trace": Form(lambda x: torch.einsum("ii", x), ((4, 4),)),
    "einsum of three": Form(
        lambda x, y, z: torch.einsum("ab,bc,cd->ad", x, y, z), ((3, 4), (4, 5), (5, 2))
    ),
    "einsum with an ellipsis": Form(
        lambda x, y: torch.einsum("...ij,...kj->...ik", x, y), ((2, 3, 4), (2, 5, 4))
    ),
    "einsum 4d by 2d": Form(
        lambda x, y: torch.einsum("bijl,lk->bijk", x, y), ((2, 3, 4, 5), (5, 6))
    ),
    "matmuls": Form(
        lambda x, y, v: (x @ y, x @ v, v.dot(v), torch.outer(v, v)), ((3, 4), (4, 5), (4,))
    ),
    "batched matmuls": Form(
        lambda x, y: (
            x @ y,
            torch.bmm(x, y),
            torch.baddbmm(torch.ones(2, 3, 5), x, y, beta=0.5, alpha=2),
        ),
        ((2, 3, 4), (2, 4, 5)),
    ),
    "addmm": Form(
        lambda b, x, y, v: (
            torch.addmm(b, x, y, beta=0.5, alpha=2),
            torch.addmv(b[:, 0], x, v),
            torch.addr(torch.ones(4, 4), v, v),
        ),
        ((3, 5), (3, 4), (4, 5), (4,)),
    ),
    "broadcast matmul": Form(lambda x, y: x @ y, ((2, 1, 3, 4), (5, 4, 6))),
    "vector matmul": Form(lambda v, x: (v @ x, x.transpose(1, 2) @ v), ((4,), (2, 4, 5))),
    "tensordot": Form(
        lambda x, y: torch.tensordot(x, y, dims=([2, 1], [0, 1])), ((2, 3, 4), (4, 3, 5))
    ),
    "kron": Form(torch.kron, ((2, 3), (4, 2))),
    "cross": Form(lambda x, y: torch.linalg.cross(x, y), ((5, 3), (5, 3))),
    "bilinear": Form(taken(lambda m, x, y: m(x, y), nn.Bilinear, 4, 5, 3), ((2, 4), (2, 5))),
    "matrix power": Form(lambda x: torch.matrix_power(x, 3), ((4, 4),)),
    "diag": Form(
        lambda x, v: (
            torch.diag(v),
            torch.diag(x),
            torch.diag_embed(x),
            x.diagonal(1),
            torch.trace(x),
            torch.diag(v) @ x,
        ),
        ((4, 4), (4,)),
    ),
    # ---- masks and movement
    "tril and triu": Form(lambda x: (x.tril(), x.triu(1), x.tril(-1)), (X,)),
    "causal mask": Form(
        lambda x: x.masked_fill(torch.ones(8, 8).triu(1).bool()[:3], float("-inf")).softmax(-1),
        (X,),
    ),
    "tril_indices": Form(
        lambda x: x[torch.tril_indices(3, 3)[0], torch.tril_indices(3, 3)[1]], ((3, 3),)
    ),
    "index rows": Form(lambda x, i: x[i], ((5, 7), integers(5, 3))),
    "index a column": Form(lambda x, i: x[:, i], ((5, 7), integers(7, 3))),
    "index by two": Form(lambda x, i, j: x[i, j], ((5, 7), integers(5, 3), integers(7, 3))),
    "index the middle": Form(_chunked_index, ((2, 5, 7), integers(5, 3), integers(7, 3))),
    "index apart": Form(lambda x, i, j: x[i, :, j], ((5, 3, 7), integers(5, 3), integers(7, 3))),
    "index broadcast": Form(
        lambda x, i, j: x[i[:, None], j], ((5, 7), integers(5, 3), integers(7, 2))
    ),
    "index by constants": Form(
        lambda x: (x[..., [0, 2]], x[:, None], x[::2], x[1], x[-1, ..., 1:3]), (X,)
    ),
    "index negative": Form(lambda x, i: x[-1 - i], ((5, 7), integers(5, 3))),
    "index_select": Form(lambda x, i: torch.index_select(x, 1, i), (X, integers(3, 5))),
    "gather": Form(lambda x, i: torch.gather(x, 1, i), ((5, 7), integers(7, 5, 3))),
    "gather small": Form(lambda x, i: torch.gather(x, 0, i), ((5, 7), integers(5, 2, 3))),
    "take_along_dim": Form(lambda x: torch.take_along_dim(x, x.argmax(1, True), 1), (X,)),
    "take": Form(lambda x, i: torch.take(x, i), ((5, 7), integers(35, 4))),
    "scatter": Form(lambda x, i, y: x.scatter(1, i, y), ((5, 7), integers(7, 5, 1), (5, 1))),
    "scatter a number": Form(lambda i: torch.zeros(5, 7).scatter(1, i, 1.0), (integers(7, 5, 1),)),
    "scatter_add": Form(
        lambda x, i, y: x.scatter_add(0, i, y), ((5, 7), integers(5, 3, 7), (3, 7))
    ),
    "scatter_reduce": Form(
        lambda x, i, y: (
            x.scatter_reduce(0, i, y, "amax"),
            x.scatter_reduce(0, i, y, "prod"),
            x.scatter_reduce(0, i, y, "sum"),
        ),
        ((5, 7), integers(5, 3, 7), (3, 7)),
    ),
    "scatter_reduce mean": Form(
        lambda x, i, y: (
            x.scatter_reduce(0, i, y, "mean"),
            x.scatter_reduce(0, i, y, "mean", include_self=False),
            x.scatter_reduce(0, i, y, "amin", include_self=False),
        ),
        ((5, 7), integers(5, 3, 7), (3, 7)),
    ),
    "index_add": Form(
        lambda x, i, y: x.index_add(0, i, y, alpha=2), ((5, 7), integers(5, 3), (3, 7))
    ),
    "index_copy": Form(lambda x, y: x.index_copy(0, torch.tensor([3, 1]), y), ((5, 7), (2, 7))),
    "index_fill": Form(lambda x, i: x.index_fill(1, i, 2.0), ((5, 7), integers(7, 2))),
    "index_put": Form(lambda x, i, y: x.index_put((i,), y), ((5, 7), torch.tensor([0, 3]), (2, 7))),
    "index_put adding": Form(
        lambda x, i, y: x.index_put((i,), y, accumulate=True), ((5, 7), integers(5, 3), (3, 7))
    ),
    "index_put middle": Form(
        lambda x, i, y: (z := x.clone(), z.__setitem__((slice(None), i), y))[0],
        ((5, 7), torch.tensor([0, 3]), (5, 2)),
    ),
    "assign a slice": Form(
        lambda x, y: (z := x.clone(), z.__setitem__((slice(None), 1), y))[0], ((5, 7), (5,))
    ),
    "assign a range": Form(
        lambda x: (z := x.clone(), z.__setitem__((slice(1, 4), slice(None, None, 2)), 0.5))[0],
        ((5, 7),),
    ),
    "assign by a mask": Form(lambda x: (z := x.clone(), z.__setitem__(z < 0, 0.0))[0], ((5, 7),)),
    "masked_fill": Form(
        lambda x, m: (x.masked_fill(m, -1.0), x.masked_fill(m, torch.tensor(2.0))),
        ((5, 7), integers(2, 5, 7).bool()),
    ),
    "where": Form(
        lambda x, y: (
            torch.where(x > 0, x, y),
            torch.where(x > 0, x, 0.0),
            torch.where(x > 0, 1, 0),
        ),
        ((5, 7), (5, 7)),
    ),
    "roll": Form(lambda x: (x.roll(2, 1), x.roll((1, -2), (0, 2)), x.roll(3)), (X,)),
    "flip and rot": Form(lambda x: (x.flip((0, 2)), torch.rot90(x, 1, (1, 2)), x.fliplr()), (X,)),
    "unfold": Form(lambda x: F.unfold(x, 3, padding=1, stride=2, dilation=2), (IMG,)),
    "fold": Form(lambda x: F.fold(x, (6, 7), 3, padding=1), ((1, 18, 42),)),
    "fold strided": Form(lambda x: F.fold(x, (8, 8), 2, stride=2), ((2, 12, 16),)),
    "tensor unfold": Form(lambda x: x.unfold(2, 3, 2), (X,)),
    "pixel_shuffle": Form(lambda x: F.pixel_shuffle(x, 2), (IMG,)),
    "pixel_unshuffle": Form(lambda x: F.pixel_unshuffle(x, 2), ((1, 4, 8, 6),)),
    "channel_shuffle": Form(lambda x: F.channel_shuffle(x, 2), (IMG,)),
    "pad": Form(
        lambda x: (
            F.pad(x, (1, 2)),
            F.pad(x, (1, 2, 0, 1), value=3.0),
            F.pad(x, (-1, 2)),
            F.pad(x, (2, 1), "reflect"),
            F.pad(x, (2, 1), "replicate"),
            F.pad(x, (2, 1), "circular"),
        ),
        (X,),
    ),
    "pad 2d": Form(
        lambda x: (
            F.pad(x, (1, 2, 3, 1), "reflect"),
            F.pad(x, (1, 2, 3, 1), "replicate"),
            F.pad(x, (1, 2, 3, 1), "circular"),
        ),
        (IMG,),
    ),
    "pad 3d": Form(
        lambda x: (
            F.pad(x, (1, 2, 2, 1, 1, 1), "reflect"),
            F.pad(x, (1, 2, 2, 1, 1, 1), "replicate"),
        ),
        (VOL,),
    ),
    "shapes": Form(
        lambda x: (
            x.view(-1),
            x.reshape(3, -1),
            x.flatten(1),
            x.unflatten(2, (2, 4)),
            x.permute(2, 0, 1),
            x.transpose(0, 2),
            x.movedim(0, 2),
            x.unsqueeze(1).squeeze(1),
            x[:1].expand(4, 3, 8),
            x.repeat(2, 1, 1),
            x.tile(2),
            x.repeat_interleave(2, 1),
            x.swapaxes(0, 1),
            x.ravel(),
            x.mT,
        ),
        (X,),
    ),
    "joins": Form(
        lambda x, y: (
            torch.cat([x, y], 1),
            torch.stack([x, y], 2),
            torch.hstack([x, y]),
            torch.vstack([x, y]),
            torch.dstack([x, y]),
        ),
        (X, X),
    ),
    "splits": Form(
        lambda x: (
            *x.split(3, 2),
            *x.chunk(3, 2),
            *x.unbind(0),
            *torch.tensor_split(x, 3, 2),
            *x.split([1, 7], 2),
        ),
        (X,),
    ),
    "strided": Form(lambda x: (x.as_strided((2, 3), (1, 2)), x.contiguous()[..., ::3]), (X,)),
    "meshgrid": Form(lambda x, y: torch.meshgrid(x, y, indexing="ij"), ((3,), (4,))),
    "cartesian": Form(lambda x, y: torch.cartesian_prod(x, y), ((3,), (4,))),
    "vander": Form(lambda x: torch.vander(x, 3), ((4,),)),
    "searchsorted": Form(lambda x: torch.searchsorted(torch.arange(5.0), x), ((6,),)),
    "bucketize": Form(lambda x: torch.bucketize(x, torch.arange(5.0)), ((6,),)),
    "one_hot": Form(lambda x: F.one_hot(x, 6), (integers(6, 4),)),
    "unique sizes": Form(lambda x: torch.nonzero_static(x > 0, size=4), ((6,),)),
    # ---- interpolation
    "nearest1d": Form(lambda x: F.interpolate(x, scale_factor=2), (X,)),
    "nearest2d": Form(lambda x: F.interpolate(x, size=(13, 7)), (IMG,)),
    "nearest2d by 1.5": Form(lambda x: F.interpolate(x, scale_factor=1.5), (IMG,)),
    "nearest3d": Form(lambda x: F.interpolate(x, scale_factor=2), (VOL,)),
    "nearest-exact": Form(lambda x: F.interpolate(x, size=(13, 7), mode="nearest-exact"), (IMG,)),
    "linear": Form(lambda x: F.interpolate(x, scale_factor=2, mode="linear"), (X,)),
    "linear aligned": Form(
        lambda x: F.interpolate(x, size=13, mode="linear", align_corners=True), (X,)
    ),
    "bilinear2d": Form(lambda x: F.interpolate(x, scale_factor=2, mode="bilinear"), (IMG,)),
    "bilinear aligned": Form(
        lambda x: F.interpolate(x, size=(5, 17), mode="bilinear", align_corners=True), (IMG,)
    ),
    "bilinear antialiased": Form(
        lambda x: F.interpolate(x, size=(5, 5), mode="bilinear", antialias=True), (IMG,)
    ),
    "bicubic": Form(lambda x: F.interpolate(x, scale_factor=2, mode="bicubic"), (IMG,)),
    "bicubic aligned": Form(
        lambda x: F.interpolate(x, size=(5, 17), mode="bicubic", align_corners=True), (IMG,)
    ),
    "bicubic antialiased": Form(
        lambda x: F.interpolate(x, size=(5, 5), mode="bicubic", antialias=True), (IMG,)
    ),
    "trilinear": Form(lambda x: F.interpolate(x, scale_factor=2, mode="trilinear"), (VOL,)),
    "trilinear aligned": Form(
        lambda x: F.interpolate(x, size=(3, 9, 8), mode="trilinear", align_corners=True), (VOL,)
    ),
    "area": Form(lambda x: F.interpolate(x, size=(4, 5), mode="area"), (IMG,)),
    "upsample layer": Form(
        layer(nn.Upsample, scale_factor=2, mode="bilinear", align_corners=True), (IMG,)
    ),
    "grid_sample": Form(
        lambda x, g: (
            F.grid_sample(x, g.tanh(), align_corners=False),
            F.grid_sample(x, g, mode="nearest", padding_mode="border", align_corners=True),
        ),
        (IMG, (1, 5, 6, 2)),
    ),
    "grid_sample bicubic": Form(
        lambda x, g: F.grid_sample(
            x, g.tanh(), mode="bicubic", padding_mode="reflection", align_corners=False
        ),
        (IMG, (1, 5, 6, 2)),
    ),
    "grid_sample 3d": Form(
        lambda x, g: F.grid_sample(x, g.tanh(), align_corners=False), (VOL, (1, 2, 3, 4, 3))
    ),
    "affine_grid": Form(
        lambda t: F.affine_grid(t, [2, 3, 5, 6], align_corners=False), ((2, 2, 3),)
    ),
    # ---- modules with state, types, embeddings
    "mutated buffer": Form(Counter, ((3, 4),)),
    "fp16 conv": Form(half(f16, nn.Conv2d, 4, 6, 3), (rand(*IMG, dtype=f16),), 2e-2),
    "fp16 linear": Form(half(f16, nn.Linear, 8, 4), (rand(*X, dtype=f16),), 2e-2),
    "fp16 norm": Form(half(f16, nn.LayerNorm, 8), (rand(*X, dtype=f16),), 2e-2),
    "fp16 batch norm": Form(
        half(f16, lambda: nn.Sequential(nn.Conv2d(4, 6, 3), nn.BatchNorm2d(6), nn.ReLU())),
        (rand(*IMG, dtype=f16),),
        2e-2,
    ),
    "fp16 lstm": Form(half(f16, nn.LSTM, 8, 5), (rand(*X, dtype=f16),), 2e-2),
    "fp16 attention": Form(
        F.scaled_dot_product_attention, (rand(1, 2, 5, 4, dtype=f16),) * 3, 2e-2
    ),
    "bf16 inside": Form(
        half(bf16, lambda: Takes(nn.Linear(8, 4), lambda m, x: m(x.to(bf16)).float())), (X,), 5e-2
    ),
    "bf16 conv inside": Form(
        half(bf16, lambda: Takes(nn.Conv2d(4, 6, 3), lambda m, x: m(x.to(bf16)).float())),
        (IMG,),
        5e-2,
    ),
    "bf16 norm inside": Form(
        half(bf16, lambda: Takes(nn.LayerNorm(8), lambda m, x: m(x.to(bf16)).float())), (X,), 5e-2
    ),
    "fp16 transposed conv": Form(
        half(f16, nn.ConvTranspose2d, 4, 6, 3), (rand(*IMG, dtype=f16),), 2e-2
    ),
    "float64": Form(lambda x: (x.double() @ x.double().transpose(1, 2)).softmax(-1), (X,)),
    "mixed types": Form(
        lambda x, i: (x + i, x * (i > 1), i / 2, i // 2, i % 2, i.float().mean(), i + 0.5),
        (X, integers(5, 8)),
    ),
    "embedding": Form(layer(nn.Embedding, 10, 4, padding_idx=0), (integers(10, 2, 3),)),
    "embedding bag": Form(layer(nn.EmbeddingBag, 10, 4, mode="sum"), (integers(10, 2, 3),)),
    "embedding bag mean": Form(layer(nn.EmbeddingBag, 10, 4), (integers(10, 2, 3),)),
    "embedding bag max": Form(layer(nn.EmbeddingBag, 10, 4, mode="max"), (integers(10, 2, 3),)),
    "complex": Form(
        lambda x: torch.view_as_real(torch.view_as_complex(x) * torch.view_as_complex(x.flip(0))),
        ((4, 2),),
    ),
    "rotary by complex": Form(
        lambda x: torch.view_as_real(
            torch.view_as_complex(x.view(2, 3, 4, 2))
            * torch.polar(torch.ones(3, 4), torch.arange(12.0).view(3, 4))
        ).flatten(2),
        (X,),
    ),
    "fft": Form(lambda x: torch.fft.rfft(x).abs(), (X,)),
    "ifft": Form(lambda x: torch.fft.irfft(torch.fft.rfft(x) * 2), (X,)),
    # ---- element-wise
    "elementwise": Form(
        lambda x: (
            x.abs().sqrt(),
            x.abs().rsqrt(),
            x.exp(),
            x.expm1(),
            x.abs().log(),
            x.abs().log1p(),
            x.abs().log2(),
            x.abs().log10(),
            x.exp2(),
            x.sin(),
            x.cos(),
            x.tan(),
            x.sinh(),
            x.cosh(),
            x.tanh(),
            x.asinh(),
            x.atan(),
            x.erf(),
        ),
        (X,),
    ),
    "more elementwise": Form(
        lambda x: (
            x.round(),
            x.floor(),
            x.ceil(),
            x.trunc(),
            x.frac(),
            x.sign(),
            x.sgn(),
            x.neg(),
            x.reciprocal(),
            x.square(),
            x.pow(3),
            x.abs().pow(0.3),
            2**x,
            x.clamp(-0.5, 0.5),
            x.clamp(min=0.1),
            x.clip(max=0.1),
            x.sigmoid(),
            x.logit(0.1),
            x.nan_to_num(),
            x.lerp(x * 2, 0.3),
            x.addcmul(x, x, value=0.5),
            x.addcdiv(x, x.abs() + 1),
            x.deg2rad(),
            x.tanh().acos(),
            x.tanh().asin(),
            x.tanh().atanh(),
            (x.abs() + 1).acosh(),
        ),
        (X,),
    ),
    "special": Form(
        lambda x: (
            torch.special.expit(x),
            torch.sinc(x),
            torch.special.xlog1py(x, x.abs()),
            torch.xlogy(x, x.abs()),
            torch.special.entr(x.abs()),
            torch.special.ndtr(x),
        ),
        (X,),
    ),
    "pairs": Form(
        lambda x, y: (
            x.atan2(y),
            x.fmod(y),
            x.remainder(y),
            torch.hypot(x, y),
            x.maximum(y),
            x.minimum(y),
            torch.fmax(x, y),
            x.logaddexp(y),
            torch.logaddexp2(x, y),
            torch.copysign(x, y),
            torch.floor_divide(x, y),
            torch.div(x, y, rounding_mode="trunc"),
            x.heaviside(y),
            torch.true_divide(x, y),
            x.dist(y),
            torch.ldexp(x, y.round()),
            torch.rsub(x, y, alpha=2),
        ),
        (X, X),
    ),
    "comparisons": Form(
        lambda x, y: (
            x > y,
            x >= y,
            x == y,
            x != y,
            (x > 0) & (y > 0),
            (x > 0) | (y > 0),
            (x > 0) ^ (y > 0),
            ~(x > 0),
            torch.isclose(x, y),
            x.isnan(),
            x.isfinite(),
            x.signbit(),
            torch.logical_not(x),
        ),
        (X, X),
    ),
    "bits": Form(
        lambda x, y: (x & y, x | y, x ^ y, ~x, x << 1, x >> 1, x.bitwise_left_shift(y % 3)),
        (integers(99, 6), integers(99, 6)),
    ),
    "integers": Form(
        lambda x, y: (
            x // (y + 1),
            x % (y + 1),
            x.float() / 3,
            -x,
            x.abs(),
            x.sum(),
            x.max(),
            x.pow(2),
            x.clamp(2, 9),
        ),
        (integers(99, 6), integers(99, 6)),
    ),
    "creation": Form(
        lambda x: (
            torch.arange(5) + 0 * x.sum().long(),
            torch.linspace(0, 1, 7) + x.sum(),
            torch.full_like(x, 3),
            torch.ones_like(x),
            torch.eye(4) + x.sum(),
            x.new_zeros(3),
            x.new_full((2,), 4.0),
            torch.zeros(2, 3) + x.mean(),
            torch.hann_window(6) * x.sum(),
            torch.logspace(0, 1, 4) * x.sum(),
        ),
        (X,),
    ),
    "positional table": Form(
        lambda x: x + torch.sin(torch.arange(3)[:, None] / 10000 ** (torch.arange(8) / 8)), (X,)
    ),
    # ---- outputs and arguments
    "dict output": Form(lambda x: {"a": x + 1, "b": (x * 2, x - 1)}, (X,)),
    "many args": Form(lambda *xs: sum(xs), (X, X, X)),
    "input returned": Form(lambda x: (x, x + 1), (X,)),
    "constant returned": Form(lambda x: (torch.ones(3), x + 1), (X,)),
    "scalar tensors": Form(lambda x: (x.sum() * 2, x.shape[0] * x), (X,)),
    "dropout": Form(
        layer(lambda: nn.Sequential(nn.Dropout(), nn.Dropout2d(), nn.AlphaDropout())), (IMG,)
    ),
    "inplace": Form(lambda x: x.clone().add_(1).mul_(2).relu_().clamp_(max=1.0), (X,)),
    "no_grad": Form(lambda x: torch.no_grad()(lambda y: y * 2)(x), (X,)),
    "linalg": Form(
        lambda x: (torch.linalg.inv(x), torch.linalg.det(x), torch.linalg.solve(x, x[:, 0])),
        ((4, 4),),
    ),
    "cholesky": Form(lambda x: torch.linalg.cholesky(x @ x.mT + torch.eye(4)), ((4, 4),)),
    "segment sums": Form(
        lambda x: (
            lambda c: (
                (c[..., :, None] - c[..., None, :])
                .masked_fill(~torch.ones(8, 8).tril().bool(), float("-inf"))
                .exp()
            )
        )(x.cumsum(-1)),
        (X,),
    ),
    "mixture of experts": Form(
        lambda x, g, w: torch.einsum(
            "te,teo->to",
            torch.zeros(6, 4).scatter(1, (s := (x @ g).softmax(-1).topk(2, -1)).indices, s.values),
            torch.einsum("ti,eio->teo", x, w),
        ),
        ((6, 5), (5, 4), (4, 5, 3)),
    ),
}

IN_TORCH = frozenset(
    (
        "lstm with a projection", "fractional_max_pool2d", "multilabel margin", "mode", "histogram",
        "bincount", "unique sizes", "grid_sample 3d", "embedding bag", "embedding bag mean",
        "embedding bag max", "complex", "rotary by complex", "fft", "ifft", "linalg", "cholesky",
    )
)  # fmt: skip
"""Forms with operators that run in PyTorch."""
