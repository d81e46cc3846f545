"""Rows that are planned: which there are, and that everything finds its row by the key."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from support import profiles, samples
from support.rows import key
from tvmscope import extras
from tvmscope.backends.api import Backend
from tvmscope.core.model import Prepared
from tvmscope.core.precision import BFLOAT16, FLOAT16, FLOAT32, TF32
from tvmscope.core.tuning import Candidate, Choice
from tvmscope.errors import UsageError
from tvmscope.progress import Silent
from tvmscope.runtime.artifact import save_kernels
from tvmscope.stages import profile
from tvmscope.stages.job import Job
from tvmscope.stages.options import Options
from tvmscope.stages.planning import plan, tuned_rows
from tvmscope.stages.planning.rows import PlannedRow
from tvmscope.tuning.records.matching import Found

CHOICES = {"conv": Choice(candidate=Candidate(), source="a.jsonl", cpu="x", threads=2, date="")}


def backend(name: str, **more: Any) -> Backend:
    return Backend(
        **{
            "name": name, "kinds": ("cpu", "cuda"), "formats": ("torch", "onnx"), "load": "",
            "unavailable": lambda device: None, "profiles": True, **more,
        }
    )  # fmt: skip


@pytest.fixture
def known(monkeypatch: pytest.MonkeyPatch) -> dict[str, Backend]:
    """Made-up backends on a machine that runs every target."""
    compiled = {"family": "ours", "compiles": "tvmscope", "precisions": (FLOAT32, FLOAT16)}
    found = {
        b.name: b
        for b in (
            backend("onnxruntime", needs_onnx=True),
            backend("tvmscope", **compiled),
            backend("tvmscope-tuned", tuned=True, **compiled),
        )
    }
    monkeypatch.setattr(plan, "all_backends", lambda: (found, {}))
    monkeypatch.setattr(plan, "cpu_problem", lambda target: None)
    return found


def planned(options: Options) -> list[PlannedRow]:
    """The rows of an ONNX model on a CPU for which there are records."""
    return plan.plan_rows(options, (samples.CPU,), "onnx", lambda *_: Found(choices=CHOICES))


def test_a_key_is_made_of_backend_target_and_precision(known: dict[str, Backend]) -> None:
    options = Options(precisions=(FLOAT32, FLOAT16))
    rows = planned(options)
    ours = {"pipeline": "tvmscope"}
    tuned = {**ours, "tuning": "a.jsonl"}
    assert [row.key for row in rows] == [
        key("onnxruntime"),
        key("tvmscope", **ours),
        key("tvmscope-tuned", **tuned),
        key("tvmscope", precision=FLOAT16, **ours),
        key("tvmscope-tuned", precision=FLOAT16, **tuned),
    ]
    assert all(row.key.target == row.target.label for row in rows)


def test_a_precision_that_only_peers_have_is_a_row_with_a_reason(
    known: dict[str, Backend],
) -> None:
    known["torch"] = backend("torch", precisions=(FLOAT32, BFLOAT16))
    ours, torch = planned(Options(precisions=(BFLOAT16,)))
    assert (ours.key.name, torch.key.name) == ("tvmscope bf16", "torch bf16")
    assert not ours.builds
    assert str(ours.unavailable) == "computes in float32, float16 only, not in bfloat16"
    assert torch.unavailable is None
    with pytest.raises(UsageError, match="no backend can run this"):
        planned(Options(precisions=(BFLOAT16,), backends=("tvmscope",)))


def test_our_rows_compute_in_bfloat16_on_a_gpu() -> None:
    from tvmscope.backends.tvm import BACKENDS

    found = {b.name: BFLOAT16 in b.cuda_precisions for b in BACKENDS if b.cuda_precisions}
    assert found == {"tvmscope": True, "tvmscope-tuned": True, "tvm": False, "tvm-tuned": False}


def test_tf32_is_a_row_of_its_own_on_a_gpu_only(known: dict[str, Backend]) -> None:
    known["torch"] = backend("torch", cuda_precisions=(FLOAT32, TF32))
    options = Options(precisions=(FLOAT32, TF32), backends=("torch",), graph=False)
    rows = plan.plan_rows(options, (samples.CUDA,), "torch")
    assert [row.key.name for row in rows] == ["torch", "torch tf32"]
    assert len({row.key.group for row in rows}) == 2, "the two are not compared"
    with pytest.raises(UsageError, match="no backend can run this"):
        plan.plan_rows(replace(options, precisions=(TF32,)), (samples.CPU,), "torch")


def test_a_backend_that_has_graphs_only_is_one_row(known: dict[str, Backend]) -> None:
    known["best"] = backend("best", graphs=True, only_graphs=True)

    def names(graph: bool | None) -> list[str]:
        options = Options(backends=("best",), graph=graph)
        return [row.key.name for row in plan.plan_rows(options, (samples.CUDA,), "torch")]

    assert names(None) == names(True) == ["best graph"]
    assert names(False) == []


def test_a_row_that_is_moved_or_changed_has_another_key(known: dict[str, Backend]) -> None:
    row = planned(Options(backends=("tvmscope",)))[0]
    moved = row.moved(samples.CUDA)
    assert (moved.key.target, moved.key.device, moved.target) == (
        "cuda:sm_90", "cuda", samples.CUDA,
    )  # fmt: skip
    assert row.changed(fixed=True).key == replace(row.key, variant=replace(row.variant, fixed=True))


def test_onnx_is_exported_for_backends_that_are_here_and_want_it(
    known: dict[str, Backend],
) -> None:
    def wanted(**more: Any) -> bool:
        made = plan.with_needed_export(Options(**more), (samples.CPU,))
        return made.load.need_onnx

    assert wanted()
    assert not wanted(backends=("tvmscope",))
    assert not wanted(precisions=(FLOAT16,)), "it has no such row"
    known["onnxruntime"] = replace(known["onnxruntime"], unavailable=lambda device: "missing")
    assert not wanted()
    with pytest.raises(UsageError, match="no backend can run this"):
        wanted(backends=("onnxruntime",), precisions=(FLOAT16,))


def test_a_tuned_row_knows_the_untuned_one(known: dict[str, Backend], tmp_path: Path) -> None:
    _peer, plain, tuned = planned(Options())
    assert tuned.untuned == plain.key
    assert not tuned_rows.are_useless(tuned, tmp_path), "nothing is compiled yet"
    folder = tmp_path / plain.key.folder_name
    folder.mkdir()
    save_kernels([profiles.nest("k", ("serial", 4), workload="matmul")], folder)
    assert tuned_rows.are_useless(tuned, tmp_path)
    save_kernels([profiles.nest("k", ("serial", 4), workload="conv")], folder)
    assert not tuned_rows.are_useless(tuned, tmp_path)


def test_a_tuned_row_alone_has_no_untuned_one(known: dict[str, Backend], tmp_path: Path) -> None:
    (tuned,) = planned(Options(backends=("tvmscope-tuned",)))
    assert tuned.untuned is None
    assert not tuned_rows.are_useless(tuned, tmp_path)


def test_a_graph_is_profiled_without_pytorch_by_backends_that_can(
    known: dict[str, Backend], monkeypatch: pytest.MonkeyPatch
) -> None:
    _, plain, _ = planned(Options())
    graph = plain.moved(samples.CUDA).changed(graph=True)
    able = replace(graph, backend=replace(graph.backend, profiles_graphs=True))
    monkeypatch.setattr(extras, "missing", lambda name: "not installed")
    assert plain.moved(samples.CUDA).has_profiler
    assert not graph.has_profiler
    assert able.has_profiler


def test_profiles_join_results_by_key_in_whatever_order(
    known: dict[str, Backend], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    rows = planned(Options())
    peer, plain, tuned = rows
    session = samples.session(
        samples.result(tuned.key, 0.04),
        samples.result(plain.key, None, status="failed", reason="it broke"),
        samples.result(peer.key, 0.05),
    )
    seen: list[Any] = []

    def profiled(session: Any, entries: Any, *_: Any, **__: Any) -> Any:
        seen.extend(entries)
        yield session

    monkeypatch.setattr(profile, "profile_entries", profiled)
    job = Job(
        ready=Prepared(tmp_path, samples.MODEL),
        options=Options(),
        progress=Silent(),
        folder=tmp_path,
        session=session,
    )
    list(profile.profile_rows(job, rows))
    assert [entry.key for entry in seen] == [peer.key, tuned.key]
    built = seen[1].request.artifact
    assert built == str(tmp_path / "artifacts" / "tvmscope-tuned-cpu-znver4")


def test_what_searches_first_is_a_row_only_where_it_is_asked_for(
    known: dict[str, Backend],
) -> None:
    known["tvm-tuned"] = backend(
        "tvm-tuned", family="tvm", compiles="tvm-tuned", searches=True, graphs=True,
        unavailable=lambda device: None if device == "cpu" else "no CUDA device here",
    )  # fmt: skip
    assert "tvm-tuned" not in [row.key.name for row in planned(Options())]
    (row,) = planned(Options(backends=("tvm-tuned",)))
    assert (row.variant.pipeline, row.builds) == ("tvm-tuned", True)
    (row, _graph) = plan.plan_rows(Options(backends=("tvm-tuned",)), (samples.CUDA,), "onnx")
    assert not row.builds, "its schedules cannot be measured here"
