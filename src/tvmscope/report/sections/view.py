"""The content of a session that every renderer shows, as plain text; only the drawing differs."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any

from tvmscope.core import stats
from tvmscope.core.comparison import Comparison
from tvmscope.core.measurement import ITSELF, Measurement, Result
from tvmscope.core.session import Session
from tvmscope.core.tuning import TUNED_KERNELS
from tvmscope.messages import Text, _, plural, render
from tvmscope.quantities import format_bytes, format_rate, format_s, format_shape
from tvmscope.report.escape import NAME_LIMIT, clean

PRODUCT = "tvmscope"
ROUNDED = 0.005
"""A speed-up that differs from 1 by less is shown as 1.00x."""
LOG_RATIO = 20.0
"""Beyond this ratio the linear bars of fast rows are too small, so bars become logarithmic."""


@dataclass(frozen=True)
class ResultLine:
    """One result, and the comparison of tvmscope against it."""

    result: Result
    versus: Comparison | None = None
    subject_s: float | None = None
    """The median of the row that `versus` compares."""

    @property
    def name(self) -> str:
        return clean(self.result.key.name, NAME_LIMIT)

    @property
    def is_own(self) -> bool:
        return self.result.key.is_ours

    @cached_property
    def summary(self) -> dict[str, Any]:
        """Statistics; empty if nothing was measured."""
        measurement = self.result.measurement
        return {} if measurement is None or not measurement.values_s else _statistics(measurement)

    @property
    def median_s(self) -> float | None:
        return self.summary.get("median_s")

    @property
    def median(self) -> str:
        return format_s(self.median_s)

    @property
    def interval(self) -> str:
        bounds = self.summary.get("ci95_s")
        return span(*(format_s(b) for b in bounds)) if bounds else "-"

    @property
    def mean(self) -> str:
        """Mean and standard deviation, such as `48.2 ± 0.3 ms`; a lone value has no deviation."""
        mean, deviation = self.summary.get("mean_s"), self.summary.get("std_s")
        if mean is None or deviation is None:
            return format_s(mean)
        number, _space, unit = format_s(mean).partition(" ")
        other = format_s(deviation)
        shared = other.endswith(f" {unit}")
        return f"{number} ± {other}" if shared else f"{number} {unit} ± {other}"

    @property
    def rate(self) -> str:
        """Items per second, in throughput mode."""
        items = self.result.items
        return "" if items is None or not self.median_s else format_rate(items / self.median_s)

    @property
    def speedup(self) -> str:
        """How many times faster tvmscope is than this row, with the interval.

        The speed-up is computed round by round, the medians over all rounds: on a busy machine they
        may point in different directions. If nothing is decided, only the interval is shown then.
        """
        if self.versus is None:
            return ""
        return (
            ratio(self.versus) if self.medians_agree else _bounds(self.versus) or _("no interval")
        )

    @property
    def medians_agree(self) -> bool:
        """Whether the speed-up agrees with the medians: decided, or on the same side of 1."""
        if self.versus is None or not self.subject_s or not self.median_s:
            return True
        over, by_medians = self.versus.speedup - 1, self.median_s / self.subject_s - 1
        apart = over * by_medians < 0 and max(abs(over), abs(by_medians)) >= ROUNDED
        return self.versus.verdict != "undecided" or not apart

    @property
    def verdict(self) -> str:
        return "" if self.versus is None else _(self.versus.verdict)

    @property
    def accuracy(self) -> str:
        accuracy = self.result.accuracy
        if accuracy is None:
            return "-"
        error = (
            "" if accuracy.error is None else f"{accuracy.error:.1e} " if accuracy.error else "0 "
        )
        if accuracy.reference == ITSELF:
            return _("repeats") if accuracy.passed else _("DIFFERS")
        return error + (_("pass") if accuracy.passed else _("FAIL"))

    @property
    def passed(self) -> bool:
        return self.result.accuracy is None or self.result.accuracy.passed

    @property
    def memory(self) -> str:
        return format_bytes(self.result.peak_memory_bytes)

    @property
    def clock(self) -> str:
        """The GPU's clock over the rounds, such as `1965-1980 MHz`; empty if it was not read."""
        clocks = self.result.gpu.sm_mhz if self.result.gpu is not None else ()
        if not clocks:
            return ""
        low, high = f"{min(clocks)} MHz", f"{max(clocks)} MHz"
        return low if low == high else span(low, high)

    @property
    def notes(self) -> tuple[Text, ...]:
        texts: list[Text] = []
        device = self.result.device_measurement
        if device is not None and device.values_s:
            time = format_s(stats.summary(device)["median_s"])
            texts.append(_("{time} on the device").format(time=time))
        gpu = self.result.gpu
        if gpu is not None and gpu.memory_bytes is not None:
            size = format_bytes(gpu.memory_bytes)
            texts.append(_("{size} of GPU memory").format(size=size))
        tuned = (self.result.settings or {}).get(TUNED_KERNELS)
        if tuned and self.result.task.variant.change is None:  # an ablation says it once
            texts.append(_("tuned kernels: {origins}").format(origins=render(tuned)))
        return (*texts, *self.result.warnings)

    @property
    def reason(self) -> Text:
        """Why this row was not measured."""
        accuracy = self.result.accuracy
        detail = accuracy.detail if accuracy is not None and not accuracy.passed else None
        return self.result.reason or detail or ""

    def percentile(self, percent: str) -> str:
        """Format `p99` and the like; a dash if there are too few samples."""
        return format_s(self.summary.get(f"{percent}_s"))


