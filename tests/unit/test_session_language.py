"""A saved session is read in another language than it was written in; machine output is English."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import jsonschema
import numpy as np
import pytest

from support import catalogues, samples
from support.diagnosis_samples import SITUATIONS
from support.rows import key
from tvmscope import messages
from tvmscope.benchmark.verify import verify
from tvmscope.core.artifact import Artifact
from tvmscope.core.diagnosis.findings import Attempt
from tvmscope.core.diagnosis.remarks import failed_rules, rule_failed
from tvmscope.core.precision import FLOAT32
from tvmscope.core.session import Session, load, save, to_json
from tvmscope.core.tuning import TunedTask, because, gist
from tvmscope.diagnose.engine import diagnose
from tvmscope.errors import BuildError
from tvmscope.machine.load import Snapshot, disturbances
from tvmscope.measure.process_exit import describe_exit
from tvmscope.measure.worker import WorkerDied
from tvmscope.messages import Message, Text, msg, render
from tvmscope.report.formats import csv_, google_benchmark, html, json_, markdown
from tvmscope.report.formats.console import to_text
from tvmscope.report.redact import redact
from tvmscope.runtime import artifact as artifacts
from tvmscope.workflow.fixing import attempts

OLD = Path(__file__).parent.parent / "data" / "session-of-sentences.json"
"""Written when sessions held sentences alone."""
PEOPLE = {"console": to_text, "markdown": markdown.render, "html": html.render}
PROGRAMS = {"json": json_.render, "csv": csv_.render, "google": google_benchmark.render}


@pytest.fixture(autouse=True)
def back_to_english() -> Iterator[None]:
    yield
    messages.use_language(None)
    messages.catalogue.cache_clear()


@pytest.fixture
def speak(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Makes everything be said in a language that has a translation of all of a session."""

    def translate(session: Session) -> None:
        texts = catalogues.bracketed(to_json(session)["messages"])
        catalogues.write(tmp_path / "locale", "xx", texts)
        monkeypatch.setattr(messages, "LOCALE_FOLDER", tmp_path / "locale")
        messages.catalogue.cache_clear()
        messages.use_language("xx")

    return translate


def saved(session: Session, folder: Path) -> Session:
    return load(save(session, folder))


def numbers(text: str) -> list[str]:
    return re.findall(r"\d[\d.]*", text)


def is_translated(text: Text) -> bool:
    said = render(text)
    plain = said.replace("⟪", "").replace("⟫", "")
    assert plain == str(text), "nothing but the words has changed"
    assert numbers(plain) == numbers(str(text))
    return said.startswith("⟪")


@pytest.mark.parametrize("rule", SITUATIONS)
def test_every_finding_is_read_in_another_language(rule: str, tmp_path: Path, speak: Any) -> None:
    session = saved(diagnose(SITUATIONS[rule][0]), tmp_path)
    jsonschema.validate(to_json(session), json_.schema())
    speak(session)
    for finding in session.findings:
        assert all(map(is_translated, (finding.title, finding.evidence, finding.advice)))


@pytest.mark.parametrize("rule", SITUATIONS)
def test_a_saved_session_reads_as_it_did_when_it_was_made(rule: str, tmp_path: Path) -> None:
    session = diagnose(SITUATIONS[rule][0])
    assert to_text([saved(session, tmp_path)]) == to_text([session])
    assert markdown.render([saved(session, tmp_path)]) == markdown.render([session])


def measured(tmp_path: Path) -> Session:
    """Reasons and warnings as the parts that make them do."""
    np.savez(tmp_path / "a.npz", y=np.array([1.0, 2.0], np.float32))
    np.savez(tmp_path / "b.npz", y=np.array([1.0, 4.0], np.float32))
    wrong = verify(tmp_path / "a.npz", tmp_path / "b.npz", 1e-4, "torch")
    counters = {"ours": {}, "core_throttles": None, "load": None}
    before = Snapshot(busy=0, steal=0, total=0, quota_throttles=1, **counters)
    after = Snapshot(busy=50, steal=3, total=100, quota_throttles=8, **counters)
    died = WorkerDied("openvino", *describe_exit(-11, []))
    built = BuildError(msg("linking with {command} failed: {reason}", command="cc", reason="no"))
    tried = Attempt(rule="r", title=msg("No schedule was applied"), key=key("tvmscope"))
    slow, fast = samples.result("tvm", 0.05), samples.result("tvmscope", 0.04)
    return samples.session(
        samples.result("torch", 0.05, warnings=disturbances(before, after)),
        samples.result("tvm", 0.05, status="wrong", accuracy=wrong, reason=wrong.detail),
        samples.result("openvino", None, status="failed", reason=died.reason),
        samples.result("tvmscope", None, status="failed", reason=built.message),
        warnings=(rule_failed("matmul", "fused_dense", "no such loop"),),
        failure=built.message,
        fixes=(attempts.judge(tried, slow, fast), attempts.judge(tried, fast, slow)),
        tuning=(task(because(msg("too small"), msg("{share:.2%} of the model", share=0.001))),),
    )


def task(note: Text) -> TunedTask:
    return TunedTask(
        workload="w", kernel="k", rule=None, calls=1, total_s=0.1, share=0.1, least_s=0.0,
        flops=None, candidates=1, trials=1, note=note,
    )  # fmt: skip


