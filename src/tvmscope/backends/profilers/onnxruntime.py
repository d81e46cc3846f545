"""Node times of ONNX Runtime, by its own profiler, in a second session on the same model."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from tvmscope.backends.api import Span, Trace, idle_s
from tvmscope.compiler.describe.onnx_nodes import SourceGraph, match
from tvmscope.errors import RunError
from tvmscope.messages import msg

_TICK_US = 1.0
"""The profile's clock counts whole microseconds."""
_SUFFIX = "_kernel_time"
_MOVES = {"Transpose", "Cast", "Identity", "ReorderInput", "ReorderOutput"}


class OrtProfiler:
    """Keeps the graph that ONNX Runtime really runs, to find out what each of its nodes
    computes."""

    how = msg("ONNX Runtime's profiler")

    def __init__(self, folder: Path, options: Any, provider: str, feed: dict[str, Any]) -> None:
        import onnxruntime as ort

        self._folder, self._feed = folder, feed
        self._calls: list[tuple[int, int]] = []
        self._scratch = TemporaryDirectory(prefix="tvmscope-")
        place = Path(self._scratch.name)
        self._optimised = place / "optimised.onnx"
        options.enable_profiling = True
        options.profile_file_prefix = str(place / "profile")
        options.optimized_model_filepath = str(self._optimised)
        # weights stay out of the graph's file, which one protocol buffer could not hold
        options.add_session_config_entry(
            "session.optimized_model_external_initializers_file_name", "weights.bin"
        )
        self._session = ort.InferenceSession(
            str(folder / "model.onnx"), options, providers=[provider]
        )

    def run(self) -> float:
        """Run once; the profiler writes its file at the end."""
        began, start = time.time_ns(), time.perf_counter()
        self._session.run(None, self._feed)
        seconds = time.perf_counter() - start
        self._calls.append((began, time.time_ns()))
        return seconds

    def traces(self) -> list[Trace]:
        """Return a trace per run, from the profile's file."""
        import onnx

        zero = self._session.get_profiling_start_time_ns()
        calls = [((began - zero) / 1e3, (ended - zero) / 1e3) for began, ended in self._calls]
        events = json.loads(Path(self._session.end_profiling()).read_text(encoding="utf-8"))
        graph = onnx.load(self._optimised, load_external_data=False).graph
        sources = match(graph.node, SourceGraph(self._folder))
        self._scratch.cleanup()
        return read_events(events, sources, calls)


def read_events(
    events: Iterable[dict[str, Any]],
    sources: dict[str, tuple[str, ...]],
    calls: Sequence[tuple[float, float]] = (),
) -> list[Trace]:
    """Return the traces in a profile, one per run.

    Host time is the gaps between nodes in `model_run`, by the profile's own clock, and what a call
    took around `model_run`: `calls` are their starts and ends on that clock.
    """
    events = list(events)
    runs = sorted((e for e in events if e["name"] == "model_run"), key=lambda e: e["ts"])
    nodes = sorted(
        (e for e in events if e.get("cat") == "Node" and e["name"].endswith(_SUFFIX)),
        key=lambda e: (e["ts"], -e["dur"]),
    )
    if not runs or not nodes:
        raise RunError(msg("ONNX Runtime's profile holds no run"))
    traces = []
    for run in runs:
        start, end = run["ts"], run["ts"] + run["dur"]
        inside = _outermost(e for e in nodes if start <= e["ts"] < end)
        idle = idle_s(((e["ts"], e["ts"] + e["dur"]) for e in inside), start, end)
        host_s = (idle + _around(start, end, calls)) * 1e-6
        traces.append(Trace(tuple(_span(e, sources) for e in inside), host_s))
    return traces


def _around(start: float, end: float, calls: Sequence[tuple[float, float]]) -> float:
    """Return the time between a call's edges and its run's; 0 if the clocks differ.

    They differ if the profiler counts from the machine's start: then the time stays unexplained.
    """
    edges = ((start - first, last - end) for first, last in calls)
    return next((max(0.0, a) + max(0.0, b) for a, b in edges if min(a, b) >= -_TICK_US), 0.0)


def _outermost(events: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """Nodes of a branch or loop body lie within their node's own time."""
    kept: list[dict[str, Any]] = []
    for event in events:
        if not kept or event["ts"] >= kept[-1]["ts"] + kept[-1]["dur"]:
            kept.append(event)
    return kept


def _span(event: dict[str, Any], sources: dict[str, tuple[str, ...]]) -> Span:
    node, op = event["name"].removesuffix(_SUFFIX), event.get("args", {}).get("op_name", "")
    computed = sources.get(node, ())
    added = op == "Reshape" and not computed  # the optimiser's own, around a product
    kind = "layout" if op in _MOVES or added else "compute"
    return Span(f"{op} {node}".strip(), computed, event["dur"] * 1e-6, kind)
