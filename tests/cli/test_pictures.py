"""Pictures through the command: answers, drawings, files, and a folder with a bad one."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from onnx import helper
from PIL import Image

from support.command import asked, refuses, run, save_onnx


def test_a_classifier_names_its_best_classes(artifacts: Path, pictures: Path) -> None:
    names = pictures / "names.txt"
    names.write_text("ant\nbee\ncat\ndog\neel\n")
    said = asked(artifacts, "net", "--image", str(pictures / "a.png"), "--labels", str(names),
                 "--input-scale", "1/255", "--mean", "0.5", "--std", "0.25")  # fmt: skip
    (answer,) = said["pictures"]
    assert said["session"] is None
    assert (answer["task"], answer["width"], answer["height"]) == ("classify", 64, 48)
    assert {label["name"] for label in answer["labels"]} == {"ant", "bee", "cat", "dog", "eel"}
    assert sum(label["score"] for label in answer["labels"]) == pytest.approx(1)
    assert list(answer["times_s"]) == ["decode", "preprocess", "inference", "postprocess"]
    assert all(seconds > 0 for seconds in answer["times_s"].values())


def test_a_detector_gives_boxes_in_the_pictures_own_pixels(
    artifacts: Path, pictures: Path, tmp_path: Path
) -> None:
    drawn, kept = tmp_path / "seen.jpg", tmp_path / "out.npz"
    said = asked(
        artifacts, "detector", "--image", str(pictures / "a.png"), "--input-scale", "1/255",
        "--score-threshold", "0.4", "--save-vis", str(drawn), "--save-outputs", str(kept),
    )  # fmt: skip
    (answer,) = said["pictures"]
    assert [box["index"] for box in answer["boxes"]] == [1]
    # 32x32 stretched to 64x48: 16 +- 8 by 16 +- 4 becomes 32 +- 16 by 24 +- 6
    assert answer["boxes"][0]["corners"] == pytest.approx([16, 18, 48, 30], abs=0.01)
    assert max(Image.open(drawn).size) >= 480
    into = ("--image", str(pictures / "a.png"), "--save-vis", str(tmp_path / "folder"))
    asked(artifacts, "detector", *into)
    assert [f.name for f in (tmp_path / "folder").iterdir()] == ["a.jpg"]
    assert np.load(kept)["output_0"].shape == (1, 10, 7)
    done = run("run", str(artifacts / "detector"), "--image", str(pictures / "a.png"),
               "--save-vis", str(drawn), "-q")  # fmt: skip
    refuses_quietly(done.returncode, done.stderr, "--force")


def refuses_quietly(code: int, text: str, *words: str) -> None:
    assert code == 2
    assert all(word in text for word in words)


def test_one_bad_picture_among_others(artifacts: Path, pictures: Path, tmp_path: Path) -> None:
    whole = (pictures / "c.jpg").read_bytes()
    (pictures / "b.jpg").write_bytes(whole[: len(whole) // 2])
    out = tmp_path / "seen"
    kept = tmp_path / "o.npz"
    said = asked(artifacts, "net", "--image", str(pictures), "--save-vis", str(out),
                 "--save-outputs", str(kept), code=1)  # fmt: skip
    names = [Path(p["picture"]).name for p in said["pictures"]]
    assert names == ["a.png", "b.jpg", "c.jpg"]
    assert [p["failure"] is None for p in said["pictures"]] == [True, False, True]
    assert "cannot be decoded" in said["pictures"][1]["failure"]
    assert sorted(f.name for f in out.iterdir()) == ["a.jpg", "c.jpg"]
    assert sorted(np.load(kept).files) == ["a.png/output_0", "c.jpg/output_0"]
    hidden = asked(artifacts, "net", "--image", str(pictures), "--redact", code=1)
    assert [p["picture"] for p in hidden["pictures"]] == names
    assert str(pictures) not in json.dumps(hidden)
    shown = run("run", str(artifacts / "net"), "--image", str(pictures))
    assert shown.returncode == 1
    assert "cannot be decoded" in shown.stderr


def test_several_pictures_and_times_in_one_call(artifacts: Path, pictures: Path) -> None:
    said = asked(artifacts, "net", "--image", str(pictures / "a.png"), str(pictures / "c.jpg"),
                 "--iters", "3", "--warmup", "1")  # fmt: skip
    assert len(said["pictures"]) == 2
    (row,) = said["session"]["results"]
    assert (row["samples"], len(row["warmups_s"])) == (3, 1)


def test_kernels_are_timed_in_the_same_call(artifacts: Path, pictures: Path) -> None:
    picture = str(pictures / "a.png")
    said = asked(artifacts, "net", "--image", picture, "--iterations", "4", "--warmup", "1",
                 "--profile", "--top", "1")  # fmt: skip
    (answer,), session = said["pictures"], said["session"]
    assert answer["failure"] is None
    assert session["results"][0]["samples"] == 4
    (profile,) = session["profiles"]
    assert len(profile["kernels"]) > 1
    shown = run("run", str(artifacts / "net"), "--image", picture, "--profile_topk", "1").stderr
    assert shown.index("decode ") < shown.index("outside kernels")
    assert f"{len({k['name'] for k in profile['kernels']}) - 1} more kernel" in shown
    assert "95 % interval" not in shown  # no counts, no statistics
    done = run("run", str(artifacts / "net"), "--iters", "1", "--warmup", "0", "--profile")
    assert done.returncode == 0
    assert "outside kernels" in done.stderr
    refuses(run("run", str(artifacts / "net"), "--top", "3"), 2, "--profile")


def test_old_flags_give_just_what_they_say(artifacts: Path, pictures: Path) -> None:
    done = run("run", "--artifact_dir", str(artifacts / "net"), "--iters", "1", "--warmup", "0",
               "--device", "cpu", "--json", "-q")  # fmt: skip
    (row,) = json.loads(done.stdout)["results"]
    assert (row["samples"], row["warmups_s"]) == (1, [])
    done = run("run", str(artifacts / "net"), "--device", "cuda")
    refuses(done, 2, "is compiled for cpu, not cuda")


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (("--task", "detect"), "name the layout: --head"),
        (("--head", "yolov9"), "is none of yolov5"),
        (("--labels", "gone.txt"), "gone.txt"),
        (("--input-scale", "1/0"), "is not a number"),
        (("--std", "0"), "cannot be 0"),
        (("--preprocess", "imagent"), "is none of imagenet, inception, unit, raw"),
        (("--mean", "1,2"), "2 values, the input 3 channels"),
        (("--layout", "NHWC"), "as NHWC"),
        (("--score-threshold", "2"), "--score-threshold"),
        (("--inputs", str(Path(__file__))), "not both"),
        (("more.jpg", "--save-vis", "one.jpg"), "need a folder"),
        (("--save-vis", "one.txt"), ".txt is not an image format"),
    ],
)
def test_bad_requests_are_one_line(
    artifacts: Path, pictures: Path, args: tuple[str, ...], words: str
) -> None:
    done = run("run", str(artifacts / "net"), "--image", str(pictures / "a.png"), *args, "-q")
    refuses(done, 2, words)


def test_an_artifact_of_before_pictures_still_answers(artifacts: Path, pictures: Path) -> None:
    shutil.copytree(artifacts / "net", pictures / "old")
    meta = pictures / "old" / "meta.json"
    data = json.loads(meta.read_text())
    del data["vision"]
    meta.write_text(json.dumps(data))
    (answer,) = asked(pictures, "old", "--image", str(pictures / "a.png"))["pictures"]
    assert len(answer["labels"]) == 5


def test_pixels_that_are_given_as_they_are_are_pointed_out(artifacts: Path, pictures: Path) -> None:
    shutil.copytree(artifacts / "net", pictures / "blind")
    meta = pictures / "blind" / "meta.json"
    meta.write_text(json.dumps(json.loads(meta.read_text()) | {"vision": None}))
    image = ("--image", str(pictures / "a.png"))
    assert "values of 0 to 255" in run("run", str(pictures / "blind"), *image).stderr
    told = run("run", str(pictures / "blind"), *image, "--input-scale", "1/255")
    assert told.returncode == 0
    assert "not known" not in told.stderr


def test_flags_about_pictures_need_one(artifacts: Path) -> None:
    refuses(run("run", str(artifacts / "net"), "--task", "classify"), 2, "--image")


def test_a_model_without_a_picture_input_says_so(tmp_path: Path, pictures: Path) -> None:
    save_onnx(tmp_path / "relu.onnx", helper.make_node("Relu", ["x"], ["y"]))
    done = run("compile", "relu.onnx", "-o", "relu", "--target", "cpu", "-q", cwd=tmp_path)
    assert done.returncode == 0
    refuses(
        run("run", str(tmp_path / "relu"), "--image", str(pictures / "a.png")),
        2,
        "takes no image",
    )


def test_smoke() -> None:
    done = run("doctor", "--smoke", "--json", "-q", CUDA_VISIBLE_DEVICES="")
    assert done.returncode == 0, done.stderr
    checks = json.loads(done.stdout)["checks"]
    assert [c["name"] for c in checks] == ["identity, cpu", "convolution, cpu"]
    assert {c["status"] for c in checks} == {"ok"}


def test_the_cat_and_an_address_that_is_not_there(artifacts: Path) -> None:
    said = asked(artifacts, "net", "--image", "cat", "--preprocess", "imagenet")
    (answer,) = said["pictures"]
    assert (answer["width"], answer["height"]) == (451, 300)
    url = "http://127.0.0.1:9/never-there.jpg"
    refuses(run("run", str(artifacts / "net"), "--image", url, "-q"), 1, url, "cannot download")
    off = run("run", str(artifacts / "net"), "--image", url, "--offline", "-q")
    refuses(off, 1, "downloads are off")
