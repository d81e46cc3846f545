"""Sentences that are data: made with arguments, stored, and said in the reader's language."""

from __future__ import annotations

import copy
import json
import math
import pickle
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from support import catalogues
from tvmscope import messages
from tvmscope.errors import RunError, UsageError, one_line
from tvmscope.messages import Bytes, Message, Seconds, clauses, msg, msgn, render, sentences, word
from tvmscope.storage import message_table

XX: dict[str | tuple[str, str], str] = {
    "{kernel} takes {time} at {share:.0%}": "{share:.0%}, {time}: <{kernel}>",
    "{first}, {rest}": "{first}、{rest}",
    "{first} {rest}": "{first}{rest}",
    "{first}; {rest}": "{first}；{rest}",
    "uses {names}": "nutzt {names}",
    ("{count} row", "{count} rows"): "{count} Zeile\0{count} Zeilen",
    "faster": "schneller",
    "is {what}": "ist {was}",
    "on {row}: {why}": "{why} ({row})",
}


@pytest.fixture(autouse=True)
def second_language(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    catalogues.write(tmp_path, "xx", XX)
    monkeypatch.setattr(messages, "LOCALE_FOLDER", tmp_path)
    messages.catalogue.cache_clear()
    yield
    messages.use_language(None)
    messages.catalogue.cache_clear()


TIME = msg("{kernel} takes {time} at {share:.0%}", kernel="matmul", time=Seconds(0.0012), share=0.5)


def test_to_a_program_a_message_is_its_english_sentence() -> None:
    assert TIME == "matmul takes 1.20 ms at 50%"
    assert json.dumps([TIME]) == '["matmul takes 1.20 ms at 50%"]'
    messages.use_language("xx")
    assert f"{TIME}" == str(TIME) == "matmul takes 1.20 ms at 50%"


def test_a_person_reads_it_in_their_language_with_the_numbers_intact() -> None:
    assert render(TIME, "xx") == "50%, 1.20 ms: <matmul>"
    assert render(TIME) == "matmul takes 1.20 ms at 50%"
    messages.use_language("xx")
    assert render(TIME) == "50%, 1.20 ms: <matmul>"
    assert render(TIME, "en") == "matmul takes 1.20 ms at 50%"


def test_foreign_text_stays_as_it_is() -> None:
    assert render("faster", "xx") == "faster"
    assert render("{brace}", "xx") == "{brace}"


def test_the_number_decides_the_plural() -> None:
    assert [str(msgn("{count} row", "{count} rows", count=n)) for n in (0, 1, 2)] == [
        "0 rows", "1 row", "2 rows",
    ]  # fmt: skip
    assert render(msgn("{count} row", "{count} rows", count=1), "xx") == "1 Zeile"
    assert render(msgn("{count} row", "{count} rows", count=2), "xx") == "2 Zeilen"


def test_messages_nest_and_join_in_the_language_of_the_whole() -> None:
    inner = msg("on {row}: {why}", row="torch", why=word("faster"))
    assert render(inner, "xx") == "schneller (torch)"
    assert msg("uses {names}", names=["a", "b", "c"]) == "uses a, b, c"
    assert render(msg("uses {names}", names=("a", "b", "c")), "xx") == "nutzt a、b、c"
    assert render(msg("uses {names}", names=()), "xx") == "nutzt "
    assert sentences(inner, None, "", TIME) == f"{inner} {TIME}"
    assert render(sentences(inner, TIME), "xx") == "schneller (torch)50%, 1.20 ms: <matmul>"
    assert clauses([inner, "b"]) == f"{inner}; b"
    assert render(clauses([inner, "b"]), "xx") == "schneller (torch)；b"
    assert (sentences(), clauses([])) == ("", "")


@pytest.mark.parametrize(
    ("text", "args"),
    [
        ("{a} and {b}", {"a": 1}),
        ("{a}", {"a": 1, "b": 2}),
        ("{}", {}),
        ("{0}", {}),
        ("{a.b}", {"a": 1}),
        ("{a[0]}", {"a": "x"}),
        ("{a!r}", {"a": 1}),
        ("{a:>999999999}", {"a": 1}),
        ("{a:{b}}", {"a": 1, "b": 2}),
        ("{a:.0%}", {"a": "text"}),
        ("{a", {"a": 1}),
        ("{a:.1f}", {"a": None}),
        ("", {}),
    ],
)  # fmt: skip
def test_a_message_that_could_not_be_said_is_refused_when_it_is_made(
    text: str, args: dict[str, Any]
) -> None:
    with pytest.raises((ValueError, TypeError)):
        Message(text, args)


def test_a_plural_needs_its_number() -> None:
    with pytest.raises(ValueError, match="count"):
        Message("{a} row", {"a": 1}, "{a} rows")


def test_a_translation_with_other_places_is_passed_over() -> None:
    assert render(msg("is {what}", what=3), "xx") == "is 3"


def test_arguments_become_plain_values() -> None:
    given = {"a": np.int64(3), "b": np.float32(0.5), "c": Path("x") / "y", "d": np.dtype("int8")}
    found = msg("{a} {b:.1f} {c} {d}", **given).args
    assert dict(found) == {"a": 3, "b": 0.5, "c": "x/y", "d": "int8"}
    assert [type(value) for value in found.values()] == [int, float, str, str]


def test_a_message_does_not_change() -> None:
    with pytest.raises(AttributeError):
        TIME.id = "other"
    with pytest.raises(TypeError):
        TIME.args["share"] = 1  # type: ignore[index]


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda m: pickle.loads(pickle.dumps(m))])
def test_a_message_survives_the_way_to_another_process(copied: Any) -> None:
    twin = copied(TIME)
    assert (twin, twin.id, twin.args) == (TIME, TIME.id, TIME.args)
    assert render(twin, "xx") == render(TIME, "xx")


