"""TVMSCOPE_ISA: the host counts as a CPU with less than it has."""

from __future__ import annotations

import platform
from dataclasses import replace

import pytest

from support import samples
from tvmscope.analysis.changes import changes
from tvmscope.errors import Incomparable, UsageError
from tvmscope.machine import cpu_features, environment
from tvmscope.report.sections import view
from tvmscope.workflow.examining import doctor

ZEN4 = frozenset({"avx", "avx2", "fma", "f16c", "avx512f", "avx512bf16", "avx512vnni", "gfni"})


@pytest.fixture(autouse=True)
def _a_cpu_with_avx512(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(cpu_features.ISA_VARIABLE, raising=False)
    monkeypatch.setattr(cpu_features, "_of_this_cpu", lambda: ZEN4)
    monkeypatch.setattr(platform, "machine", lambda: "x86_64")


@pytest.fixture
def _capped(monkeypatch: pytest.MonkeyPatch, _a_cpu_with_avx512: None) -> None:
    monkeypatch.setenv(cpu_features.ISA_VARIABLE, "avx2")


@pytest.mark.parametrize("value", [None, ""])
def test_without_a_cap_every_feature_is_reported(
    value: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    if value is not None:
        monkeypatch.setenv(cpu_features.ISA_VARIABLE, value)
    assert cpu_features.reported() == ZEN4
    assert environment.collect(2).isa_cap is None


@pytest.mark.usefixtures("_capped")
def test_features_above_the_cap_are_hidden() -> None:
    assert cpu_features.reported() == {"avx", "avx2", "fma", "f16c", "gfni"}


@pytest.mark.usefixtures("_capped")
def test_a_cpu_below_the_cap_is_what_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cpu_features, "_of_this_cpu", lambda: frozenset({"sse4.2"}))
    assert cpu_features.reported() == {"sse4.2"}


@pytest.mark.parametrize("value", ["avx", "AVX2", "avx2 ", "znver3"])
def test_an_unknown_cap_is_a_usage_error(value: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(cpu_features.ISA_VARIABLE, value)
    for ask in (cpu_features.reported, lambda: environment.collect(2), doctor.examine):
        with pytest.raises(UsageError, match=f"TVMSCOPE_ISA={value}: unknown .*; known: avx2"):
            ask()


@pytest.mark.usefixtures("_capped")
def test_a_cap_of_another_architecture_is_a_usage_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(platform, "machine", lambda: "aarch64")
    with pytest.raises(UsageError, match="is for x86; this machine is aarch64"):
        cpu_features.reported()


@pytest.mark.usefixtures("_capped")
def test_doctor_says_that_the_host_is_capped() -> None:
    lines = {check.name: check for check in doctor._cpu()}
    assert "avx2 only" in lines["TVMSCOPE_ISA"].detail
    assert "avx512f" not in lines["cpu"].detail


@pytest.mark.usefixtures("_capped")
def test_a_session_says_that_the_host_is_capped() -> None:
    here = environment.collect(2)
    assert here.isa_cap == "avx2"
    session = replace(samples.session(), environment=here)
    assert "capped to avx2" in view.environment(session)
    assert any("limited to avx2" in line for line in view.warnings(session))


def test_sessions_with_and_without_the_cap_are_not_compared(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    whole = replace(samples.session(), environment=environment.collect(2))
    monkeypatch.setenv(cpu_features.ISA_VARIABLE, "avx2")
    capped = replace(whole, environment=environment.collect(2))
    with pytest.raises(Incomparable, match="CPU features"):
        changes(whole, capped)
