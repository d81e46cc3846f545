"""The machine's measured limits."""

from __future__ import annotations

from pathlib import Path

import pytest

from tvmscope.core.target import Target
from tvmscope.machine import cpu_features
from tvmscope.profiling import roofs


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Target, tuple]:
    cache = tmp_path_factory.mktemp("cache")
    target = Target(kind="llvm", arch="host", features=tuple(cpu_features.reported()), cores=2)
    return cache, target, roofs.measure(target, cache)


def test_every_roof_is_a_rate_that_a_computer_can_have(measured) -> None:
    _, _, found = measured
    for roof in found:
        rate = roof.flops_per_s or roof.bytes_per_s
        assert rate is not None
        assert 1e8 < rate < 1e14


def test_caches_are_faster_than_memory(measured) -> None:
    _, _, found = measured
    rates = {r.how.split(":")[0]: r.bytes_per_s for r in found if r.threads == 1}
    assert rates["L1"] > rates["DRAM"]


def test_roofs_are_kept_and_measured_again_only_when_asked(measured, monkeypatch) -> None:
    cache, target, found = measured
    monkeypatch.setattr(roofs, "_measure", lambda _: ())
    assert roofs.measure(target, cache) == found
    assert roofs.measure(target, cache, fresh=True) == ()


def test_a_damaged_file_is_measured_again(measured, monkeypatch) -> None:
    cache, target, _ = measured
    (file,) = cache.iterdir()
    file.write_text("[{")
    monkeypatch.setattr(roofs, "_measure", lambda _: ())
    assert roofs.measure(target, cache) == ()
