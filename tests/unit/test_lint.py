"""`tvmscope lint`: planted faults are found, good scripts pass, and no script is ever run."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from support.old_scripts import GOOD, PLANTED
from tvmscope.cli.main import main
from tvmscope.errors import UsageError
from tvmscope.lint.old_calls import OLD_CALLS, old_call, table
from tvmscope.lint.rules import RULES, lint
from tvmscope.lint.script import parse

DOCS = Path(__file__).parents[2] / "docs"


def _rules(tmp_path: Path, text: str) -> list[str]:
    file = tmp_path / "script.py"
    file.write_text(text)
    return [fault.rule for fault in lint(parse(file))]


@pytest.mark.parametrize("name", PLANTED)
def test_planted_faults_are_found_and_no_others(tmp_path: Path, name: str) -> None:
    text, expected = PLANTED[name]
    assert set(_rules(tmp_path, text)) == expected


def test_there_are_enough_of_them_and_every_rule_has_one() -> None:
    assert len(PLANTED) >= 25
    planted = set().union(*(rules for _, rules in PLANTED.values()))
    assert planted == {rule.id for rule in RULES}


@pytest.mark.parametrize("name", GOOD)
def test_good_scripts_pass(tmp_path: Path, name: str) -> None:
    assert _rules(tmp_path, GOOD[name]) == []


def test_lines_and_todays_calls_are_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "old.py"
    file.write_text("import tvm\nfrom tvm import relay\n\nlib = relay.build(mod, target='llvm')\n")
    assert main(["lint", str(file)]) == 1
    said = capsys.readouterr().out
    assert f"{file}:4: tvm.relay.build is gone" in said
    assert "today: ex = tvm.compile(mod" in said
    assert main(["lint", "--json", str(file)]) == 1
    (faults,) = json.loads(capsys.readouterr().out).values()
    assert {"gone", "generic-target", "untuned"} == {fault["rule"] for fault in faults}


def test_a_script_is_never_run(tmp_path: Path) -> None:
    flag = tmp_path / "ran"
    text = f"import tvm\nopen({str(flag)!r}, 'w').close()\nraise SystemExit(7)\n"
    assert _rules(tmp_path, text) == []
    assert not flag.exists()


def test_other_scripts_and_other_files(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "plain.py"
    file.write_text("print('x')\n")
    assert main(["lint", str(file)]) == 0
    assert "does not import TVM" in capsys.readouterr().out
    file.write_text("def f(:\n")
    with pytest.raises(UsageError, match="is not Python"):
        parse(file)
    with pytest.raises(UsageError, match="cannot be read"):
        parse(tmp_path / "none.py")
    assert main(["lint"]) == 2


def test_the_most_exact_entry_is_told() -> None:
    assert old_call("tvm.relay.frontend.from_pytorch").name.endswith("from_pytorch")  # type: ignore[union-attr]
    assert old_call("tvm.relaxed") is None
    assert old_call("tvm.runtime.tensor") is None


def test_the_table_of_the_docs_is_this_one() -> None:
    page = (DOCS / "old-calls.md").read_text()
    assert table() in page
    assert all(f"`{rule.id}`" in page for rule in RULES)


def test_no_name_is_listed_twice() -> None:
    names = [call.name for call in OLD_CALLS]
    assert len(names) == len(set(names))
    assert all(re.fullmatch(r"\.?\w[\w.]*(\(\w+=\))?", name) for name in names)
    assert all(bool(call.on) == call.name.startswith(".") for call in OLD_CALLS)
