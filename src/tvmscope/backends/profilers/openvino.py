"""Node times of OpenVINO, by its performance counters, in a second compiled model."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tvmscope.backends.api import Span, Trace
from tvmscope.backends.profilers.openvino_host import HostCost
from tvmscope.compiler.describe.onnx_nodes import SourceGraph
from tvmscope.messages import msg

_MOVES = {"Reorder", "Transpose", "Convert"}
Counters = dict[tuple[str, str], float]
"""Seconds by a node's name and type."""


class OpenVinoProfiler:
    """The counters hold means over all runs so far, in whole microseconds, and no clock.

    So host time is calibrated, on other models: see `_openvino_host`. What its calls took beyond
    counters and host time stays unexplained.
    """

    how = msg("OpenVINO's performance counters, host time on empty models")

    def __init__(
        self, model: Any, request: Any, folder: Path, calibrate: Callable[[], HostCost]
    ) -> None:
        self._request, self._calibrate = request, calibrate
        self._source = SourceGraph(folder)
        self._computed: dict[str, tuple[str, ...]] = {}
        for op in reversed(model.get_runtime_model().get_ordered_ops()):
            self._computed[op.get_friendly_name()] = self._own(op) or self._next(op)
        self._runs = 0
        self._first: Counters = {}

    def run(self) -> float:
        """Run once; the counters of the first run, which is slow, are kept separate."""
        start = time.perf_counter()
        self._request.infer()
        seconds = time.perf_counter() - start
        self._runs += 1
        if self._runs == 1:
            self._first = self._read()
        return seconds

    def traces(self) -> list[Trace]:
        """Return the mean over all runs but the first."""
        counted = without_first(self._read(), self._first, self._runs)
        spans = tuple(
            Span(f"{kind} {name}", self._computed.get(name, ()), seconds, _kind(kind))
            for (name, kind), seconds in counted.items()
        )
        return [Trace(spans, self._host_s(len(counted)))]

    def _host_s(self, nodes: int) -> float | None:
        """Return the host time; None if the empty models cannot have a tensor like the model's."""
        try:
            return self._calibrate().of(nodes)
        except RuntimeError:  # OpenVINO raises only this type
            return None

    def _read(self) -> Counters:
        return {
            (info.node_name, info.node_type): info.real_time.total_seconds()
            for info in self._request.get_profiling_info()
            if str(info.status).endswith("EXECUTED")
        }

    def _own(self, op: Any) -> tuple[str, ...]:
        """Return the source operators from which OpenVINO says it made the node."""
        originals = str(op.get_rt_info()["originalLayersNames"].astype(str)).split(",")
        nodes = [self._source.find(text) for text in originals if text]
        return self._source.operators_of(node for node in nodes if node is not None)

    def _next(self, op: Any) -> tuple[str, ...]:
        """Return the operators of the node's readers: a fused layer norm has the name of its last
        part."""
        readers = [i.get_node() for port in op.outputs() for i in port.get_target_inputs()]
        found = (self._computed.get(reader.get_friendly_name(), ()) for reader in readers)
        return next((ops for ops in found if ops), ())


def without_first(mean: Counters, first: Counters, runs: int) -> Counters:
    """Return the mean over runs 2 to n, from that over all n and the first run."""
    if runs < 2:
        return mean
    return {
        key: max(0.0, (seconds * runs - first.get(key, 0.0)) / (runs - 1))
        for key, seconds in mean.items()
    }


def _kind(node_type: str) -> str:
    return "layout" if node_type in _MOVES else "compute"