def stored(session: Session) -> list[Text]:
    """Every text of a session that is not a finding's."""
    rows = [r.reason for r in session.results if r.reason]
    rows += [w for r in session.results for w in r.warnings]
    rows += [r.accuracy.detail for r in session.results if r.accuracy and r.accuracy.detail]
    tried = [text for fix in session.fixes for text in (fix.title, fix.reason)]
    notes = [task.note for task in session.tuning]
    failure = [session.failure] if session.failure else []
    return [*rows, *tried, *notes, *session.warnings, *failure]


def test_reasons_warnings_and_notes_are_read_in_another_language(
    tmp_path: Path, speak: Any
) -> None:
    made = measured(tmp_path)
    session = saved(made, tmp_path)
    assert session == made
    jsonschema.validate(json.loads((tmp_path / "session.json").read_text()), json_.schema())
    speak(session)
    texts = stored(session)
    assert len(texts) == 14
    assert all(map(is_translated, texts))


@pytest.mark.parametrize("form", PEOPLE)
def test_people_read_reports_in_their_language(form: str, tmp_path: Path, speak: Any) -> None:
    made = replace(
        measured(tmp_path), findings=diagnose(SITUATIONS["no-schedule"][0]).findings, failure=None
    )
    session = saved(made, tmp_path)
    speak(session)
    document = PEOPLE[form]([session])
    for text in (
        "⟪No schedule was applied⟫",
        "⟪schedule rule 'matmul' failed on fused_dense: no such loop⟫",
        "⟪other processes used 50% of the CPU while measuring: times may be high⟫",
        "⟪killed by signal 11 (segmentation fault)⟫",
        "⟪linking with cc failed: no⟫",
        "⟪not faster: 0.8x, ⟪slower⟫⟫",
    ):
        shown = " ".join(document.replace("&#39;", "'").replace("\\'", "'").split())
        assert text in shown


@pytest.mark.parametrize("form", PROGRAMS)
def test_programs_read_english(form: str, tmp_path: Path, speak: Any) -> None:
    session = saved(diagnose(SITUATIONS["no-schedule"][0]), tmp_path)
    sessions = [replace(measured(tmp_path), findings=session.findings)]
    english = PROGRAMS[form](sessions)
    speak(sessions[0])
    assert PROGRAMS[form](sessions) == english
    assert "⟪" not in english
    assert "linking with cc failed: no" in english


def test_a_session_of_sentences_is_still_read(speak: Any) -> None:
    session = load(OLD)
    texts = [*stored(session), *session.model.notes, *(f.evidence for f in session.findings)]
    assert len(texts) == 11
    assert not any(isinstance(text, Message) for text in texts)
    speak(session)
    said = to_text([session])
    assert "noisy: half of the values spread over 12% of the median" in said
    assert "A serial kernel leaves cores idle" in said


def test_what_an_old_session_has_proven_stays_when_it_is_diagnosed_anew() -> None:
    session = load(OLD)
    (old,) = session.findings
    new = next(f for f in diagnose(session).findings if f.rule == old.rule)
    assert isinstance(new.title, Message)
    assert (new.title, new.achieved_s) == (old.title, old.achieved_s)
    measured = "fused_dense_add take 10.0 ms (49% of the run)"  # the words around it are today's
    assert str(new.evidence).startswith(measured)
    assert str(old.evidence).startswith(measured)


def test_remarks_about_rules_are_found_again_in_old_and_new_sessions() -> None:
    now = rule_failed("matmul", "fused_dense", "no such loop")
    assert list(failed_rules((now, str(now), "another thing", msg("another thing")))) == [
        ("matmul", "fused_dense"), ("matmul", "fused_dense"),
    ]  # fmt: skip


def test_notes_are_put_together_by_their_gist() -> None:
    note = because(msg("too small"), msg("{share:.2%} of the model", share=0.001))
    assert gist(note) == gist(str(note)) == "too small"
    assert gist(msg("at its roof")) == gist("at its roof") == "at its roof"


def test_redaction_reaches_what_messages_were_told(tmp_path: Path, speak: Any) -> None:
    """Also under names that are vocabulary elsewhere; the texts themselves are left alone."""
    told = msg("the run of {target} on {rule}", target="/home/jane/x/m.onnx", rule="lab-7")
    session = samples.session(samples.result("torch", 0.05), warnings=(told,))
    environment = replace(session.environment, host="lab-7")
    clean = redact(replace(session, environment=environment), user="run")
    data = json.dumps(to_json(clean))
    assert not any(secret in data for secret in ("jane", "lab-7"))
    (warning,) = clean.warnings
    assert warning == "the run of m.onnx on <host>"
    speak(clean)
    assert render(warning) == "⟪the run of m.onnx on <host>⟫"


def test_an_artifacts_remarks_are_messages_again(tmp_path: Path, speak: Any) -> None:
    made = Artifact(
        path=tmp_path, model="m", source="m", model_digest="d", library_digest="d",
        target=samples.CPU, inputs=(), outputs=(), exec_mode="bytecode", precision=FLOAT32,
        pipeline="tvmscope", warnings=(rule_failed("matmul", "fused_dense", "oops"), "foreign"),
    )  # fmt: skip
    artifacts.save(made, tmp_path)
    read = artifacts.read(tmp_path)
    assert read == made
    assert [isinstance(w, Message) for w in read.warnings] == [True, False]
    file = tmp_path / artifacts.META
    data = json.loads(file.read_text())
    del data["messages"]
    file.write_text(json.dumps(data))  # as earlier versions wrote it
    assert artifacts.read(tmp_path).warnings == made.warnings
    assert not any(isinstance(w, Message) for w in artifacts.read(tmp_path).warnings)
