"""The values of one session that the page's templates show, ready to be printed."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from tvmscope.analysis.waterfall import Waterfall, waterfall
from tvmscope.core.diagnosis.findings import Finding
from tvmscope.core.profile import Profile
from tvmscope.core.row import RowKey
from tvmscope.core.session import Session, to_json
from tvmscope.messages import _
from tvmscope.quantities import format_bytes, format_s
from tvmscope.report.escape import NAME_LIMIT, clean
from tvmscope.report.sections import ablation, charts, fixes, loops, verdict, view
from tvmscope.report.sections import tuning as _tuning
from tvmscope.report.sections.charts import KernelRow, percent, si, signed
from tvmscope.report.sections.view import ResultLine

_SEVERITIES = ("high", "medium", "low", "info")


@dataclass(frozen=True)
class Part:
    """One session on the page; `key` makes its anchors unique among several."""

    session: Session
    key: str

    @property
    def name(self) -> str:
        return clean(self.session.model.name, NAME_LIMIT)

    @cached_property
    def gap(self) -> Waterfall | None:
        return waterfall(self.session)

    @cached_property
    def rows(self) -> list[ResultLine]:
        return view.measured(self.session)

    @property
    def verdicts(self) -> list[verdict.Verdict]:
        return verdict.verdicts(self.session, self.gap)

    @cached_property
    def ablation(self) -> list[ablation.Block]:
        return ablation.blocks(self.session)

    @property
    def several_targets(self) -> bool:
        return len(view.targets(self.session)) > 1

    def bar(self, row: ResultLine) -> dict[str, float]:
        """Return a row's bar and the ends of its interval, in percent of the width."""
        median_s: float = row.summary["median_s"]
        low, high = row.summary["ci95_s"] or (median_s, median_s)
        places = {"length": median_s, "low": low, "high": high}
        return {k: round(100 * min(1.0, v / self._scale_s), 2) for k, v in places.items()}

    def is_off(self, row: ResultLine) -> bool:
        """Whether a row is so slow that the others would be too small beside it."""
        return bool(row.summary["median_s"] > self._scale_s)

    @property
    def any_off(self) -> bool:
        return any(self.is_off(row) for row in self.rows)

    @cached_property
    def _scale_s(self) -> float:
        return charts.scale_s(self.rows)

    @cached_property
    def steps(self) -> list[charts.Step]:
        return charts.steps(self.gap) if self.gap else []

    @cached_property
    def profiles(self) -> list[tuple[Profile, list[KernelRow]]]:
        return [(p, charts.kernel_rows(self.session, p)) for p in charts.own_first(self.session)]

    def nest(self, profile: Profile, kernel: str) -> tuple[str, list[loops.Line]] | None:
        """Return a kernel's schedule rule and its loops; None if they are not recorded."""
        place = (profile.key, kernel)
        for found in (k for k in self.session.kernel_ir if (k.key, k.name) == place):
            rule = clean(found.rule or _("none"), NAME_LIMIT)
            if found.tuned:
                rule = _("{rule}, tuned: {origin}").format(rule=rule, origin=found.tuned.origin)
            return clean(rule), loops.lines(found)
        return None

    @cached_property
    def rooflines(self) -> list[charts.Roofline]:
        return charts.rooflines(self.session)

    @cached_property
    def groups(self) -> tuple[list[str], list[charts.GroupRow]]:
        return charts.group_rows(self.session, self.gap)

    @property
    def beside(self) -> str:
        """The rows that the waterfall omits because they have no profile."""
        found = self.gap.beside if self.gap else ()
        return ", ".join(f"{clean(key.name, NAME_LIMIT)} {format_s(time)}" for key, time in found)

    @cached_property
    def strays(self) -> dict[RowKey, str]:
        return charts.strays(self.session)

    @property
    def above(self) -> list[str]:
        """Kernels faster than their roof, which is an error of ours and reported as such."""
        rows = [r for roofline in self.rooflines for _key, r in roofline.rows]
        return [r.name for r in rows if r.point and r.point.above]

    @property
    def findings(self) -> list[Finding]:
        def rank(finding: Finding) -> tuple[int, float]:
            known = finding.severity in _SEVERITIES
            place = _SEVERITIES.index(finding.severity) if known else len(_SEVERITIES)
            return place, -(finding.saving_s or 0.0)

        return sorted(self.session.findings, key=rank)

    @property
    def calibration(self) -> str:
        """How good the predictions were in this session."""
        return fixes.calibration(self.session.fixes)

    @property
    def tried(self) -> list[fixes.AttemptLine]:
        return fixes.rows(self.session.fixes)

    def command(self, verb: str, *flags: str) -> str:
        """Return the command that fills a section."""
        model = clean(self.session.model.source or self.session.model.name, 120)
        return " ".join(["tvmscope", verb, shlex.quote(model), *flags])

    @property
    def facts(self) -> list[tuple[str, str]]:
        """The facts about the measurement, in pairs."""
        session, env = self.session, self.session.environment
        pairs = [
            (_("CPU"), env.cpu),
            (_("Capped to"), env.isa_cap or ""),
            (_("Cores, threads"), f"{env.cores}, {env.threads}"),
            (_("Load before"), "" if env.load is None else f"{env.load:.2f}"),
            (_("GPU"), env.gpu or ""),
            (_("Driver"), env.driver or ""),
            (_("Targets"), ", ".join(t.label for t in session.targets)),
            (_("Host"), env.host),
            (_("Command"), session.command),
            (_("Started"), session.started),
            (_("Model"), f"{session.model.source} ({session.model.format})"),
            (_("Digest"), session.model.digest),
        ]
        return [(title, clean(text)) for title, text in pairs if text]

    @property
    def versions(self) -> list[tuple[str, str]]:
        pairs = sorted(self.session.environment.versions.items())
        return [(clean(k, NAME_LIMIT), clean(v, NAME_LIMIT)) for k, v in pairs]

    @property
    def remarks(self) -> list[str]:
        session = self.session
        lines = [*view.warnings(session), *session.model.notes, *view.notes(session)]
        return [clean(line) for line in dict.fromkeys(lines)]

    @cached_property
    def raw(self) -> dict[str, Any]:
        return to_json(self.session)

    @property
    def raw_size(self) -> str:
        return format_bytes(len(json.dumps(self.raw)))

    @property
    def figures(self) -> list[dict[str, Any]]:
        """The figures that the page's script draws."""
        tuning = _tuning.figures(self.session, self.key)
        return [*self._gap_figure(), *self._roof_figures(), *tuning]

    @property
    def tuned_tasks(self) -> list[_tuning.TaskRow]:
        return _tuning.searched(self.session)

    @property
    def counted(self) -> str:
        """The unit of the speeds of tuned tasks."""
        return _(_tuning.WORK)

    def _gap_figure(self) -> Iterator[dict[str, Any]]:
        if self.gap is None:
            return
        total = self.gap.ours_s - self.gap.theirs_s
        axis = _("difference to {theirs} in ms; left of 0 is faster")
        whole = _("{ours} in all").format(ours=clean(self.gap.ours.name, NAME_LIMIT))
        bars = [
            {
                "label": s.label,
                "kind": s.kind,
                "start": s.start_s * 1e3,
                "delta": s.delta_s * 1e3,
                "text": signed(s.delta_s),
                "hover": [s.label, signed(s.delta_s), *([s.sources] if s.sources else [])],
            }
            for s in self.steps
        ]
        bars.append(
            {"label": whole, "kind": "total", "start": 0, "delta": total * 1e3,
             "text": signed(total), "hover": [whole, signed(total)]}
        )  # fmt: skip
        title = axis.format(theirs=clean(self.gap.theirs.name, NAME_LIMIT))
        yield {"id": f"{self.key}-gap-figure", "kind": "waterfall", "axis": title, "bars": bars}

    def _roof_figures(self) -> Iterator[dict[str, Any]]:
        for number, roofline in enumerate(self.rooflines):
            points = [_hoverable(key, row) for key, row in roofline.rows]
            yield {
                "id": f"{self.key}-roof-figure-{number}",
                "kind": "roofline",
                "x": _("arithmetic intensity (FLOP per byte)"),
                "y": _("speed (FLOP per second)"),
                "lines": [
                    {
                        "label": x.label,
                        "x": [x.start[0], x.end[0]],
                        "y": [x.start[1], x.end[1]],
                        "at": x.between(index),
                    }
                    for index, x in enumerate(roofline.lines)
                ],
                "points": points,
            }


def _hoverable(key: RowKey, row: KernelRow) -> dict[str, Any]:
    """Return a kernel's point and its tooltip."""
    point = row.point
    assert point is not None  # rooflines() keeps only rows with one
    limit = {
        "compute": _("bound by arithmetic, at {share} of the roof"),
        "memory": _("bound by memory, at {share} of the roof"),
        "neither": _("bound by neither roof: reaches {share}"),
    }[point.bound]
    lines = [
        clean(row.kernel.name, 60),
        clean(row.sources, 90),
        _("{time}, {share} of the run").format(
            time=format_s(point.total_s), share=percent(row.share)
        ),
        _("{speed} at {intensity:.3g} FLOP per byte").format(
            speed=si(point.flops_per_s, "FLOP/s"), intensity=point.intensity
        ),
        limit.format(share=percent(point.share)),
    ]
    if point.above:
        lines.append(_("above its roof: a roof, a time or an operation count is wrong"))
    return {
        "backend": clean(key.name, NAME_LIMIT),
        "x": point.intensity,
        "y": point.flops_per_s,
        "share": row.share,
        "bound": point.bound,
        "above": point.above,
        "hover": [line for line in lines if line],
    }
