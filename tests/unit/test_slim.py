"""A slim session says what the whole one says, in a small file; those in docs/ can be read."""

from __future__ import annotations

from pathlib import Path

import jsonschema
import pytest

from support import report_samples, samples
from tvmscope.cli.main import main
from tvmscope.core.session import Session, load, save, to_json
from tvmscope.errors import SchemaError
from tvmscope.report.formats import console, json_, markdown
from tvmscope.report.renderers import renderer
from tvmscope.report.slim import slim

H200 = sorted((Path(__file__).parents[2] / "docs" / "h200").rglob("*.json.*"))
LIMIT_BYTES = 60_000


@pytest.fixture(params=["gz", "xz"])
def packed(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    file = tmp_path / f"small.json.{request.param}"
    renderer("slim").write([samples.complete()], file)
    return file


def tables(session: Session) -> str:
    return markdown.render([session])


def test_tables_are_those_of_the_whole_session(packed: Path) -> None:
    assert tables(load(packed)) == tables(samples.complete())


def test_it_is_a_session_by_the_schema() -> None:
    jsonschema.validate(slim(samples.complete()), json_.schema())


def test_samples_keep_five_digits_and_counts_all() -> None:
    data = slim(samples.complete())
    whole = to_json(samples.complete())
    for row, full in zip(data["results"], whole["results"], strict=True):
        for short, exact in zip(row.get("rounds_s", ()), full.get("rounds_s", ()), strict=True):
            assert short == pytest.approx(exact, rel=5e-5)
    flops = [[k["flops"] for k in p["kernels"]] for p in data["profiles"]]
    assert flops == [[k["flops"] for k in p["kernels"]] for p in whole["profiles"]]


def test_a_small_file_is_made_and_read_by_report(tmp_path: Path) -> None:
    folder, file = tmp_path / "whole", tmp_path / "small.json.gz"
    whole = save(report_samples.profiled(), folder)
    assert main(["report", str(folder), "-o", str(file), "-q"]) == 0
    assert file.stat().st_size < whole.stat().st_size / 5
    assert main(["report", str(file), "-o", str(tmp_path / "page.html"), "-q"]) == 0
    assert "<html" in (tmp_path / "page.html").read_text()


def test_it_needs_a_file_and_one_session(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    folder = save(samples.complete(), tmp_path).parent
    assert main(["report", str(folder), "--format", "slim"]) == 2
    assert "give -o FILE.json.gz" in capsys.readouterr().err
    both = ("report", str(folder), str(folder), "-o", str(tmp_path / "x.json.gz"))
    assert main(list(both)) == 2
    assert "one session, not 2" in capsys.readouterr().err


def test_a_damaged_file_is_named(packed: Path) -> None:
    packed.write_bytes(packed.read_bytes()[:-20])
    with pytest.raises(SchemaError, match=r"small\.json\..z cannot be read as a session"):
        load(packed)


def test_there_are_sessions_of_an_h200() -> None:
    assert len(H200) == 61


@pytest.mark.parametrize("file", H200, ids=lambda f: f.name)
def test_each_session_of_the_docs_is_small_and_readable(
    file: Path, capsys: pytest.CaptureFixture
) -> None:
    assert file.stat().st_size < LIMIT_BYTES
    assert main(["report", str(file)]) == 0
    assert "cuda:sm_90" in capsys.readouterr().out
    assert tables(load(file)).startswith("## ")
    assert console.render_all([load(file)]) is not None
