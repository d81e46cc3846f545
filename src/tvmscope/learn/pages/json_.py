"""A lesson's run for programs."""

from __future__ import annotations

from typing import Any

from tvmscope.learn.facts import LessonRun
from tvmscope.storage.codec import encode


def as_json(run: LessonRun) -> dict[str, Any]:
    """Return the output of `--json`: everything measured, without the texts of programs."""
    return {
        "lesson": run.lesson,
        "size": run.size,
        "threads": run.study.threads,
        "roof_threads": run.roof_threads,
        "params": run.study.params,
        "steps": [
            {
                "name": step.name,
                "params": step.params,
                "error": step.built.error if step.built else None,
                "failure": step.failure,
                "median_s": step.seconds,
                "ci95_s": step.interval_s,
                "gflops": step.gflops,
                "share_of_roof": step.share,
                "compared_with": step.beside and run.steps[step.beside - 1].name,
                "ratio_to_step_before": step.ratio,
                "ratio_ci95": step.ratio_ci95,
                "verdict": step.verdict,
                "reasons": step.reasons,
                "counters": step.counted.values if step.counted else {},
                "measurement": encode(step.measurement),
            }
            for step in run.steps
        ],
        "exhibits": [{"title": e.title, "words": e.words} for e in run.exhibits],
        "warnings": run.warnings,
    }
