"""The stages and the skeleton of a job, with fake compilers and runners."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from threading import Event
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from support import fakes, samples
from support.rows import key
from tvmscope.backends import all_backends
from tvmscope.benchmark.entry import Entry
from tvmscope.core.artifact import Artifact
from tvmscope.core.model import Prepared, TensorSpec
from tvmscope.core.options import LoadOptions, MeasureOptions
from tvmscope.core.precision import FLOAT32
from tvmscope.core.session import load
from tvmscope.errors import BuildError, UsageError
from tvmscope.models.inputs import seeded
from tvmscope.progress import Silent
from tvmscope.stages import build, job
from tvmscope.stages.artifact import inputs_for
from tvmscope.stages.build import build_rows
from tvmscope.stages.measure_rows import Expected, measure_rows, unmeasured
from tvmscope.stages.options import Options
from tvmscope.stages.planning.plan import plan_rows
from tvmscope.stages.planning.rows import PlannedRow
from tvmscope.tuning.records.matching import Found

READY = Prepared(Path("nowhere"), samples.MODEL)


def test_an_artifact_gets_the_seeded_inputs_of_its_model() -> None:
    specs = (TensorSpec("x", (2, 3), "float32"), TensorSpec("attention_mask", (1, 4), "int64"))
    found = inputs_for(SimpleNamespace(inputs=specs), Options(load=LoadOptions(seed=5)))  # type: ignore[arg-type]
    assert list(found) == ["x", "attention_mask"]
    for spec in specs:
        np.testing.assert_array_equal(found[spec.name], seeded(spec, 5))


def planned(backend: str = "tvmscope", **variant: Any) -> PlannedRow:
    manifest = all_backends()[0][backend]
    found = key(backend, pipeline=manifest.compiles, **variant)
    return PlannedRow(backend=manifest, target=samples.CPU, key=found, unavailable=None)


@dataclass
class Shop:
    """Compilers that note what happens, and fail or wait where they are told to."""

    fails: dict[str, Exception] = field(default_factory=dict)
    waits: dict[str, Event] = field(default_factory=dict)
    said: list[str] = field(default_factory=list)

    def builder(self, ready: Prepared, threads: int) -> FakeBuilder:
        return FakeBuilder(self)


@dataclass
class FakeBuilder:
    shop: Shop
    closed: bool = False

    def __enter__(self) -> FakeBuilder:
        return self

    def __exit__(self, *_: object) -> None:
        if not self.closed:
            self.closed = True
            self.shop.said.append("closed")

    def build(self, output: Path, target: Any, options: Any) -> Artifact:
        name = output.name.removesuffix("-cpu-znver4")
        if name in self.shop.waits:
            assert self.shop.waits[name].wait(20)
        self.shop.said.append(name)
        if name in self.shop.fails:
            raise self.shop.fails[name]
        return replace(samples_artifact(), path=output)


def samples_artifact() -> Artifact:
    return Artifact(
        path=Path("x"), model="m", model_digest="d", library_digest="l", source="m", format="onnx",
        weights="file", inputs=(), outputs=(), target=samples.CPU, pipeline="tvmscope",
        precision=FLOAT32, exec_mode="bytecode", build_s=1.5, size_bytes=1,
    )  # fmt: skip


@pytest.fixture
def shop(monkeypatch: pytest.MonkeyPatch) -> Shop:
    made = Shop()
    monkeypatch.setattr(build, "Builder", made.builder)
    return made


def built(rows: list[PlannedRow], tmp_path: Path, seen: list[Any] | None = None) -> list[Entry]:
    seen = [] if seen is None else seen
    return list(build_rows(rows, READY, Options(), tmp_path, Silent(), seen.append))


def test_every_row_becomes_an_entry_in_its_place(shop: Shop, tmp_path: Path) -> None:
    seen: list[Any] = []
    rows = [planned("onnxruntime"), planned(), planned("tvm")]
    entries = built(rows, tmp_path, seen)
    assert [e.key for e in entries] == [row.key for row in rows]
    assert [e.build_s for e in entries] == [None, 1.5, 1.5]
    assert entries[1].request.artifact == str(tmp_path / rows[1].key.folder_name)
    assert entries[0].request.artifact is None
    assert len(seen) == 3, "before the first build, and after each"
    assert [e.build_s for e in seen[0]] == [None, None, None]


def test_a_compiler_ends_with_its_chain(shop: Shop, tmp_path: Path) -> None:
    built([planned(), planned(graph=True), planned("tvm")], tmp_path)
    assert shop.said.count("closed") == 2, "rows that differ in graphs only share a compiler"
    both = [shop.said.index(name) for name in ("tvmscope", "tvmscope-graph")]
    assert "closed" not in shop.said[both[0] : both[1]]
    assert shop.said[-1] == "closed", "no compiler is there when building is over"


def test_chains_are_built_at_the_same_time_where_cores_are_plenty(
    shop: Shop, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(build, "usable_cores", lambda: 8)
    shop.waits["tvmscope"] = Event()
    monkeypatch.setattr(
        Silent, "step", lambda *_: shop.waits["tvmscope"].set()
    )  # the other row is done
    built([planned(), planned("tvm")], tmp_path)
    assert [name for name in shop.said if name != "closed"] == ["tvm", "tvmscope"]


def test_a_failed_build_is_the_rows_reason_and_the_others_go_on(shop: Shop, tmp_path: Path) -> None:
    shop.fails["tvmscope"] = BuildError("no linker")
    first, second = built([planned(), planned("tvm")], tmp_path)
    assert first.failure == "no linker"
    assert second.build_s == 1.5
    assert [r.status for r in unmeasured([first, second]).results] == ["failed", "interrupted"]


def test_a_wrong_request_ends_the_building(shop: Shop, tmp_path: Path) -> None:
    shop.fails["tvmscope"] = UsageError("no pass named x")
    with pytest.raises(UsageError, match="no pass named x"):
        built([planned(), planned("tvm")], tmp_path)


def test_what_records_say_is_handed_in(monkeypatch: pytest.MonkeyPatch) -> None:
    options = Options(backends=("tvmscope-tuned",))
    asked: list[int] = []

    def records(target: Any, threads: int) -> Found:
        asked.append(threads)
        return Found(troubles=("records.jsonl cannot be read",))

    (row,) = plan_rows(options, [samples.CPU], "onnx", records)
    assert asked
    assert row.unavailable == "records.jsonl cannot be read"
    (row,) = plan_rows(options, [samples.CPU], "onnx")
    assert "there are no tuning records" in (row.unavailable or "")


QUICK = Options(measure=MeasureOptions(duration_s=0.2, warmup=1, iterations=9, timeout_s=20))


def test_a_race_loads_verifies_measures_and_compares(tmp_path: Path) -> None:
    np.savez(tmp_path / "reference.npz", **fakes.OUTPUTS)
    seen: list[Any] = []
    entries = [fakes.entry("tvmscope"), fakes.entry("onnxruntime", run_s=0.01)]
    expected = Expected(tmp_path / "reference.npz", "torch")
    measured = measure_rows(entries, QUICK, expected, Silent(), on_update=seen.append)
    assert [r.status for r in measured.results] == ["ok", "ok"]
    assert measured.results[0].accuracy is not None
    assert measured.results[0].accuracy.reference == "torch"
    (found,) = measured.comparisons
    assert (found.key.name, found.against.name) == ("tvmscope", "onnxruntime")
    assert found.verdict == "faster"
    assert seen[-1] == measured
    assert seen[0].comparisons == ()


@dataclass
class Listening(Silent):
    folders: list[Path] = field(default_factory=list)

    def saved(self, folder: Path) -> None:
        self.folders.append(folder)


@pytest.fixture
def listening(monkeypatch: pytest.MonkeyPatch) -> Listening:
    @contextmanager
    def loaded(*_: Any) -> Iterator[Prepared]:
        yield READY

    monkeypatch.setattr(job, "loaded", loaded)
    return Listening()


def test_a_job_saves_each_step_and_says_where(listening: Listening, tmp_path: Path) -> None:
    options = Options(output=tmp_path / "out")
    with job.loaded_job("net", options, (samples.CPU,), "cpu", listening) as at_work:
        assert not (tmp_path / "out").exists(), "nothing is there before there is something to keep"
        at_work.keep(replace(at_work.session, warnings=("first",)))
        assert load(tmp_path / "out").warnings == ("first",)
        assert not load(tmp_path / "out").complete
        assert listening.folders == []
        at_work.save_complete()
        at_work.write_reports()
    assert load(tmp_path / "out").complete
    assert (tmp_path / "out" / "report.html").is_file()
    assert listening.folders == [tmp_path / "out"]


def test_an_interrupted_job_says_where_it_is_kept(listening: Listening, tmp_path: Path) -> None:
    options = Options(output=tmp_path / "out")

    def work() -> None:
        with job.loaded_job("net", options, (samples.CPU,), "cpu", listening) as at_work:
            at_work.keep(at_work.session)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        work()
    assert listening.folders == [tmp_path / "out"]
    assert not load(tmp_path / "out").complete


def test_a_job_that_kept_nothing_says_nothing(listening: Listening, tmp_path: Path) -> None:
    def work() -> None:
        with job.loaded_job("net", Options(output=tmp_path), (samples.CPU,), "cpu", listening):
            raise UsageError("not so")

    with pytest.raises(UsageError):
        work()
    assert listening.folders == []


def test_earlier_work_is_not_overwritten(listening: Listening, tmp_path: Path) -> None:
    (tmp_path / "session.json").write_text("{}")
    with (
        pytest.raises(UsageError, match="--force"),
        job.loaded_job("net", Options(output=tmp_path), (samples.CPU,), "cpu", listening),
    ):
        pass
