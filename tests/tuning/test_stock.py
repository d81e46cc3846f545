"""Stock TVM, tuned: MetaSchedule over TVM's own pipeline, as a row of the table."""

from __future__ import annotations

from pathlib import Path

import pytest

import tvmscope
from support import onnx_nets
from support.references import EXTRACT, PREPARE
from support.tiny_tunables import parallel_trace
from tvmscope.core.model import Prepared
from tvmscope.core.options import CompileOptions, LoadOptions
from tvmscope.core.target import Target
from tvmscope.core.tuning import Candidate, Trial, TuningTask
from tvmscope.measure.remote import here
from tvmscope.measure.worker import run_isolated
from tvmscope.runtime.artifact import read_kernels
from tvmscope.tuning.records import lookup as records
from tvmscope.tuning.records.database import Database

QUICK = {"target": "cpu", "iterations": 2, "warmup": 1, "threads": 2}


@pytest.fixture(scope="module")
def net(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return onnx_nets.classifier(tmp_path_factory.mktemp("stock") / "net.onnx")


@pytest.fixture(scope="module")
def tasks(net: Path, target: Target, tmp_path_factory: pytest.TempPathFactory) -> list[TuningTask]:
    folder = tmp_path_factory.mktemp("stock-tasks")
    model = run_isolated(PREPARE, str(net), str(folder / "prepared"), LoadOptions())
    ready = Prepared(model=model, folder=folder / "prepared")
    options = CompileOptions(pipeline="tvm-tuned")
    return run_isolated(EXTRACT, ready, target, options, folder / "functions")


def test_its_tasks_have_no_candidates_of_our_rules(tasks: list[TuningTask]) -> None:
    assert any("conv2d" in task.kernel for task in tasks)
    for task in tasks:
        assert (task.rule, task.candidates) == (None, ())
        assert task.key.startswith("tir ")


def test_what_was_found_before_is_used_without_a_search(
    net: Path, tasks: list[TuningTask], target: Target, tmp_path: Path
) -> None:
    heavy = max(tasks, key=lambda task: task.flops or 0.0)
    trace = run_isolated(here(parallel_trace), Path(heavy.lowerings[0].function))
    host = records.host(target, 2)
    trial = Trial(
        workload=heavy.key, candidate=Candidate(trace=trace), target=target, threads=2,
        status="ok", seconds=(1e-6,), cpu=host.cpu, tvm=host.tvm,
    )  # fmt: skip
    Database(tmp_path / "records.jsonl").append(trial)
    session = tvmscope.bench(
        str(net), backends="tvm-tuned", tvm_budget_s=0.0, output=tmp_path / "session",
        db=str(tmp_path / "records.jsonl"), **QUICK,
    )  # fmt: skip
    (tuned,) = session.results
    assert tuned.status == "ok", tuned.reason
    assert (tuned.task.variant.pipeline, tuned.task.variant.tuning) == ("tvm-tuned", "metaschedule")
    assert any("1 of" in warning for warning in tuned.warnings)
    folder = tmp_path / "session" / "artifacts" / tuned.task.key.folder_name
    assert [k.tuned.source for k in read_kernels(folder) if k.tuned] == ["metaschedule"]


def test_a_search_that_finds_nothing_is_a_row_with_its_reason(net: Path, tmp_path: Path) -> None:
    session = tvmscope.bench(
        str(net), backends="tvm-tuned", tvm_budget_s=0.0, output=tmp_path / "session",
        db=str(tmp_path / "empty.jsonl"), **QUICK,
    )  # fmt: skip
    (tuned,) = session.results
    assert tuned.status == "unavailable"
    assert "--tvm-budget" in (tuned.reason or "")


@pytest.mark.slow
def test_metaschedule_makes_tvms_own_pipeline_faster(net: Path, tmp_path: Path) -> None:
    session = tvmscope.bench(
        str(net), backends="tvm,tvm-tuned,tvmscope", tvm_budget_s=60.0,
        output=tmp_path / "session", db=str(tmp_path / "records.jsonl"), **QUICK,
    )  # fmt: skip
    assert [r.status for r in session.results] == ["ok"] * 3
    trials = list(Database(tmp_path / "records.jsonl").trials())
    assert {trial.stage for trial in trials} == {"search"}, "never a choice of our own rows"
