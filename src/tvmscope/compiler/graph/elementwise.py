"""Operators that compute each element from the elements in its place."""

from __future__ import annotations

UNARY = (
    "nn.relu", "nn.relu6", "nn.gelu", "nn.gelu_tanh", "nn.silu", "nn.leakyrelu", "sigmoid",
    "tanh", "exp", "log", "sqrt", "rsqrt", "negative", "abs", "erf", "clip", "astype", "square",
    "floor", "ceil", "round", "nn.dropout",
)  # fmt: skip
BINARY = ("add", "subtract", "multiply", "divide", "maximum", "minimum", "power")