@lru_cache(maxsize=512)
def _statistics(measurement: Measurement) -> dict[str, Any]:
    """Compute statistics once: a document needs those of a row often, and each is a bootstrap."""
    return stats.summary(measurement)


def span(low: str, high: str) -> str:
    """Format `54.0-57.1 ms`: the unit appears once if both ends share it."""
    number, _space, unit = low.partition(" ")
    return f"{number}-{high}" if high.endswith(f" {unit}") else f"{low} - {high}"


def ratio(comparison: Comparison) -> str:
    """Format `1.02x [0.98, 1.06]`."""
    return f"{_digits(comparison.speedup)}x {_bounds(comparison)}".rstrip()


def _bounds(comparison: Comparison) -> str:
    if comparison.ci95 is None:
        return ""
    low, high = comparison.ci95
    return f"[{_digits(low)}, {_digits(high)}]"


def _digits(value: float) -> str:
    return f"{value:.0f}" if value >= 100 else f"{value:.2f}"


def measured(session: Session) -> list[ResultLine]:
    """Return the correct, measured rows: by target in the session's order, the fastest first."""
    rows = [_line(session, r) for r in session.results if r.status == "ok"]
    order = {t: i for i, t in enumerate(targets(session))}
    timed = [row for row in rows if row.median_s is not None]
    return sorted(timed, key=lambda r: (order[r.result.task.target], r.median_s or 0.0))


def unmeasured(session: Session) -> list[ResultLine]:
    """Return wrong, failed, interrupted and unavailable rows, in that order."""
    order = {s: i for i, s in enumerate(("wrong", "failed", "interrupted", "ok", "unavailable"))}
    placed = {id(row.result) for row in measured(session)}
    rows = [ResultLine(r) for r in session.results if id(r) not in placed and not _spared(r)]
    return sorted(rows, key=lambda r: order[r.result.status])


def _spared(result: Result) -> bool:
    """Whether an ablation did not measure this row: its table says so, in one line for all."""
    return result.status == "unavailable" and result.task.variant.change is not None


def targets(session: Session) -> list[str]:
    """Return the targets that have results, in the order they were measured."""
    return list(dict.fromkeys(r.task.target for r in session.results))


def _line(session: Session, result: Result) -> ResultLine:
    """Return a result with the comparison of its group's subject against it."""
    own = subject([ResultLine(r) for r in session.results if group(r) == group(result)])
    if own is None or own.result is result:
        return ResultLine(result)
    pair = (own.result.key, result.key)
    versus = next((c for c in session.comparisons if (c.key, c.against) == pair), None)
    return ResultLine(result, versus, own.median_s)


def group(result: Result) -> tuple[str, str]:
    """Return target and precision as text: rows are compared if both are equal."""
    target, precision = result.key.group
    return target, str(precision)


def subject(rows: Sequence[ResultLine]) -> ResultLine | None:
    """Return the row that others are compared with: the fastest of ours, else the fastest."""
    timed = [r for r in rows if r.result.status == "ok" and r.median_s is not None]
    return best(timed, own=True) or best(timed, own=False)


