"""Two artifacts compared on pictures, as users do it."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from support import onnx_nets, samples
from support.command import refuses, run
from tvmscope.core.session import save

QUICK = ("--iterations", "3", "--warmup", "0", "--input-scale", "1/255")
Edit = Callable[[dict[str, Any]], None]


def edited(source: Path, place: Path, edit: Edit) -> Path:
    """A copy of an artifact whose meta.json says something else."""
    shutil.copytree(source, place)
    data = json.loads((place / "meta.json").read_text())
    edit(data)
    (place / "meta.json").write_text(json.dumps(data))
    return place


def compared(before: Path, after: Path, *args: str, code: int = 0) -> Any:
    done = run("compare", str(before), str(after), *args, *QUICK, "--json", "-q")
    assert done.returncode == code, done.stderr
    return json.loads(done.stdout)


def test_boxes_are_matched_and_kernels_named(artifacts: Path, pictures: Path) -> None:
    folder = artifacts / "detector"
    found = compared(folder, folder, "--image", str(pictures / "a.png"), str(pictures / "c.jpg"))
    assert [Path(s["picture"]).name for s in found["sightings"]] == ["a.png", "c.jpg"]
    for sighting in found["sightings"]:
        assert sighting["same"]
        for pair in sighting["boxes"]:
            assert pair["iou"] == pytest.approx(1)
            assert pair["before"]["index"] == pair["after"]["index"]
            assert pair["before"]["score"] == pytest.approx(pair["after"]["score"])
        assert sighting["boxes"]
    (row,) = found["rows"]
    assert row["before_s"] > 0
    assert found["kernels"]
    assert (found["left"], found["entered"], found["problem"]) == ([], [], None)


def test_a_classifiers_two_top_fives_and_a_bad_picture(artifacts: Path, pictures: Path) -> None:
    (pictures / "b.jpg").write_text("no image")
    folder = str(artifacts / "net")
    done = run("compare", folder, folder, "--image", str(pictures), *QUICK, "--no-profile")
    assert done.returncode == 1
    assert done.stderr.count("the same") == 2
    assert "is not an image" in done.stderr
    assert "class 0" in done.stderr


def test_other_answers_exit_with_3_and_are_shown(
    artifacts: Path, pictures: Path, tmp_path: Path
) -> None:
    onnx_nets.detector(tmp_path / "other.onnx", first_scores=(1.0, 0.9, 0.2))
    done = run("compile", "other.onnx", "-o", "built", "--target", "cpu", "-q", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    first = json.loads((artifacts / "detector" / "meta.json").read_text())
    same = edited(tmp_path / "built", tmp_path / "other",
                  lambda meta: meta.update(model_digest=first["model_digest"]))  # fmt: skip
    args = ("--image", str(pictures / "a.png"), "--no-profile")
    done = run("compare", str(artifacts / "detector"), str(same), *args, *QUICK, "--json")
    assert done.returncode == 3
    found = json.loads(done.stdout)
    assert not found["sightings"][0]["same"]
    assert "computes something else" in found["problem"]
    assert found["rows"] == []
    assert "different" in done.stderr
    assert "differs" in done.stderr


@pytest.mark.slow  # long
def test_both_with_the_scatter_fix_is_a_warning(
    artifacts: Path, pictures: Path, tmp_path: Path
) -> None:
    def fixed(meta: dict[str, Any]) -> None:
        meta["kernels"][0]["source_ops"] = ["/head/ScatterND_1"]

    def unfixed(meta: dict[str, Any]) -> None:
        fixed(meta)
        del meta["pass_times_s"]["fast-scatter"]  # as with --no-fast-scatter

    before = edited(artifacts / "net", tmp_path / "before", unfixed)
    after = edited(artifacts / "net", tmp_path / "after", fixed)
    args = ("--image", str(pictures / "a.png"), "--no-profile")
    assert compared(before, after, *args)["warnings"] == []
    (warning,) = compared(after, after, *args)["warnings"]
    assert "--no-fast-scatter" in warning


def test_pictures_and_inputs_exclude_each_other(artifacts: Path, pictures: Path) -> None:
    folder = str(artifacts / "net")
    done = run("compare", folder, folder, "--image", str(pictures / "a.png"), "--inputs",
               __file__, "-q")  # fmt: skip
    refuses(done, 2, "not both")


def test_pictures_of_sessions_are_refused(pictures: Path, tmp_path: Path) -> None:
    save(samples.complete(), tmp_path / "s")
    folder = str(tmp_path / "s")
    done = run("compare", folder, folder, "--image", str(pictures / "a.png"), "-q")
    refuses(done, 2, "two artifacts")
