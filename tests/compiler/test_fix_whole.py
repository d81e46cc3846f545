"""`analyze --fix` on a small network, from TVM as it comes to what we make of it."""

from __future__ import annotations

from pathlib import Path

import pytest

import tvmscope
from support.torch_nets import two_convolutions
from tvmscope.core.session import Session, load
from tvmscope.workflow.fixing import calibration

pytestmark = pytest.mark.slow  # long

NET = two_convolutions((32, 32), 5, (1, 3, 64, 64))


@pytest.fixture(scope="module")
def fixed(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Session, int]:
    folder = tmp_path_factory.mktemp("fixed")
    (folder / "net.py").write_text(NET)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_DATA_HOME", str(folder / "data"))
        session = tvmscope.analyze(
            str(folder / "net.py"), target="cpu", backends="tvmscope", pipeline="tvm", fix=True,
            iterations=9, warmup=1, output=folder / "out",
        )  # fmt: skip
        return folder / "out", session, len(calibration.history())


def test_the_schedules_are_found_missing_and_brought_in(fixed) -> None:
    _, session, _ = fixed
    first = session.fixes[0]
    assert (first.rule, first.fix, first.outcome) == (
        "no-schedule", {"pipeline": "tvmscope"}, "kept",
    )  # fmt: skip
    assert first.achieved_s is not None
    assert first.achieved_s > 0
    rows = {r.task.variant.label: r for r in session.results}
    assert rows["tvmscope fixed"].status == rows["tvmscope"].status == "ok"
    assert rows["tvmscope fixed"].task.variant.pipeline == "tvmscope"
    assert "no-schedule" not in [f.rule for f in session.findings], "what is left is diagnosed"
    found = [c for c in session.comparisons if c.key.name == "tvmscope fixed"]
    assert [c.verdict for c in found] == ["faster"]


def test_everything_is_kept(fixed) -> None:
    folder, session, lines = fixed
    assert load(folder) == session
    assert lines == len(session.fixes)
    assert "Fixes that were tried" in (folder / "report.md").read_text()
    assert "Fixes that were tried" in (folder / "report.html").read_text()


def test_the_fixed_artifact_is_ready_to_run(fixed) -> None:
    folder, _, _ = fixed
    (artifact,) = (folder / "artifacts").glob("tvmscope-fixed-*")
    assert tvmscope.load_artifact(artifact).artifact.pipeline == "tvmscope"
    assert not list((folder / "artifacts").glob("fix-*"))
