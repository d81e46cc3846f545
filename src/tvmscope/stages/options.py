"""All options of a user in one frozen value; the command line and the API both build it."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, get_args, get_origin, get_type_hints

from tvmscope.core.options import (
    CompileOptions,
    LoadOptions,
    MeasureOptions,
    PictureOptions,
    TuneOptions,
)
from tvmscope.core.precision import FLOAT32, Precision
from tvmscope.cuda.config import LIBRARIES
from tvmscope.cuda.library import call as library_calls
from tvmscope.errors import UsageError
from tvmscope.messages import msg
from tvmscope.parsing import parse_device, split_targets

NO_RECORDS = "none"
"""In place of a database: no records, neither the user's nor those of the package."""


@dataclass(frozen=True, kw_only=True)
class Options:
    """A request: which backends on which targets, and how to load, compile, measure and check."""

    backends: tuple[str, ...] = ()
    """Names of backends to measure; empty means all."""
    targets: tuple[str, ...] = ("auto",)
    device: str | None = None
    """Where to run: `cpu`, `cuda`, or one of several GPUs as `cuda:1`; without targets, also what
    to compile for."""
    precisions: tuple[Precision, ...] = (FLOAT32,)
    graph: bool | None = None
    """Use CUDA graphs: with, without, or (None) both as separate rows."""
    threads: int | None = None
    tolerance: float | None = None
    """Largest accepted max|a-b| / max|ref|; by default 1e-4 in float32, 2e-2 in half precision."""
    atol: float = 0.0
    """Accepted absolute error, added to the relative one."""
    profile: bool = True
    """Whether `analyze` also times every kernel, after measuring."""
    fix: bool = False
    """Whether `analyze` then tries the fixes of its findings, and keeps those that help."""
    output: Path | None = None
    force: bool = False
    redact: bool = False
    """Write the reports without host name, user name and folders; session.json keeps them."""
    load: LoadOptions = field(default_factory=LoadOptions)
    compile: CompileOptions = field(default_factory=CompileOptions)
    measure: MeasureOptions = field(default_factory=MeasureOptions)
    tune: TuneOptions = field(default_factory=TuneOptions)
    tvm_budget_s: float = 120.0
    """How long MetaSchedule searches for the backend `tvm-tuned`; 0: use earlier results."""
    tune_first: bool = False
    """Tune before measuring or compiling, within the budget of `tune`."""
    dynamic: str | None = None
    """Dimensions that vary, as `name:0=1..32`, for `compile` on the CPU."""
    db: str | None = None
    """Tuning records: a file or folder, `none`, or by default all available ones."""
    command: str = "tvmscope (Python API)"
    example_inputs: Sequence[Any] | None = None
    """Example inputs of an `nn.Module` in memory."""
    pictures: PictureOptions | None = None
    """Images to run an artifact on."""

    @classmethod
    def of(cls, *, inputs: Sequence[Any] | None = None, **flat: Any) -> Options:
        """Build from flat keywords (`target="cpu", duration_s=2, pipeline="tvm"`)."""
        owners = {
            "load": LoadOptions,
            "compile": CompileOptions,
            "measure": MeasureOptions,
            "tune": TuneOptions,
            "": cls,
        }
        parts: dict[str, dict[str, Any]] = {home: {} for home in owners}
        flat = _normal(flat)
        for key, value in flat.items():
            homes = [
                home
                for home, owner in owners.items()
                if key in {f.name for f in dataclasses.fields(owner)}
                and not (home == "compile" and key in ("precision", "threads", "graph"))
            ]
            if not homes:
                known = {f.name for owner in owners.values() for f in dataclasses.fields(owner)}
                names = ", ".join(sorted(known - set(owners) | {"target", "precision"}))
                raise UsageError(
                    msg("unknown option '{key}'; there are: {names}", key=key, names=names)
                )
            for home in homes:  # `seed` means the same for all of them
                parts[home][key] = value
        if flat.get("db") == NO_RECORDS:  # measured winners for a GPU are records too
            given = parts["compile"].get("overrides", {})
            parts["compile"]["overrides"] = {"records": False} | given
        made = cls(
            **parts[""],
            load=LoadOptions(**parts["load"]),
            compile=CompileOptions(**{"library": library_calls.here() or False} | parts["compile"]),
            measure=MeasureOptions(**parts["measure"]),
            tune=TuneOptions(**parts["tune"]),
            example_inputs=inputs,
        )
        for part in (made.compile, made.measure):
            _check_words(part)
        _check_numbers(made.measure)
        _check_tuning(made.tune)
        _check_pipeline(made.compile.pipeline)
        _check_libraries(made.compile.library)
        return made


