"""The loop of fixes with fake rows: what is right and faster stays, everything else is undone."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from support import fakes, profiles, samples
from support.rows import key
from tvmscope.backends import all_backends
from tvmscope.benchmark.entry import Entry
from tvmscope.core.diagnosis.findings import Finding
from tvmscope.core.model import Prepared
from tvmscope.core.options import CompileOptions, MeasureOptions
from tvmscope.core.precision import FLOAT16
from tvmscope.core.row import Task
from tvmscope.core.session import Session, load
from tvmscope.errors import BuildError, UsageError
from tvmscope.progress import Silent
from tvmscope.stages.job import Job
from tvmscope.stages.options import Options
from tvmscope.stages.planning.rows import PlannedRow
from tvmscope.workflow.fixing import calibration, fix

SLOW, MIDDLE, FAST = {"run_s": 40e-3}, {"run_s": 20e-3}, {"run_s": 2e-3}
QUICK = Options(measure=MeasureOptions(warmup=1, iterations=9, timeout_s=20), threads=2)


def finding(number: int, saving_s: float = 30e-3, **more: Any) -> Finding:
    return Finding(
        **{
            "rule": f"rule-{number}", "severity": "high", "effort": "minutes",
            "title": f"cause {number}", "evidence": "e", "advice": "a", "saving_s": saving_s,
            "fix": {"disabled_passes": [f"pass-{number}"]}, **more,
        }
    )  # fmt: skip


@dataclass
class Shop:
    """A session folder whose builds and findings are made up; the measuring is real."""

    folder: Path
    monkeypatch: pytest.MonkeyPatch
    found: list[Finding] = field(default_factory=list)
    makes: dict[str, dict[str, Any] | Exception] = field(default_factory=dict)
    """What the build with a pass switched off gives: a runner's request, or an error."""
    built: list[str] = field(default_factory=list)
    on_build: Callable[[], None] = lambda: None
    profiled: list[str] = field(default_factory=list)
    start: Session = field(init=False)

    def run(self, *, first: dict[str, Any] = SLOW) -> Session:
        np.savez(self.folder / "reference.npz", **fakes.OUTPUTS)
        backend = all_backends()[0]["tvmscope"]
        row = PlannedRow(
            backend=backend, target=samples.CPU, unavailable=None,
            key=key("tvmscope", pipeline="tvmscope"),
        )  # fmt: skip
        self._save(self.folder / "artifacts" / row.key.folder_name, first)
        ours = profiles.profile(row.key, profiles.kernel("fused_conv2d", 4e-3, "conv1"))
        self.start = session = profiles.session(ours, findings=tuple(self.found))
        for name in ("build_rows", "built_entry"):
            self.monkeypatch.setattr(fix, name, getattr(self, f"_{name}"))
        self.monkeypatch.setattr(
            fix, "diagnose_session", lambda s: replace(s, findings=tuple(self.found))
        )
        self.monkeypatch.setattr(fix, "profile_entries", self._profile)
        job = Job(
            ready=Prepared(self.folder, samples.MODEL), options=QUICK, progress=Silent(),
            folder=self.folder, session=session,
        )  # fmt: skip
        return job.keep_each(fix.fix_rows(job, [row]))

    def _entry(self, row: PlannedRow, request: dict[str, Any]) -> Entry:
        made = fakes.entry("tvmscope", **request)
        task = Task(
            model=samples.MODEL.name, digest=samples.MODEL.digest, key=row.key,
            threads=row.target.cores, shapes=samples.MODEL.shapes,
        )  # fmt: skip
        return replace(made, task=task)

    def _build_rows(self, rows, ready, options: Options, artifacts: Path, progress) -> list[Entry]:
        (row,) = rows
        name = ",".join(options.compile.disabled_passes)
        self.on_build()
        self.built.append(name)
        made = self.makes[name]
        if isinstance(made, Exception):
            raise made
        self._save(artifacts / row.key.folder_name, made)
        return [self._entry(row, made)]

    def _built_entry(self, row: PlannedRow, ready, options, artifacts: Path) -> Entry:
        return self._entry(
            row, json.loads((artifacts / row.key.folder_name / "request.json").read_text())
        )

    def _save(self, artifact: Path, request: dict[str, Any]) -> None:
        artifact.mkdir(parents=True)
        (artifact / "request.json").write_text(json.dumps(request))

    def _profile(self, session: Session, entries, *_: Any) -> Iterator[Session]:
        for entry in entries:
            self.profiled.append(entry.key.name)
            made = profiles.kernel("fused_conv2d", 1e-3, "conv1")
            found = profiles.profile(entry.key, made)
            session = replace(session, profiles=(*session.profiles, found))
            yield session


@pytest.fixture
def shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Shop:
    return Shop(tmp_path, monkeypatch)


def labels(session: Session) -> list[str]:
    return [r.task.variant.label for r in session.results]


def test_a_fix_that_helps_is_kept_as_a_row_of_its_own(shop: Shop) -> None:
    shop.found, shop.makes = [finding(1)], {"pass-1": FAST}
    session = shop.run()
    (tried,) = session.fixes
    assert tried.outcome == "kept"
    assert tried.predicted_s == 30e-3
    assert tried.achieved_s == pytest.approx(38e-3, rel=0.35)
    assert tried.ci95_s is not None
    assert tried.ci95_s[0] <= tried.achieved_s <= tried.ci95_s[1]
    assert labels(session) == ["tvmscope", "tvmscope fixed"]
    assert shop.profiled == ["tvmscope fixed"]
    assert (shop.folder / "artifacts" / "tvmscope-fixed-cpu-znver4").is_dir()
    assert not list(shop.folder.glob("artifacts/fix-*"))
    (against,) = session.comparisons
    assert (against.key.name, against.against.name) == ("tvmscope fixed", "tvmscope")
    assert against.verdict == "faster"


