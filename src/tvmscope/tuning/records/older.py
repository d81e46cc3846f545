"""Reads lines of earlier versions."""

from __future__ import annotations

import re
from typing import Any

FIRST_VERSIONED = 3
"""Records of schema 1 have one number for all schedule rules (`rules`). When each rule got its own
version, that number was 3 and every rule began with version 1."""
_CONV = re.compile(
    r"conv2d \S+ (?P<outputs>\d+)x\d+x(?P<kernel>\d+x\d+) stride (?P<stride>\S+) padding \S+ "
    r"dilation (?P<dilation>\S+) groups (?P<groups>\d+) (?P<dtype>\S+) (?P<form>\w+)"
)


def from_first(data: dict[str, Any]) -> dict[str, Any]:
    """Convert a line of schema 1: the version of all rules becomes that of its own rule."""
    candidate = data.get("candidate") or {}
    generation = data.get("rules", FIRST_VERSIONED)
    rule = None
    if candidate.get("trace") is None:
        rule = rule_of(str(data.get("workload")), candidate.get("params") or {})
    version = 1 if generation == FIRST_VERSIONED else 0
    kept = {name: value for name, value in data.items() if name != "rules"}
    return {**kept, "rule": rule, "rule_version": None if rule is None else version}


def rule_of(workload: str, params: dict[str, Any]) -> str | None:
    """Return the rule of a record of schema 1; None if no rule had parameters for it."""
    if workload.startswith("matmul "):
        return "matmul"
    found = _CONV.fullmatch(workload)
    if found is None:
        return "conv2d" if workload.startswith("conv2d ") else None
    if found["groups"] != "1":
        return "depthwise" if found["groups"] == found["outputs"] else "conv2d"
    if str(params.get("kernel", "")).startswith("winograd"):
        return "winograd"
    plain = (found["kernel"], found["stride"], found["dilation"]) == ("3x3", "1x1", "1x1")
    possible = plain and (found["dtype"], found["form"]) == ("float32->float32", "blocks")
    if not possible or "kernel" in params or "finish" in params or params.get("order") == "rows":
        return "conv2d"
    return "winograd"  # the compiler's default for such a convolution
