"""Frozen configurations that are passed down the stages."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from tvmscope.core.precision import FLOAT32, Precision
from tvmscope.core.tuning import Choice
from tvmscope.core.vision import PictureTask


@dataclass(frozen=True, kw_only=True)
class LoadOptions:
    """How to load a model and one set of inputs."""

    shapes: dict[str, tuple[int, ...]] = field(default_factory=dict)
    batch_size: int | None = None
    inputs_file: str | None = None
    seed: int = 0
    need_onnx: bool = True
    """Export torch models to ONNX, too (for ONNX Runtime and OpenVINO)."""
    offline: bool = False
    """Download nothing; weights that are not on this machine become seeded random ones."""


@dataclass(frozen=True, kw_only=True)
class CompileOptions:
    """How to compile."""

    pipeline: str = "tvmscope"
    """`tvm`, `tvmscope`, or `file.py:function`."""
    precision: Precision = FLOAT32
    exec_mode: Literal["bytecode", "compiled"] = "bytecode"
    graph: bool = False
    threads: int | None = None
    disabled_passes: tuple[str, ...] = ()
    dump_ir: str | None = None
    """A folder for the IR after each phase."""
    dump_each_pass: bool = False
    """Whether the folder gets the IR after each pass instead, with the pass's changes."""
    fallback: bool = True
    """Whether operators without a kernel run in the model's own framework."""
    library: bool | tuple[str, ...] = False
    """Whether NVIDIA's libraries may compute the units for which they were measured to be fastest
    (on CUDA): all, none, or those with these names."""
    overrides: dict[str, Any] = field(default_factory=dict)
    """Settings of single passes: `winograd` (False: direct convolutions only), `channel_moves`
    (False: moved channels leave their blocks), `disabled_rules` (names of schedule rules to leave
    out)."""
    choices: dict[str, Choice] = field(default_factory=dict)
    """The results of tuning, by workload."""


@dataclass(frozen=True, kw_only=True)
class MeasureOptions:
    """How to time; counts that the user gives (`iterations`, `warmup`) override adaptive ones."""

    iterations: int | None = None
    warmup: int | None = None
    duration_s: float = 8.0
    """The target time per backend, over all rounds."""
    min_rounds: int = 9
    seed: int = 0
    cache: Literal["warm", "cold"] = "warm"
    mode: Literal["latency", "throughput"] = "latency"
    timeout_s: float = 600.0
    """A worker that does not answer for this long counts as hung."""


@dataclass(frozen=True, kw_only=True)
class TuneOptions:
    """How to search, and how long; the first limit that is reached ends the search."""

    budget_s: float = 600.0
    """Wall-clock time of the whole run: loading, planning, searching, proving."""
    trials: int | None = None
    """Largest number of new trials, over all tasks."""
    max_trials_per_task: int | None = None
    """Largest number of trials per task, including those of earlier runs."""
    until: float = 0.0
    """Stop when the saving that the roofs still allow is a smaller share of the model's time."""
    early_stopping: int | None = None
    """Leave a task after this many trials without progress."""
    trial_timeout_s: float = 15.0
    """Time limit to build one candidate, and to run it."""
    repeat: int = 3
    min_repeat_ms: float | None = None
    """The number of values per trial, and the shortest time that each covers; None means 20 ms on
    a CPU and 2 ms on a GPU, whose own clock no other process disturbs."""
    ops: tuple[str, ...] = ()
    """Tune only tasks whose rule, workload, kernel or source operators contain one of these."""
    metaschedule: bool = True
    """Whether MetaSchedule continues when the rules' own candidates are used up."""
    explain: bool = True
    """Whether the parts of the best choices are removed one by one to measure their worth."""
    tracker: str | None = None
    """`host:port` of a TVM RPC tracker whose servers measure, instead of this machine."""
    key: str | None = None
    """Key of the tracker's servers to use."""
    seed: int = 0


@dataclass(frozen=True, kw_only=True)
class PictureOptions:
    """The images to run an artifact on, and how; None means what the artifact's metadata says."""

    pictures: tuple[Path | str, ...]
    """Files, folders, http(s) addresses, or `cat` for the picture that comes with the package."""
    task: PictureTask | None = None
    head: str | None = None
    """A head's name, or `darknet:model.cfg`, whose anchors are used."""
    labels: Path | None = None
    preprocess: dict[str, Any] = field(default_factory=dict)
    """Fields of `core.vision.Preprocess` that the user gave."""
    offline: bool = False
    """Whether downloading images is forbidden."""
    score_threshold: float = 0.25
    nms_iou: float = 0.45
    save_vis: Path | None = None