def test_a_fix_that_is_slower_is_undone(shop: Shop) -> None:
    shop.found, shop.makes = [finding(1)], {"pass-1": SLOW}
    session = shop.run(first=FAST)
    (tried,) = session.fixes
    assert tried.outcome == "reverted"
    assert "not faster" in tried.reason
    assert tried.achieved_s is not None
    assert tried.achieved_s < 0
    assert labels(session) == ["tvmscope"]
    assert session.findings[0].achieved_s == tried.achieved_s
    assert [p.name for p in (shop.folder / "artifacts").iterdir()] == ["tvmscope-cpu-znver4"]


def test_a_fix_that_computes_nonsense_is_undone_however_fast(shop: Shop) -> None:
    shop.found, shop.makes = [finding(1)], {"pass-1": FAST | {"fault": "wrong", "at": 1}}
    session = shop.run()
    (tried,) = session.fixes
    assert tried.outcome == "reverted"
    assert tried.reason.startswith("wrong result")
    assert tried.achieved_s is None, "no speed is reported for a wrong result"
    assert labels(session) == ["tvmscope"]


def test_a_build_that_fails_is_recorded_and_the_next_fix_is_tried(shop: Shop) -> None:
    shop.found = [finding(1), finding(2, 2e-3)]
    shop.makes = {"pass-1": BuildError("no linker"), "pass-2": FAST}
    failed, kept = shop.run().fixes
    assert (failed.outcome, failed.achieved_s) == ("reverted", None)
    assert "no linker" in failed.reason
    assert kept.outcome == "kept"


def test_a_fix_that_nobody_can_apply_is_recorded(shop: Shop) -> None:
    shop.found = [finding(1, fix={"colour": "red"})]
    (tried,) = shop.run().fixes
    assert tried.outcome == "reverted"
    assert "colour" in tried.reason
    assert shop.built == []


def test_fixes_go_by_what_they_promise_and_build_on_what_was_kept(shop: Shop) -> None:
    shop.found = [finding(1), finding(2, 1e-3)]
    shop.makes = {"pass-1": MIDDLE, "pass-2": FAST}
    first, second = shop.run().fixes
    assert shop.built == ["pass-1", "pass-2"]
    assert [a.key and a.key.name for a in (first, second)] == ["tvmscope", "tvmscope fixed"]
    assert second.achieved_s == pytest.approx(18e-3, rel=0.6), "against the first, not the start"


def test_rows_before_another_thread_count_stay_as_they_were_measured(shop: Shop) -> None:
    shop.found = [finding(1, fix={"threads": 1})]
    shop.makes = {"": FAST}
    session = shop.run()
    before, after = session.results
    assert (before,) == shop.start.results
    assert (before.task.threads, after.task.threads) == (2, 1)
    assert session.comparisons == (), "what ran on other threads is not compared"


def test_what_cannot_be_profiled_comes_last(shop: Shop) -> None:
    shop.found = [finding(1, 40e-3, fix={"exec_mode": "compiled"}), finding(2, 20e-3)]
    shop.makes = {"": FAST, "pass-2": FAST}
    session = shop.run(first=FAST)
    assert [a.rule for a in session.fixes] == ["rule-2", "rule-1"]


def test_findings_without_a_fix_or_a_gain_are_left_alone(shop: Shop) -> None:
    shop.found = [finding(1, fix={}), finding(2, 0.0)]
    assert shop.run().fixes == ()


def test_the_prediction_is_on_disk_before_anything_is_built(shop: Shop) -> None:
    shop.found, shop.makes, seen = [finding(1)], {"pass-1": FAST}, []
    shop.on_build = lambda: seen.append(load(shop.folder).fixes)
    shop.run()
    ((open_,),) = seen
    assert (open_.outcome, open_.predicted_s, open_.achieved_s) == ("open", 30e-3, None)


def test_work_that_is_cut_off_leaves_the_prediction(shop: Shop) -> None:
    def cut() -> None:
        raise KeyboardInterrupt

    shop.found, shop.makes, shop.on_build = [finding(1)], {"pass-1": FAST}, cut
    with pytest.raises(KeyboardInterrupt):
        shop.run()
    (tried,) = load(shop.folder).fixes
    assert tried.outcome == "open"
    assert calibration.history() == (), "what was not finished says nothing about predictions"


def test_every_attempt_adds_to_the_calibration(shop: Shop) -> None:
    shop.found = [finding(1), finding(2, 2e-3)]
    shop.makes = {"pass-1": BuildError("no linker"), "pass-2": FAST}
    session = shop.run()
    assert calibration.history() == session.fixes
    with calibration.file().open("a") as stream:
        stream.write('{"rule": "cut o')
    assert calibration.history() == session.fixes, "a torn line costs itself only"


def test_a_fix_may_change_everything_it_names() -> None:
    start = Options(compile=CompileOptions(overrides={"winograd": False, "other": 1}))
    made = fix.applied(
        start,
        {"target": "cpu", "threads": 4, "precision": "float16", "graph": True, "winograd": True,
         "pipeline": "tvmscope", "disabled_passes": ["a"], "exec_mode": "compiled"},
    )  # fmt: skip
    assert (made.targets, made.threads, made.precisions) == (("cpu",), 4, (FLOAT16,))
    assert made.graph is True
    assert made.compile == CompileOptions(
        disabled_passes=("a",), exec_mode="compiled", overrides={"winograd": True, "other": 1}
    )
    with pytest.raises(UsageError, match="colour"):
        fix.applied(start, {"colour": "red"})