_ALIASES = {"target": "targets", "precision": "precisions", "backend": "backends"}


def _check_libraries(library: bool | tuple[str, ...]) -> None:
    for name in () if isinstance(library, bool) else library:
        if name not in LIBRARIES:
            known = ", ".join(LIBRARIES)
            raise UsageError(
                msg("unknown library '{name}'; there are: {known}", name=name, known=known)
            )


def _split(texts: Iterable[str]) -> tuple[str, ...]:
    return tuple(part.strip() for text in texts for part in text.split(",") if part.strip())


def _normal(flat: dict[str, Any]) -> dict[str, Any]:
    """Return one spelling of values with several: `"a,b"` or a sequence, a path or a text."""
    values = {_ALIASES.get(key, key): value for key, value in flat.items()}
    for key in _ALIASES.values():
        if key in values:
            given = values[key]
            texts = (given,) if isinstance(given, str) else given
            split = split_targets if key == "targets" else _split
            values[key] = split(texts)
    if values.get("device") == "auto":
        del values["device"]
    if values.get("device") is not None:
        values.setdefault("targets", (parse_device(values["device"])[0],))
    if "precisions" in values:
        values["precisions"] = tuple(dict.fromkeys(map(Precision.parse, values["precisions"])))
    for key, kind in (("output", Path), ("inputs_file", str), ("dump_ir", str)):
        if values.get(key) is not None:
            values[key] = kind(values[key])
    return values


def _check_words(options: CompileOptions | MeasureOptions) -> None:
    """Raise if a field has an unknown word."""
    for name, hint in get_type_hints(type(options)).items():
        known = get_args(hint)
        value = getattr(options, name)
        if get_origin(hint) is Literal and value not in known:
            raise UsageError(
                msg("{name} '{value}' is none of {known}", name=name, value=value, known=known)
            )


def _check_numbers(measure: MeasureOptions) -> None:
    lowest = {"iterations": 1, "warmup": 0, "min_rounds": 1}
    for name, least in lowest.items():
        value = getattr(measure, name)
        if value is not None and value < least:
            raise UsageError(
                msg("{name} {value}: give at least {least}", name=name, value=value, least=least)
            )
    for name in ("duration_s", "timeout_s"):
        if getattr(measure, name) <= 0:
            raise UsageError(
                msg("{name} {value}: give more than 0", name=name, value=getattr(measure, name))
            )


def _check_tuning(tune: TuneOptions) -> None:
    if (tune.tracker is None) != (tune.key is None):
        raise UsageError(msg("--tracker HOST:PORT and --key NAME must be given together"))
    for name in ("trials", "max_trials_per_task", "early_stopping", "repeat"):
        value = getattr(tune, name)
        if value is not None and value < 1:
            raise UsageError(msg("{name} {value}: give at least 1", name=name, value=value))
    for name in ("budget_s", "trial_timeout_s"):
        if getattr(tune, name) <= 0:
            raise UsageError(
                msg("{name} {value}: give more than 0", name=name, value=getattr(tune, name))
            )


def _check_pipeline(text: str) -> None:
    """Check what can be known without TVM; the compiler looks up the function itself."""
    if text in ("tvm", "tvmscope"):
        return
    file, _, function = text.rpartition(":")
    if not file.endswith(".py") or not function:
        raise UsageError(
            msg("pipeline '{text}' is neither tvm nor tvmscope nor file.py:function", text=text)
        )
    if not Path(file).is_file():
        raise UsageError(msg("pipeline '{text}': there is no file {file}", text=text, file=file))
