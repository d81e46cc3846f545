"""Machine output follows the schema that is shipped with it."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

import jsonschema
import pytest

from support import report_samples, samples
from tvmscope.core.diagnosis.facts import PassFacts, RuleFacts
from tvmscope.core.measurement import Accuracy
from tvmscope.core.model import Model
from tvmscope.core.profile import Edges, Resources, Roof
from tvmscope.core.row import RowKey, Variant
from tvmscope.core.session import Session, from_json, to_json
from tvmscope.core.tuning import TunedTask
from tvmscope.report.formats import json_
from tvmscope.report.redact import redact
from tvmscope.report.renderers import renderers

SCHEMA = json_.schema()


def problems(data: Any) -> list[str]:
    validator = jsonschema.Draft202012Validator(SCHEMA)
    return [f"{e.json_path}: {e.message}" for e in validator.iter_errors(data)]


def test_schema_is_a_schema() -> None:
    jsonschema.Draft202012Validator.check_schema(SCHEMA)


def test_a_gpus_kernels_and_roofs_are_valid() -> None:
    session = report_samples.profiled()
    taken = Resources(blocks=98, threads=128, registers=96, shared_bytes=0, occupancy=0.5)
    profile = session.profiles[0]
    kernels = tuple(
        dataclasses.replace(
            k, products="tf32x3", resources=taken, edges=Edges(inputs=(0,), outputs=())
        )
        for k in profile.kernels
    )
    session = dataclasses.replace(
        session,
        profiles=(dataclasses.replace(profile, kernels=kernels),),
        roofs=tuple(dataclasses.replace(roof, products="tf32") for roof in session.roofs),
    )
    written = json.loads(json.dumps(to_json(session)))
    assert problems(written) == []
    assert from_json(written) == session


def test_a_session_that_does_not_say_where_kernels_lie_is_read() -> None:
    session = report_samples.profiled()
    written = json.loads(json.dumps(to_json(session)))
    for kernel in written["profiles"][0]["kernels"]:
        del kernel["edges"]
    assert problems(written) == []
    assert from_json(written) == session


@pytest.mark.parametrize("name", samples.ALL)
def test_every_session_is_valid(name: str) -> None:
    assert problems(json.loads(json_.render([samples.ALL[name]()]))) == []


@pytest.mark.parametrize("name", samples.ALL)
def test_json_round_trip_keeps_the_session(name: str) -> None:
    session = samples.ALL[name]()
    assert from_json(json.loads(json_.render([session]))) == session


@pytest.mark.parametrize(
    ("cls", "definition"),
    [
        (Model, "model"),
        (Variant, "variant"),
        (RowKey, "row_key"),
        (Accuracy, "accuracy"),
        (TunedTask, "tuned_task"),
        (PassFacts, "pass"),
        (RuleFacts, "rule"),
    ],
)
def test_schema_knows_every_field(cls: type[Any], definition: str) -> None:
    names = {f.name for f in dataclasses.fields(cls)}
    assert names == set(SCHEMA["$defs"][definition]["properties"])


@pytest.mark.parametrize(("part", "definition"), [("comparisons", "comparison"), ("fixes", "fix")])
def test_schema_knows_what_is_written_about_rows(part: str, definition: str) -> None:
    (written, *_) = to_json(report_samples.profiled())[part]
    assert set(written) == set(SCHEMA["$defs"][definition]["properties"])


def test_schema_knows_what_is_written_of_a_task() -> None:
    written = to_json(samples.complete())["results"][0]["task"]
    assert set(written) == set(SCHEMA["$defs"]["task"]["properties"])


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("results", 0, "median_s"), "0.05"),
        (("results", 0, "status"), "fine"),
        (("results", 0, "surprise"), 1),
        (("model", "weights"), None),
        (("schema_version",), 1),
        (("comparisons", 0, "speedup"), 0),
        (("context", "threads"), 0),
    ],
)
def test_a_wrong_value_is_refused(path: tuple[Any, ...], value: Any) -> None:
    data = to_json(samples.complete())
    place: Any = data
    for key in path[:-1]:
        place = place[key]
    place[path[-1]] = value
    assert problems(data)


def test_a_measured_row_needs_its_times() -> None:
    data = to_json(samples.complete())
    del data["results"][0]["values_s"]
    assert problems(data)


def test_times_are_one_object_per_sample() -> None:
    rows = json.loads(json_.times([samples.several_targets()]))
    assert len(rows) == 4 * 45 + 2
    assert {r["clock"] for r in rows} == {"wall", "cuda-events"}


def test_all_formats_are_found() -> None:
    assert {"console", "markdown", "json"} <= set(renderers())


def private() -> Session:
    return samples.session(
        samples.result("torch", 0.05),
        samples.result(
            "openvino",
            None,
            status="failed",
            reason="cannot open '/home/jane doe/x/m.onnx' on lab-7",
        ),
        command="tvmscope bench /home/jane doe/models/m.onnx -o /data/out",
        warnings=(
            r"C:\Users\bob\m.onnx is old",
            "see https://example.org/a/b",
            "10 GFLOP/s of jdoe",
        ),
    )


def test_redaction_removes_host_users_and_folders() -> None:
    data = json.dumps(to_json(redact(private(), user="jdoe")))
    for secret in ("lab-7", "jane", "bob", "jdoe", "/data", "models/"):
        assert secret not in data
    for kept in ("m.onnx", "https://example.org/a/b", "10 GFLOP/s", '"torch"', "AMD EPYC"):
        assert kept in data


def test_redaction_keeps_backends_of_a_user_with_such_a_name() -> None:
    clean = redact(private(), user="torch")
    assert clean.results[0].task.variant.backend == "torch"
    assert clean.results[0].measurement == private().results[0].measurement


def test_redaction_keeps_the_kind_of_products_of_a_user_with_such_a_name() -> None:
    roof = Roof(dtype="float32", threads=1, flops_per_s=1.0, bytes_per_s=None, how="mma",
                products="tf32")  # fmt: skip
    session = dataclasses.replace(private(), roofs=(roof,))
    assert redact(session, user="tf32").roofs == (roof,)
