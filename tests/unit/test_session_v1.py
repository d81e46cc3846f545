"""Sessions of schema 1 are read, rendered and diagnosed as the version that wrote them did.

The sessions in tests/data/sessions-v1 are that version's. Beside each is its report after
diagnosis, as text and as Markdown, with that version's numbers and today's wording.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from support.rows import key
from tvmscope.core.precision import FLOAT16
from tvmscope.core.session import Session, from_json, load, to_json
from tvmscope.diagnose.engine import diagnose
from tvmscope.errors import SchemaError
from tvmscope.report.formats import json_
from tvmscope.report.redact import redact
from tvmscope.report.renderers import renderers
from tvmscope.workflow.fixing import calibration

FOLDER = Path(__file__).parents[1] / "data" / "sessions-v1"
NAMES = sorted(file.stem for file in FOLDER.glob("*.json"))


def saved(name: str) -> Session:
    return load(FOLDER / f"{name}.json")


def raw(name: str) -> dict[str, Any]:
    data: dict[str, Any] = json.loads((FOLDER / f"{name}.json").read_text(encoding="utf-8"))
    return data


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("form", ["console", "markdown"])
def test_an_old_session_is_diagnosed_and_rendered_as_it_was(name: str, form: str) -> None:
    renderer = renderers()[form]
    stored = FOLDER / f"{name}{renderer.suffix}"
    assert renderer.render([diagnose(saved(name))]) == stored.read_text(encoding="utf-8")


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("form", sorted({*renderers()} - {"console", "markdown"}))
def test_every_other_format_takes_it(name: str, form: str) -> None:
    if form != "model-explorer" or saved(name).profiles:
        assert renderers()[form].render([diagnose(saved(name))])


@pytest.mark.parametrize("name", NAMES)
def test_it_is_written_again_in_the_new_form(name: str) -> None:
    session = saved(name)
    data = to_json(session)
    jsonschema.validate(data, json_.schema())
    assert from_json(data) == session


def common(before: Any, after: Any) -> Any:
    """What the new form has of the fields that the old one has, inside lists too."""
    if isinstance(before, dict) and isinstance(after, dict):
        return {field: common(before[field], after[field]) for field in before}
    if isinstance(before, list) and isinstance(after, list) and len(before) == len(after):
        return [common(a, b) for a, b in zip(before, after, strict=True)]
    return after


@pytest.mark.parametrize("name", NAMES)
def test_names_that_readers_know_stay(name: str) -> None:
    old, new = raw(name), to_json(saved(name))
    for part in ("profiles", "kernel_ir", "comparisons", "fixes"):
        for before, after in zip(old[part], new[part], strict=True):
            assert before == common(before, after)
    for before, after in zip(old["results"], new["results"], strict=True):
        for field in ("backend", "target", "shapes", "status", "values_s"):
            assert before.get(field) == after.get(field)
        assert before["variant"].items() <= after["variant"].items()
        assert before["task"]["variant"].items() <= after["task"]["variant"].items()


@pytest.mark.parametrize("name", NAMES)
def test_what_is_about_one_row_has_one_key(name: str) -> None:
    session = redact(saved(name))
    rows = {result.key for result in session.results}
    profiled = {profile.key for profile in session.profiles}
    if name != "profiled-alone":
        assert profiled <= rows
    assert {k.key for k in session.kernel_ir if k.key} <= profiled
    assert {side for c in session.comparisons for side in (c.key, c.against)} <= rows


def test_a_row_that_was_profiled_alone_is_known_by_what_its_label_said() -> None:
    ours, theirs = (profile.key for profile in saved("profiled-alone").profiles)
    assert ours == key("tvmscope", precision=FLOAT16)
    assert theirs == key("torch", precision=FLOAT16, graph=True)


def test_an_attempt_knows_the_row_that_it_was_tried_on() -> None:
    session = saved("fixed")
    assert session.fixes[0].key == session.results[1].key


@pytest.mark.parametrize(
    "broken",
    [
        {"results": [1]}, {"results": [{}]}, {"results": [{"task": {}}]}, {"profiles": {}},
        {"comparisons": [None]}, {"results": [{"task": {"variant": {}}}]},
    ],
)  # fmt: skip
def test_a_broken_old_session_is_refused_in_words(broken: dict[str, Any]) -> None:
    with pytest.raises(SchemaError):
        from_json(raw("profiled") | broken)


def test_calibration_lines_from_before_keys_are_read() -> None:
    line = json.dumps(raw("profiled")["fixes"][0])
    calibration.file().parent.mkdir(parents=True, exist_ok=True)
    calibration.file().write_text(line + "\n", encoding="utf-8")
    (found,) = calibration.history()
    assert (found.rule, found.close, found.key) == ("layout-changes", True, None)
