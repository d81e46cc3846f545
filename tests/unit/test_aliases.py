"""Flags of other TVM scripts mean what ours mean."""

from __future__ import annotations

from dataclasses import replace

import pytest

from support import samples
from tvmscope.cli.aliases import modern, wants_average
from tvmscope.cli.commands.run import _show_session
from tvmscope.cli.show import Show
from tvmscope.errors import UsageError
from tvmscope.stages.options import Options


@pytest.mark.parametrize(
    "words",
    [
        "compile --onnx m --out_dir x --device cuda -> compile m --output x --device cuda",
        "compile m --device cuda:1 -> compile m --device cuda:1",
        "compile m --device cuda:sm_90 -> compile m --target cuda:sm_90",
        "compile m --device=llvm -> compile m --target llvm",
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
    with pytest.raises(UsageError, match="--tune: run takes a compiled artifact"):
        modern(["run", "d", "--tune"])


def test_scripts_that_count_by_iters_read_an_average() -> None:
    assert wants_average(["tvmscope", "run", "d", "--iters", "5"])
    assert wants_average(["tvmscope", "run", "d", "--iters=5"])
    assert not wants_average(["tvmscope", "run", "d", "--iterations", "5"])


def test_the_average_is_a_line_of_its_own(capsys: pytest.CaptureFixture[str]) -> None:
    assert _session(0.002, "tvmscope run d --iters 5") == 0
    assert capsys.readouterr().out == "avg latency (ms): 2.000\n"
    assert _session(0.002, "tvmscope run d --iterations 5") == 0
    assert capsys.readouterr().out == ""


def _session(mean_s: float, command: str) -> int:
    even = samples.measurement(mean_s)
    even = replace(even, rounds_s=tuple((mean_s,) * len(r) for r in even.rounds_s))
    session = samples.session(samples.result("tvmscope", mean_s, measurement=even))
    return _show_session(session, None, Options(command=command), Show())
