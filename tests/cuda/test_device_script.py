"""The device script's parts that run without a device: its PyTorch reference, its tables."""

from __future__ import annotations

import json
from argparse import Namespace
from pathlib import Path
from types import ModuleType
from typing import Any

import draws
import numpy as np
import pytest
from interpreted import draw

from tvmscope.cuda.config import Config, to_json
from tvmscope.cuda.cubins.compile_pool import Failure
from tvmscope.cuda.library.product import config as call_config
from tvmscope.cuda.reference import reference
from tvmscope.cuda.units import Conv2d, Epilogue, Pool, Softmax, Unit
from tvmscope.cuda.winners import Winner, Winners, load_winners

SCRIPTS = Path(__file__).resolve().parents[2] / "scripts"


@pytest.fixture
def scripts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(SCRIPTS))


@pytest.fixture
def device(scripts: None) -> ModuleType:
    pytest.importorskip("torch", reason="the device script takes PyTorch")
    import cuda_measure

    return cuda_measure


def drawn() -> list[Unit]:
    makers = (
        draws.conv2d, draws.matmul, draws.matvec, draws.depthwise, draws.attention, draws.norm,
        draws.group_norm,
    )  # fmt: skip
    units: list[Unit] = [make(seed)[0] for make in makers for seed in range(10)]
    units += [Softmax(dtype="float32", rows=3, columns=7, scale=0.5)]
    for form in ("max", "mean"):
        shape: dict[str, Any] = {"dtype": "float32", "n": 2, "h": 7, "w": 6, "c": 3, "form": form}
        units.append(Pool(**shape, r=7, s=6))
        units.append(Pool(**shape, r=3, s=2, stride=(2, 1), padding=(1, 1, 1, 1), round_up=True))
    units.append(Pool(**{**shape, "form": "max"}, r=3, s=3, padding=(1, 0, 0, 1)))
    return units


def test_torch_and_numpy_say_the_same(device: ModuleType) -> None:
    import torch

    for unit in drawn():
        arrays = draw(unit)
        got = device._compute(unit, {k: torch.from_numpy(v).double() for k, v in arrays.items()})
        wanted = reference(unit, arrays)
        error = np.abs(got.numpy().reshape(wanted.shape) - wanted).max()
        assert error <= 1e-9 * max(1.0, np.abs(wanted).max()), unit.label


def test_every_type_has_a_tolerance(device: ModuleType) -> None:
    for unit in drawn():
        assert device._tolerance_key(unit) in device.TOLERANCE
    wide = Conv2d(
        dtype="float16", n=1, h=2, w=2, c=2, oc=2, r=1, s=1, epilogue=Epilogue(output="float32")
    )
    assert device._tolerance_key(wide) == "float16"


def test_unwritten_values_have_no_error(device: ModuleType) -> None:
    import torch

    wanted = torch.ones(4)
    assert device._error(torch.ones(4), wanted) == 0.0
    assert device._error(torch.tensor([1.0, 1.0, float("nan"), 1.0]), wanted) is None


def test_table_has_the_best_correct_candidate(
    scripts: None, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    import cuda_kernels

    unit = Conv2d(dtype="float16", n=1, h=7, w=7, c=64, oc=64, r=1, s=1)
    shared = {"unit": unit.to_json(), "key": unit.key, "label": unit.label, "reason": None}
    tile = Config(template="conv2d", m=64, n=32, k=64)
    ours = [
        {"config": to_json(tile), "correct": True, "cold_us": [3.0], "estimate_us": 2.0},
        {"config": to_json(tile), "correct": True, "cold_us": [2.0], "estimate_us": 2.5},
        {"config": to_json(tile), "correct": False, "cold_us": [1.0], "estimate_us": 3.0},
    ]
    library = {"library": "cudnn", "correct": True, "cold_us": [5.0], "hot_us": [4.0]}
    lines = [{**shared, "hot_us": [1.5], **row} for row in (*ours, library)]
    file = tmp_path / "records.jsonl"
    file.write_text("".join(json.dumps(line) + "\n" for line in lines))
    cuda_kernels.show(Namespace(records=[file]))
    out = capsys.readouterr().out
    assert f"{unit.label}: 2.00 us (hot 1.50), cudnn 5.00 (2.50x)" in out
    assert "first choice 1.50x" in out
    assert "1 units, 1 wrong or failed candidates, 0 broke the process" in out


def test_recorded_winners_are_measured_again_beside_the_library(
    scripts: None,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    import cuda_kernels

    plain = Conv2d(dtype="float16", n=1, h=7, w=7, c=64, oc=64, r=1, s=1)
    window = Conv2d(dtype="float16", n=1, h=7, w=7, c=64, oc=64, r=3, s=3)
    new = Conv2d(dtype="float16", n=2, h=7, w=7, c=64, oc=64, r=1, s=1)
    tile = Config(template="conv2d", m=16, n=16, k=64)
    old = {u.key: Winner(config=tile, cold_us=2, hot_us=2, gpu="H200") for u in (plain, window)}
    shipped, units = tmp_path / "sm_90.jsonl", tmp_path / "units.json"
    Winners(old).save(shipped)
    units.write_text(json.dumps([u.to_json() for u in (plain, window, new)]))
    asked: list[Any] = []

    def fail(jobs: Any, **_: Any) -> Any:
        asked.extend(jobs)
        return [Failure(job=job, reason="not now") for job in jobs]

    monkeypatch.setattr(cuda_kernels, "compile_many", fail)
    words = ["prepare", str(units), str(tmp_path / "plan"), "--callable", "cublaslt", "--winners"]
    monkeypatch.setattr("sys.argv", ["cuda_kernels.py", *words, str(shipped)])
    cuda_kernels.main()
    assert [(job.unit, job.config) for job in asked] == [(plain, tile)]
    asked.clear()
    words[4:5] = []  # any library: cuDNN computes the window
    monkeypatch.setattr("sys.argv", ["cuda_kernels.py", *words, str(shipped)])
    cuda_kernels.main()
    assert [job.unit for job in asked] == [plain, window]
    shared = {"unit": plain.to_json(), "gpu": "H200", "correct": True, "hot_us": [1.0]}
    rows = [
        {**shared, "config": to_json(tile), "cold_us": [2.0], "estimate_us": 2.0},
        {**shared, "config": to_json(call_config(4)), "cold_us": [1.0]},
    ]
    measured, output = tmp_path / "records.jsonl", tmp_path / "new.jsonl"
    measured.write_text("".join(json.dumps(row) + "\n" for row in rows))
    words = ["distil", str(measured), "-o", str(output), "--onto", str(shipped)]
    monkeypatch.setattr("sys.argv", ["cuda_kernels.py", *words])
    cuda_kernels.main()
    assert "1 with a library's call" in capsys.readouterr().out
    found = load_winners(output).by_unit
    assert found[plain.key].call == call_config(4)
    assert found[window.key] == old[window.key]


def test_units_are_read_with_their_configurations(scripts: None, tmp_path: Path) -> None:
    import cuda_kernels

    unit, config = draws.conv2d(0)
    file = tmp_path / "units.json"
    file.write_text(
        json.dumps([unit.to_json(), {"unit": unit.to_json(), "config": to_json(config)}])
    )
    assert cuda_kernels.read_units(file) == {unit: [config]}
