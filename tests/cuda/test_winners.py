"""Winners that were measured, and what is chosen where none was."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tvmscope.cuda.config import VERSIONS, Config, to_json
from tvmscope.cuda.gpus import gpu_of
from tvmscope.cuda.shortlist import best
from tvmscope.cuda.units import Conv2d, Matmul, Matrix, View
from tvmscope.cuda.winners import Winner, Winners, distil, load_winners
from tvmscope.errors import SchemaError

H200 = gpu_of("sm_90")
CONV = Conv2d(dtype="float16", n=1, h=7, w=7, c=64, oc=64, r=1, s=1)
FAST = Config(template="conv2d", m=16, n=16, k=64)


def rows() -> list[dict[str, Any]]:
    shared = {"unit": CONV.to_json(), "gpu": "NVIDIA H200", "correct": True}
    return [
        {**shared, "config": to_json(replace(FAST, m=32)), "cold_us": [3.0], "hot_us": [2.0]},
        {**shared, "config": to_json(FAST), "cold_us": [2.5, 2.0, 9.0], "hot_us": [2.2]},
        {**shared, "config": to_json(FAST), "cold_us": [1.0], "hot_us": [1.0], "correct": False},
        {**shared, "library": "cudnn", "cold_us": [4.0], "hot_us": [3.0]},
        {**shared, "config": to_json(FAST), "cold_us": [], "hot_us": []},
    ]


def test_fastest_correct_candidate_wins_and_comes_back(tmp_path: Path) -> None:
    winners = distil(rows())
    winners.save(tmp_path / "sm_90.jsonl")
    (winner,) = load_winners(tmp_path / "sm_90.jsonl").by_unit.values()
    assert winner.config == FAST
    assert (winner.cold_us, winner.hot_us, winner.library_cold_us) == (2.5, 2.2, 4.0)


def test_winners_come_before_the_model() -> None:
    winners = distil(rows())
    assert winners.choose(CONV, H200) == FAST != best(CONV, H200, 1)[0].config
    other = replace(CONV, c=32)
    assert winners.choose(other, H200) == best(other, H200, 1)[0].config
    assert Winners().choose(CONV, H200) == best(CONV, H200, 1)[0].config


def test_slices_take_the_winner_of_the_dense_unit() -> None:
    sliced = replace(CONV, output=View(pitch=192, offset=64))
    assert distil(rows()).choose(sliced, H200) == FAST


def test_recorded_configuration_that_is_illegal_here_is_not_taken() -> None:
    unit = Matmul(dtype="float16", m=4096, n=4096, k=4096)
    config = Config(template="persistent", m=128, n=128, k=64, split=132)
    winner = Winner(config=config, cold_us=1.0, hot_us=1.0, gpu="H200")
    winners = Winners({unit.key: winner})
    assert winners.choose(unit, H200) == config
    odd = replace(unit, a=Matrix(row=4097, column=1))  # rows that are no whole 16 bytes
    assert odd.dense == unit
    assert winners.choose(odd, H200) == best(odd, H200, 1)[0].config != config


def test_a_changed_template_voids_its_own_winners_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "sm_90.jsonl"
    product = Matmul(dtype="float16", m=64, n=64, k=64)
    times: dict[str, Any] = {"cold_us": 1.0, "hot_us": 1.0, "gpu": "H200"}
    call = Config(template="cublaslt", m=0, n=0)
    tile = replace(FAST, template="matmul")
    both = {
        CONV.key: Winner(config=FAST, **times),
        product.key: Winner(config=tile, call=call, **times),
    }
    Winners(both).save(file)
    assert load_winners(file).by_unit == both
    assert not load_winners(file, outdated=True).by_unit
    monkeypatch.setitem(VERSIONS, "conv2d", VERSIONS["conv2d"] + 1)
    assert set(load_winners(file).by_unit) == {product.key}
    assert set(load_winners(file, outdated=True).by_unit) == {CONV.key}
    monkeypatch.setitem(VERSIONS, "cublaslt", VERSIONS["cublaslt"] + 1)
    assert load_winners(file).by_unit[product.key].call is None
    assert set(load_winners(file, outdated=True).by_unit) == set(both)


def test_other_schemas_are_refused(tmp_path: Path) -> None:
    file = tmp_path / "winners"
    for text in ("", '{"schema_version": 99}\n'):
        file.write_text(text)
        with pytest.raises(SchemaError, match="not 1"):
            load_winners(file)
