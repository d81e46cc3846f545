"""What another package brings is found, put in its place, named with its origin, and left out."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from support import outside, samples
from support.trials import validated
from tvmscope import backends, plugins
from tvmscope.cli.main import main
from tvmscope.compiler import passes, schedules
from tvmscope.core.tuning import Trial
from tvmscope.diagnose.engine import diagnose
from tvmscope.measure.remote import here
from tvmscope.measure.worker import run_isolated
from tvmscope.models import catalog
from tvmscope.profiling import roofs
from tvmscope.report.format_names import format_names
from tvmscope.report.renderers import by_file, renderer, renderers
from tvmscope.tuning.records.validity import identity, outdated
from tvmscope.workflow.ablating import switches
from tvmscope.workflow.examining import doctor


@pytest.fixture
def elsewhere(tmp_path: Path) -> Iterator[Path]:
    with outside.installed(outside.write(tmp_path / "site")) as folder:
        yield folder


def names(device: str) -> list[str]:
    return [rule.name for rule in schedules.rules(device)]


def steps() -> list[str]:
    return [each.name for each in passes.all_passes()]


def test_backends_models_formats_and_diagnoses_are_found(elsewhere: Path) -> None:
    found, failures = backends.all_backends()
    assert failures == []
    assert list(found)[-1] == "elsewhere"
    assert "elsewhere-net" in [entry.name for entry in catalog.catalog()]
    assert renderer("elsewhere-text").render([samples.complete()]).startswith("elsewhere: ")
    assert by_file(Path("x.elsewhere")) == "elsewhere-text"
    assert "Seen from elsewhere" in [f.title for f in diagnose(samples.complete()).findings]


def test_passes_and_rules_stand_beside_the_name_that_they_give(elsewhere: Path) -> None:
    assert steps()[steps().index("dead-code") + 1] == "elsewhere-pass"
    assert names("cpu")[-2:] == ["elsewhere-cpu", "fallback"]
    offered = names("cuda")
    assert offered[offered.index("tir-elementwise") - 1] == "elsewhere-cuda"
    assert passes.brought_by("elsewhere-pass") == outside.ORIGIN
    assert passes.brought_by("dead-code") is None
    assert schedules.brought_by("elsewhere-cuda") == outside.ORIGIN


def test_an_ablation_can_switch_what_was_brought(elsewhere: Path) -> None:
    known = {each.name: each for each in switches.of_device("cpu")}
    assert known["elsewhere-note"].passes == ("elsewhere-pass",)
    assert known["elsewhere-schedule"].rules == ("elsewhere-cpu",)
    assert "elsewhere-note" not in [each.name for each in switches.built_in("cpu")]


def test_records_name_the_rule_its_version_and_its_origin(elsewhere: Path) -> None:
    brought = identity("elsewhere-cpu")
    assert brought == {"rule": "elsewhere-cpu", "rule_version": 7, "rule_from": outside.ORIGIN}
    record: Trial = validated(1, **brought)
    assert outdated(record) is None
    assert "of another 3" in (outdated(validated(1, **{**brought, "rule_from": "another 3"})) or "")
    plugins.allow(False)
    assert "elsewhere-cpu of elsewhere 1.2, which is not installed" in (outdated(record) or "")


def test_no_plugins_leaves_all_of_it_out_here_and_in_workers(elsewhere: Path) -> None:
    assert run_isolated(here(plugins.names), "pass") == ["elsewhere-pass"]
    plugins.allow(False)
    assert run_isolated(here(plugins.names), "pass") == []
    assert "elsewhere" not in backends.all_backends()[0]
    assert "elsewhere-net" not in catalog.built_ins()
    assert "elsewhere-text" not in renderers()
    assert "elsewhere-text" not in format_names()
    assert not any("elsewhere" in name for name in (*steps(), *names("cpu"), *names("cuda")))
    assert all(f.rule != "elsewhere-finding" for f in diagnose(samples.complete()).findings)
    assert plugins.identities() == []


def test_help_names_what_is_brought_without_importing_it(elsewhere: Path) -> None:
    import sys

    assert plugins.names("pass") == ["elsewhere-pass"]
    assert format_names()[-1] == "elsewhere-text"
    assert "elsewhere" not in sys.modules


def test_built_in_formats_are_called_after_their_files() -> None:
    assert format_names() == sorted(renderers())


def test_keys_of_caches_name_what_is_brought(
    elsewhere: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(roofs, "_measure", lambda *_: ())
    roofs.measure(samples.CPU, tmp_path)
    plugins.allow(False)
    roofs.measure(samples.CPU, tmp_path)
    assert len(list(tmp_path.glob("roofs-*.json"))) == 2


def test_the_doctor_lists_who_brought_what(elsewhere: Path) -> None:
    checks = {check.name: check for check in doctor._plugins()}
    said = checks[f"plug-in {outside.ORIGIN}"].detail
    for part in ("backend elsewhere", "pass elsewhere-pass", "schedule rule elsewhere-cuda"):
        assert part in said
    assert "elsewhere" not in checks["passes"].detail
    plugins.allow(False)
    checks = {check.name: check for check in doctor._plugins()}
    assert "--no-plugins" in checks["plug-ins"].detail
    assert f"plug-in {outside.ORIGIN}" not in checks


BROKEN = {
    "broken": "raise RuntimeError('not today')",
    "odd": "THING = 3",
    "loose": """
