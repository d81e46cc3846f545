"""Flags of other TVM scripts mean what ours mean."""

from __future__ import annotations

import pytest

from tvmscope.cli.aliases import modern
from tvmscope.errors import UsageError


@pytest.mark.parametrize(
    "words",
    [
        "compile --onnx m --out_dir x --device cuda -> compile m --output x --target cuda",
        "compile --out_dir=x --onnx=m.onnx -> compile m.onnx --output=x",
        "compile m.onnx --fast_scatter_nd -> compile m.onnx --fast-scatter",
        "compile m.onnx --fast_scatter_nd 1 -q -> compile m.onnx --fast-scatter -q",
        "compile m.onnx --fast_scatter_nd=0 -> compile m.onnx --no-fast-scatter",
        "run --image a.jpg b.jpg --artifact_dir d -> run d --image a.jpg b.jpg",
        "run d --iters 1 --warmup 0 -> run d --iterations 1 --warmup 0",
        "run d --input_scale 0.5 --score_thresh 0 -> run d --input-scale 0.5 --score-threshold 0",
        "run d --save_vis v --save_outputs o.npz -> run d --save-vis v --save-outputs o.npz",
        "run d --nms --nms_iou 0.5 -> run d --nms-iou 0.5",
        "run d --nms 0.5 -> run d --nms-iou 0.5",
        "run d --profile_topk 20 -> run d --profile --top 20",
        "run d --device cuda -> run d --device cuda",
        "run d -- --a_b -> run d -- --a_b",
        "bench m.onnx --out_dir x -> bench m.onnx --out_dir x",
        "compile m.onnx --tune 5m -> compile m.onnx --tune 5m",
        "compile m.onnx --tune -> compile m.onnx --tune 10m",
        "compile m.onnx --tune --iters 1 -> compile m.onnx --tune 10m --iters 1",
        "compile m.onnx --tune 0 -> compile m.onnx",
    ],
)
def test_old_words_become_ours(words: str) -> None:
    old, new = words.split(" -> ")
    assert modern(old.split()) == new.split()


def test_an_artifact_is_not_tuned_when_it_runs() -> None:
    with pytest.raises(UsageError, match="--tune: run takes what was compiled"):
        modern(["run", "d", "--tune"])