def best(rows: Iterable[ResultLine], *, own: bool) -> ResultLine | None:
    """Return the fastest of tvmscope's rows, or of the others."""
    fitting = (r for r in rows if r.is_own is own)
    # An ablation's subject is the whole, even if some part of it does harm.
    return min(
        fitting, key=lambda r: (r.result.task.variant.change is not None, r.median_s or 0.0),
        default=None,
    )  # fmt: skip


def headlines(session: Session) -> list[str]:
    """Compare, for each target and precision, tvmscope with the fastest other backend."""
    rows = measured(session)
    lines = []
    for key in dict.fromkeys(group(r.result) for r in rows):
        members = [r for r in rows if group(r.result) == key]
        own, peer = best(members, own=True), best(members, own=False)
        if own is None or peer is None or peer.versus is None:
            continue
        where = f" ({key[0]})" if len(targets(session)) > 1 else ""
        lines.append(_sentence(own, peer, peer.versus) + where)
    return lines


def _sentence(own: ResultLine, peer: ResultLine, comparison: Comparison) -> str:
    if comparison.verdict == "undecided":
        text = _("{own} and {peer}, the fastest other backend, cannot be distinguished: {ratio}")
    else:
        text = _("{own} is {verdict} than {peer}, the fastest other backend: {ratio}")
    line = text.format(
        own=own.name, peer=peer.name, verdict=_(comparison.verdict), ratio=peer.speedup
    )
    if comparison.verdict == "undecided" and comparison.smallest_detectable is not None:
        share = comparison.smallest_detectable
        seen = f"{share:.0%}" if share >= 0.1 else f"{share:.1%}"
        line += _("; a difference of {seen} would have been seen").format(seen=seen)
    return line


def versus_title(rows: Sequence[ResultLine]) -> str:
    """Return the heading over speed-ups: whose they are."""
    own = subject(rows)
    name = PRODUCT if own is None or own.is_own else own.name
    return _("{name} is").format(name=name)


def header(session: Session) -> list[str]:
    """Return weights, inputs, target and threads: the conditions, beside the model's name."""
    model = session.model
    weights = {
        "random": _("RANDOM weights"),
        "pretrained": _("pretrained weights"),
        "file": _("weights from the file"),
    }[model.weights]
    inputs = ", ".join(
        f"{clean(i.name, NAME_LIMIT)} {format_shape(i.shape)} {i.dtype}" for i in model.inputs
    )
    labels = [t.label for t in session.targets] or targets(session)
    threads = session.environment.threads
    return [
        weights,
        inputs or _("no inputs"),
        ", ".join(labels) or _("no target"),
        plural("{n} thread", "{n} threads", threads).format(n=threads),
    ]


def environment(session: Session) -> str:
    """Return machine, load and versions in one line."""
    env = session.environment
    parts = [env.cpu, plural("{n} core", "{n} cores", env.cores).format(n=env.cores)]
    if env.isa_cap:
        parts.append(_("capped to {isa}").format(isa=env.isa_cap))
    if env.load is not None:
        parts.append(_("load {load:.2f}").format(load=env.load))
    if env.gpu:
        parts.append(env.gpu + (f" ({_('driver')} {env.driver})" if env.driver else ""))
    parts += [f"{name} {version}" for name, version in sorted(env.versions.items())]
    return " · ".join(parts)


def failure(session: Session) -> str:
    """Say why nothing could be measured; empty if something was."""
    return "" if session.failure is None else _("failed: ") + render(session.failure)


def notes(session: Session) -> list[str]:
    """Return remarks about single rows; a remark about all of them is a warning instead."""
    shared, rows = _shared(session), measured(session)
    return [
        _("{row}: {text}").format(row=row.name, text=render(note))
        for row in rows
        for note in row.notes
        if note not in shared
    ]


def _shared(session: Session) -> list[Text]:
    rows = measured(session)
    first = rows[0].notes if len(rows) > 1 else ()
    return [note for note in first if all(note in row.notes for row in rows)]


def warnings(session: Session) -> list[Text]:
    """Return remarks about the session as a whole."""
    lines = [*session.warnings, *_shared(session)]
    if isa := session.environment.isa_cap:
        text = _("TVM's code was limited to {isa} (TVMSCOPE_ISA); other runtimes were not")
        lines.insert(0, text.format(isa=isa))
    if session.model.weights == "random":
        lines.insert(0, _("the weights are random: times are real, predictions are not"))
    if not session.complete:
        lines.insert(0, _("this session was interrupted: it contains what was measured until then"))
    return lines