def test_the_table_of_a_file_brings_messages_back() -> None:
    stored = [
        TIME,
        msgn("{count} row", "{count} rows", count=2),
        msg("uses {names}", names=[TIME, "b", Bytes(2048), Seconds(None), math.inf, -math.inf]),
    ]
    rows = json.loads(json.dumps(message_table.table({"a": stored, "b": [TIME, "foreign"]})))
    assert [row["text"] for row in rows] == [str(m) for m in stored], "each once, foreign none"
    found = message_table.read(rows)
    for message in stored:
        assert found[message].id == message.id
        assert found[message].args == message.args
        assert render(found[message], "xx") == render(message, "xx")


@pytest.mark.parametrize(
    "entry",
    [
        7,
        {"text": "a"},
        {"text": "a", "id": "{x}", "args": {}},
        {"text": "a", "id": "{x}", "args": {"x": {"parsecs": 3}}},
        {"text": "a", "id": "{x:.1f}", "args": {"x": None}},
        {"text": "a", "id": "{x.__class__}", "args": {"x": 1}},
        {"text": "a", "id": "b", "args": []},
        {"text": "a", "id": 5, "args": {}},
        {"text": "a", "id": "{count}", "plural": "{count}", "args": {"count": "many"}},
        {"text": ["a"], "id": "b", "args": {}},
    ],
)
def test_an_entry_that_cannot_be_read_leaves_foreign_text(entry: Any) -> None:
    assert message_table.read([entry]) == {}


def test_no_table_is_no_messages() -> None:
    assert message_table.read(None) == message_table.read({"a": 1}) == {}


def test_an_error_keeps_its_message() -> None:
    error = UsageError(TIME)
    assert (str(error), error.message) == (TIME, TIME)
    assert isinstance(error.message, Message)
    assert isinstance(one_line(error), Message)
    assert type(str(error)) is str
    assert one_line(ValueError(TIME)) == TIME
    assert UsageError().message == ""


def test_the_gist_of_a_long_error_is_a_line() -> None:
    assert one_line(RunError("first\nsome Error: here\nlast")) == "some Error: here"
    assert one_line(ValueError("no such file\nPlease install x\nSee: y")) == "no such file"
    assert len(one_line(RunError("x" * 1000))) == 1000, "what we say ourselves stays whole"
    assert len(one_line(ValueError("x" * 1000))) == 300


def test_the_place_in_onnx_runtimes_own_code_is_left_out_of_its_message() -> None:
    said = (
        "[ONNXRuntimeError] : 1 : FAIL : /onnxruntime_src/onnxruntime/core/graph/model.cc:256 "
        "onnxruntime::Model::Model(onnx::ModelProto&&, const onnxruntime::PathString&, "
        "const onnxruntime::IOnnxRuntimeOpSchemaRegistryList*) "
        "Unsupported model IR version: 13, max supported IR version: 12"
    )
    assert one_line(RuntimeError(said)) == (
        "[ONNXRuntimeError] : 1 : FAIL : "
        "Unsupported model IR version: 13, max supported IR version: 12"
    )
