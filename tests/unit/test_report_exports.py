"""Files for other tools: each in the form that its reader expects."""

from __future__ import annotations

import csv
import io
import json
from itertools import pairwise
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from support import report_samples, samples
from tvmscope.core.session import Session, to_json
from tvmscope.errors import UsageError
from tvmscope.report.formats import csv_, google_benchmark, markdown, model_explorer, trace
from tvmscope.report.redact import redact
from tvmscope.report.renderers import by_file, renderers
from tvmscope.report.sections import figures
from tvmscope.storage.files import read_text

NEEDS_PROFILE = "model-explorer"


def events(*sessions: Session) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(trace.render(sessions))["traceEvents"]
    return found


def test_trace_has_a_process_per_backend_and_a_slice_per_kernel() -> None:
    session = report_samples.profiled()
    found = events(session)
    names = [e["args"]["name"] for e in found if e["name"] == "process_name"]
    assert names[0] == "resnet50: tvmscope @ cpu:znver4"
    assert len(names) == 4
    kernels = [e for e in found if e["ph"] == "X" and e["pid"] == 1 and e["tid"] == 1]
    assert len(kernels) == len(session.profiles[0].kernels) + 1  # and the time outside them
    assert kernels[0]["dur"] == pytest.approx(session.profiles[0].kernels[0].total_s * 1e6)
    for before, after in pairwise(kernels):
        assert after["ts"] == pytest.approx(before["ts"] + before["dur"])


def test_trace_of_a_session_without_profiles_shows_its_runs() -> None:
    found = [e for e in events(samples.failed_backend()) if e["ph"] == "X"]
    assert len(found) == 45
    assert found[0]["dur"] == pytest.approx(0.048 * 1e6, rel=0.05)


def test_processes_of_several_models_are_told_apart() -> None:
    found = events(samples.failed_backend(), samples.complete())
    named = [e["pid"] for e in found if e["name"] == "process_name"]
    assert named == list(range(1, len(named) + 1))


def test_google_benchmark_has_a_repetition_per_round_and_aggregates() -> None:
    document = json.loads(google_benchmark.render([samples.failed_backend()]))
    entries = document["benchmarks"]
    rounds = [e for e in entries if e.get("repetition_index") is not None]
    assert len(rounds) == 9
    assert {e["run_name"] for e in rounds} == {"resnet50/tvmscope/cpu:znver4"}
    assert all(e["iterations"] == 5 and e["time_unit"] == "ns" for e in rounds)
    aggregates = {e["aggregate_name"]: e for e in entries if e["run_type"] == "aggregate"}
    assert set(aggregates) == {"mean", "median", "stddev"}
    assert aggregates["median"]["real_time"] == pytest.approx(0.048e9, rel=0.01)
    assert aggregates["median"]["name"].endswith("_median")
    assert "repeats real_time" in document["context"]["note"]


@pytest.mark.parametrize("name", ["failed_backend", "wrong_result", "unavailable"])
def test_google_benchmark_gives_an_error_and_no_time_for_what_does_not_count(name: str) -> None:
    entries = json.loads(google_benchmark.render([samples.ALL[name]()]))["benchmarks"]
    errors = [e for e in entries if e.get("error_occurred")]
    assert len(errors) == 1
    assert errors[0]["error_message"]
    assert "real_time" not in errors[0]


def test_google_benchmark_has_items_per_second_in_throughput_mode() -> None:
    entries = json.loads(google_benchmark.render([samples.throughput()]))["benchmarks"]
    assert entries[0]["items_per_second"] == pytest.approx(20, rel=0.05)


def test_model_explorer_gives_milliseconds_by_source_operator() -> None:
    session = report_samples.profiled()
    document = json.loads(model_explorer.render([session]))
    assert document["results"]["layer4.0.conv"]["value"] == pytest.approx(5.0)
    assert [step["stop"] for step in document["gradient"]] == [0, 0.5, 1]
    several = json.loads(model_explorer.render([session, samples.complete()]))
    assert "results" in several["resnet50"]


def test_model_explorer_says_that_a_profile_is_missing() -> None:
    with pytest.raises(UsageError, match="tvmscope profile"):
        model_explorer.render([samples.failed_backend()])


def rows(text: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(text)))


def test_csv_has_a_line_per_result_in_seconds() -> None:
    found = rows(csv_.render([samples.complete(), samples.wrong_result()]))
    assert len(found) == 7
    assert found[0]["backend"] == "tvmscope"
    assert float(found[0]["median_s"]) == pytest.approx(0.0482, rel=0.01)
    assert found[2]["tvmscope_is"] == "faster"
    assert found[-1]["status"] == "wrong"
    assert found[-1]["passed"] == "False"


def test_csv_cells_are_no_formulas_and_one_line() -> None:
    session = samples.session(
        samples.result("tvmscope", 0.1),
        model=samples.replace(samples.MODEL, name="=HYPERLINK(1)\nx"),
    )
    assert rows(csv_.render([session]))[0]["model"] == "'=HYPERLINK(1) x"