from tvmscope.compiler.manifest.pass_ import Pass

def a_pass(**more):
    given = {"name": "mine", "phase": "tidy", "words": "Nothing."}
    return Pass(**{**given, "make": lambda context: None, **more})

NOWHERE = a_pass()
LOST = a_pass(after="no-such-pass")
MISPLACED = a_pass(phase="layout", before="dead-code")
TAKEN = a_pass(name="fold-pads", after="dead-code")
THEIRS = a_pass(theirs=("cpu",), after="dead-code")
FIRST = a_pass(name="first", after="dead-code")
SECOND = a_pass(name="second", after="first")
""",
}
REASONS = {
    "missing": ("elsewhere.missing:X", "No module named 'elsewhere.missing'"),
    "broken": ("elsewhere.broken:X", "not today"),
    "odd": ("elsewhere.odd:THING", "it is no Pass"),
    "nowhere": ("elsewhere.loose:NOWHERE", "names no anchor"),
    "lost": ("elsewhere.loose:LOST", "anchor 'no-such-pass' is not there"),
    "misplaced": ("elsewhere.loose:MISPLACED", "phase is not that"),
    "fold-pads": ("elsewhere.loose:TAKEN", "the pass of that name is built in"),
    "theirs": ("elsewhere.loose:THEIRS", "TVM's own pipeline takes no passes"),
}


def test_what_cannot_be_used_is_left_out_with_the_reason(tmp_path: Path) -> None:
    good = {"second": ("elsewhere.loose:SECOND", ""), "zfirst": ("elsewhere.loose:FIRST", "")}
    lines = [f"{name} = {place}" for name, (place, _) in (REASONS | good).items()]
    text = "[tvmscope.passes]\n" + "\n".join(lines)
    with outside.installed(outside.write(tmp_path / "site", BROKEN, text)):
        found = passes.ordered()
        said = {f.module: f.reason for f in found.failures}
        assert len(said) == len(REASONS)
        for name, (_, reason) in REASONS.items():
            assert reason in said[f"pass {name} of {outside.ORIGIN}"]
        at = steps().index("dead-code")
        assert steps()[at : at + 4] == ["dead-code", "first", "second", "sink-reshapes"]
        checks = {check.name: check.status for check in doctor._plugins()}
        assert checks[f"pass broken of {outside.ORIGIN}"] == "warn"
        assert set(found.failures) <= set(plugins.failures()), "the command line warns of them"


def test_two_packages_that_bring_one_name_are_told_apart(tmp_path: Path) -> None:
    text = "[tvmscope.formats]\na = elsewhere.text:RENDERER\nb = elsewhere.text:RENDERER"
    with outside.installed(outside.write(tmp_path / "site", outside.FILES, text)):
        from tvmscope.report.renderers import known

        (failure,) = known().failures
        assert failure.module == f"format b of {outside.ORIGIN}"
        assert f"is brought by {outside.ORIGIN}" in failure.reason


def test_a_broken_plug_in_is_a_warning_and_not_the_end(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = "[tvmscope.models]\nbroken = elsewhere.broken:MODEL"
    with outside.installed(outside.write(tmp_path / "site", BROKEN, text)):
        assert main(["models"]) == 0
        said = capsys.readouterr()
        assert "resnet50" in said.out
        assert f"warning: plug-in left out: model broken of {outside.ORIGIN}" in said.err
        assert "not today" in said.err
        assert main(["models", "--no-plugins"]) == 0
        assert "warning" not in capsys.readouterr().err
