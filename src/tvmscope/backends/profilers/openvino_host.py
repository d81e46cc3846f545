"""Measures the cost of an OpenVINO call outside its nodes, on models that hardly compute.

OpenVINO's counters report the times of nodes, but not the time between them. A frame has the
model's inputs and outputs and almost no work, so its whole call is host time (for outputs of
megabytes, including one write of them). A chain is a frame with tiny nodes: the time that each adds
to the call is the cost of starting a node. Both take turns with the model itself, so that caches
and threads are in the same state. The model's own times are not used, so a remainder is possible:
about a microsecond per node of it is the fractions that the counters drop.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

import numpy as np

LINKS = 64
"""Tiny nodes of a chain."""
_ROW = 8
_BUDGET_S, _LEAST, _MOST = 1.0, 3, 20
"""Seconds and turns of a calibration."""


@dataclass(frozen=True)
class HostCost:
    """Host time of a call, and of each node in it."""

    call_s: float
    node_s: float

    def of(self, nodes: int) -> float:
        """Return the host time of a model that runs this many nodes."""
        return self.call_s + self.node_s * nodes


def calibrate(compile_model: Callable[[Any], Any], model: Any, request: Any) -> HostCost:
    """Measure the host cost now, for calls with the request's tensors and the model's settings.

    The request must have run once: outputs may get their shapes only then.
    """
    inputs = [request.get_input_tensor(i) for i in range(len(model.inputs))]
    outputs = [request.get_output_tensor(i) for i in range(len(model.outputs))]
    calls = []
    for links in (0, LINKS):
        empty = compile_model(frame(inputs, outputs, links)).create_infer_request()
        for index, tensor in enumerate(inputs):
            empty.set_input_tensor(index, tensor)
        for _ in range(2):  # the first call initialises the model
            empty.infer()
        calls.append(empty.infer)
    return in_turns(request.infer, *calls)


def in_turns(
    run_model: Callable[[], Any], call_frame: Callable[[], Any], call_chain: Callable[[], Any]
) -> HostCost:
    """Measure both calls in turns; the median of the frames and the shortest of the chains count.

    A call wakes threads, whose cost varies. Starting a node takes a constant time unless another
    process interrupts it, which takes longer than the whole chain.
    """
    frames: list[float] = []
    chains: list[float] = []
    deadline = time.perf_counter() + _BUDGET_S
    while len(frames) < _LEAST or (len(frames) < _MOST and time.perf_counter() < deadline):
        for call, times in ((call_frame, frames), (call_chain, chains)):
            run_model()
            start = time.perf_counter()
            call()
            times.append(time.perf_counter() - start)
    return HostCost(median(frames), max(0.0, min(chains) - min(frames)) / LINKS)


def frame(inputs: Sequence[Any], outputs: Sequence[Any], links: int) -> Any:
    """Build a model that reads one element of each input, passes it on and fills the outputs."""
    import openvino as ov
    from openvino import opset13 as op

    given = [op.parameter(list(t.shape), t.element_type) for t in inputs]
    seed = op.constant(np.float32(0))
    for tensor, parameter in zip(inputs, given, strict=True):
        if tensor.size:
            flat = op.reshape(parameter, np.array([-1]), False)
            seed = op.add(seed, op.convert(op.gather(flat, np.array(0), np.array(0)), "f32"))
    if links:
        row = op.add(seed, op.constant(np.linspace(0, 1, _ROW, dtype=np.float32)[None]))
        for _ in range(links):  # the plug-in fuses elementwise nodes, but not these
            row = op.softmax(row, 1)
        flat = op.reshape(row, np.array([-1]), False)
        seed = op.gather(flat, np.array(0), np.array(0))
    made = [
        op.convert(op.add(op.constant(np.ones(list(t.shape), np.float32)), seed), t.element_type)
        for t in outputs
    ]
    return ov.Model(made, given)
