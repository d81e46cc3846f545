"""Whether other processes run now: on a crowded machine TVM's threads sleep between kernels."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tvmscope.machine import load
from tvmscope.runtime.load_model import is_crowded


@pytest.mark.parametrize(
    ("readings", "crowded"),
    [
        (["3/90", "4/90", "3/90"], True),
        (["3/90", "2/90", "3/90"], False),
        (["1/90"], False),
        (["nothing"], False),
    ],
    ids=["all cores are wanted", "not each time", "none is wanted", "unreadable"],
)
def test_a_machine_is_crowded_where_others_want_all_cores_each_time(
    readings: list[str], crowded: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    left = iter(readings)
    monkeypatch.setattr(os, "cpu_count", lambda: 2)
    monkeypatch.setattr(Path, "read_text", lambda _: f"9.00 8.00 7.00 {next(left)} 1234")
    assert is_crowded() is crowded


def test_a_system_that_does_not_say_is_not_crowded(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(_: Path) -> str:
        raise FileNotFoundError

    monkeypatch.setattr(Path, "read_text", missing)
    assert not is_crowded()


@pytest.mark.parametrize(
    ("readings", "quiet"),
    [(["1/90"] * 5, True), (["1/90", "2/90"], False), (["nothing"], False)],
    ids=["only this process runs", "another one runs", "unreadable"],
)
def test_a_machine_is_quiet_where_nothing_else_runs(
    readings: list[str], quiet: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    left = iter(readings)
    monkeypatch.setattr(Path, "read_text", lambda _: f"9.00 8.00 7.00 {next(left)} 1234")
    assert load.is_quiet() is quiet