def test_csv_file_brings_its_kernels_along(tmp_path: Path) -> None:
    written = renderers()["csv"].write([report_samples.profiled()], tmp_path / "times.csv")
    assert [f.name for f in written] == ["times.csv", "times-kernels.csv"]
    found = rows(written[1].read_text())
    assert found[0]["source_ops"] == "layer1.0.conv;layer1.0.bn;layer1.0.relu"
    assert found[-1]["flops"] == ""  # not known, which is not 0


def test_figures_are_drawn_for_what_there_is() -> None:
    assert list(figures.figures(report_samples.profiled())) == [
        "backends", "waterfall", "roofline", "kernels",
    ]  # fmt: skip
    assert list(figures.figures(samples.failed_backend())) == ["backends"]
    assert figures.figures(samples.failed_model()) == {}


@pytest.mark.parametrize("name", ["profiled", "complete", "evil", "long", "several_targets"])
def test_figures_are_well_formed_and_hold_names_as_text(name: str) -> None:
    for document in figures.figures(report_samples.ALL[name]()).values():
        root = ElementTree.fromstring(document)
        assert not [e for e in root.iter() if e.tag.endswith(("script", "}a"))]
        assert max(len(text) for text in root.itertext()) < 3000


def test_the_same_session_gives_the_same_figure() -> None:
    first, second = (figures.figures(samples.failed_backend()) for _ in range(2))
    assert first == second


def test_figures_show_the_numbers_of_the_session() -> None:
    drawn = figures.figures(report_samples.profiled())
    texts = {
        name: " ".join(ElementTree.fromstring(document).itertext())
        for name, document in drawn.items()
    }
    assert "44.0 ms" in texts["backends"]
    assert "−1.37 ms" in texts["waterfall"]
    assert "arithmetic 200 GFLOP/s" in texts["roofline"]
    assert "5.00 ms (11%)" in texts["kernels"]


def test_markdown_file_links_the_figures_beside_it(tmp_path: Path) -> None:
    renderer = renderers()["markdown"]
    written = renderer.write([report_samples.profiled()], tmp_path / "my report.md")
    text = written[0].read_text()
    assert len(written) == 5
    for file in written[1:]:
        assert f"]({file.relative_to(tmp_path)})" in text
    assert "figures/" not in markdown.render([report_samples.profiled()])  # stdout has no files


def test_figures_of_several_models_do_not_overwrite_one_another(tmp_path: Path) -> None:
    sessions = [samples.failed_backend(), samples.complete()]
    files = markdown.files(sessions, "report.md")
    assert {"figures/report-1-backends.svg", "figures/report-2-backends.svg"} < set(files)


@pytest.mark.parametrize("form", renderers())
@pytest.mark.parametrize("name", report_samples.ALL)
def test_every_format_renders_every_session(form: str, name: str, tmp_path: Path) -> None:
    session = report_samples.ALL[name]()
    if form == NEEDS_PROFILE and not session.profiles:
        pytest.skip("says that a profile is missing: tested above")
    renderer = renderers()[form]
    for file in renderer.write([session], tmp_path / f"out{renderer.suffix}"):
        text = read_text(file)
        assert text
        assert "\x1b" not in text
        if file.suffix == ".json":
            json.loads(text)


@pytest.mark.parametrize(
    ("name", "form"),
    [
        ("a.html", "html"), ("a.md", "markdown"), ("a.json", "json"), ("a.trace.json", "trace"),
        ("a.benchmark.json", "google-benchmark"), ("a.nodes.json", "model-explorer"),
        ("a.csv", "csv"), ("a.svg", "svg"), ("a.txt", "console"), ("a.pdf", None),
        ("a.json.gz", "slim"), ("a.json.xz", "slim"),
    ],
)  # fmt: skip
def test_a_file_name_chooses_the_format(name: str, form: str | None) -> None:
    assert by_file(Path(name)) == form


def private() -> Session:
    """Host, user and folders in every place that a run can leave them."""
    secret = "/home/jane/secret/m.onnx on lab-7 by jdoe"
    base = report_samples.profiled()
    first = base.profiles[0]
    kernel = samples.replace(first.kernels[0], name=secret, source_ops=(secret,))
    profile = samples.replace(first, how=secret, kernels=(kernel, *first.kernels[1:]))
    finding = samples.replace(
        base.findings[0], title=secret, evidence=secret, advice=secret, kernels=(secret,),
        fix={"tuning": secret},
    )  # fmt: skip
    failed = samples.result("openvino", None, status="failed", reason=secret)
    return samples.replace(
        base,
        command=f"tvmscope analyze {secret}",
        results=(*base.results[:-1], failed),
        profiles=(profile, *base.profiles[1:]),
        findings=(finding,),
        warnings=(secret,),
        model=samples.replace(base.model, name=secret, source=secret, notes=(secret,)),
        roofs=tuple(samples.replace(r, how=secret) for r in base.roofs),
    )


@pytest.mark.parametrize("form", renderers())
def test_redacted_documents_hold_no_host_user_or_folder(form: str, tmp_path: Path) -> None:
    renderer = renderers()[form]
    assert "lab-7" in json.dumps(to_json(private()))
    session = redact(private(), user="jdoe")
    for file in renderer.write([session], tmp_path / f"out{renderer.suffix}"):
        text = read_text(file)
        for word in ("lab-7", "jane", "jdoe", "secret"):
            assert word not in text, (file.name, word)
