"""One identity for a row: precisions, variants and keys, and the forms in which they are stored."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from support import samples
from support.rows import key
from tvmscope.backends import all_backends
from tvmscope.core.options import CompileOptions
from tvmscope.core.precision import BFLOAT16, FLOAT16, FLOAT32, Precision
from tvmscope.core.row import RowKey, Variant
from tvmscope.core.target import Target, distinct
from tvmscope.errors import SchemaError, UsageError
from tvmscope.stages.options import Options
from tvmscope.storage.codec import decode, encode

TF32 = Precision("float32", "tf32")


@pytest.mark.parametrize(
    ("word", "precision"),
    [
        ("fp32", FLOAT32), ("float32", FLOAT32), ("fp16", FLOAT16), ("half", FLOAT16),
        ("float16", FLOAT16), ("bf16", BFLOAT16), ("bfloat16", BFLOAT16), ("tf32", TF32),
    ],
)  # fmt: skip
def test_a_precision_has_several_words(word: str, precision: Precision) -> None:
    assert Precision.parse(word) == precision


@pytest.mark.parametrize("word", ["int8", "float64", "nn", "", "float32/strict"])
def test_an_unknown_word_is_refused(word: str) -> None:
    with pytest.raises(UsageError, match="unknown precision"):
        Precision.parse(word)


def test_math_modes_are_told_apart() -> None:
    assert FLOAT32 != TF32
    assert [p.label for p in (FLOAT32, TF32, FLOAT16)] == ["", "tf32", "fp16"]
    assert {p.dtype for p in (FLOAT32, TF32)} == {"float32"}
    with pytest.raises(ValueError, match="TF32"):
        Precision("float16", "tf32")


def test_half_precision_is_allowed_more_error() -> None:
    assert [p.tolerance for p in (FLOAT32, FLOAT16, BFLOAT16)] == [1e-4, 2e-2, 1e-1]
    assert FLOAT32.tolerance < TF32.tolerance < FLOAT16.tolerance
    assert [p.is_half for p in (FLOAT32, TF32, FLOAT16, BFLOAT16)] == [False, False, True, True]


@pytest.mark.parametrize("precision", [FLOAT32, FLOAT16, BFLOAT16, TF32])
def test_a_precision_is_stored_as_a_text(precision: Precision) -> None:
    options = CompileOptions(precision=precision)
    stored = encode(options)
    assert isinstance(stored["precision"], str)
    assert decode(CompileOptions, stored) == options


@pytest.mark.parametrize("old", ["float32", "float16", "bfloat16"])
def test_what_older_versions_stored_is_read(old: str) -> None:
    assert Precision.from_json(old) == Precision.parse(old)
    assert encode(Precision.parse(old)) == old


@pytest.mark.parametrize(
    "bad", ["int8", "", "float32/fast", "float32/strict", "float16/tf32", 3, None]
)
def test_a_stored_precision_that_is_none_is_refused(bad: Any) -> None:
    with pytest.raises(SchemaError, match="precision"):
        Precision.from_json(bad)


def full() -> RowKey:
    return key(
        "tvmscope-tuned", "cuda:sm_90", FLOAT16, pipeline="tvmscope", tuning="a.jsonl",
        graph=True, fixed=True, change="without fusion",
    )  # fmt: skip


def test_a_label_names_what_is_not_usual() -> None:
    assert key("torch").label == "torch @ cpu:znver4"
    assert full().name == "tvmscope-tuned fp16 graph fixed without fusion"
    assert key("tvmscope", precision=FLOAT16).folder_name == "tvmscope-fp16-cpu-znver4"


def test_equal_keys_are_one_key() -> None:
    assert len({full(), full(), key("tvm"), key("tvm")}) == 2
    assert full() == decode(RowKey, encode(full()))
    assert hash(full()) == hash(decode(RowKey, encode(full())))


@pytest.mark.parametrize(
    "change",
    [
        {"backend": "tvmscope"}, {"precision": FLOAT32}, {"pipeline": None}, {"tuning": None},
        {"graph": False}, {"fixed": False}, {"change": None}, {"family": "peer"},
    ],
)  # fmt: skip
def test_every_field_of_the_variant_counts(change: dict[str, Any]) -> None:
    other = replace(full(), variant=replace(full().variant, **change))
    assert other != full()


def test_a_key_is_made_of_a_target() -> None:
    made = RowKey.of(Variant(backend="tvm", family="tvm"), samples.CUDA)
    assert (made.target, made.device) == ("cuda:sm_90", "cuda")
    assert made != RowKey.of(made.variant, Target(kind="cuda", arch="sm_80"))


def test_targets_that_differ_in_features_alone_have_keys_of_their_own() -> None:
    narrow = replace(samples.CPU, features=("avx2",), disabled_features=("fma",))
    small = replace(samples.CUDA, attrs={"thread_warp_size": 32, "max_threads_per_block": 256})
    found = distinct((samples.CPU, narrow, samples.CPU, samples.CUDA, small, narrow))
    assert [target.label for target in found] == [
        "cpu:znver4", "cpu:znver4-fma", "cuda:sm_90", "cuda:sm_90 max_threads_per_block=256",
    ]  # fmt: skip
    variant = Variant(backend="tvmscope", family="ours")
    keys = {RowKey.of(variant, target) for target in found}
    assert len(keys) == len({key.folder_name for key in keys}) == 4


def test_many_differences_become_a_number() -> None:
    other = replace(samples.CPU, disabled_features=("avx2", "fma", "avx"))
    third = replace(samples.CPU, disabled_features=("sse3", "avx", "fma"))
    found = distinct((samples.CPU, other, third))
    assert [target.label for target in found] == ["cpu:znver4", "cpu:znver4#2", "cpu:znver4#3"]


def test_rows_of_another_session_are_found_whatever_they_were_compiled_with() -> None:
    other = replace(full(), variant=replace(full().variant, tuning="b.jsonl", pipeline="f.py:f"))
    assert full() != other
    assert full().across_sessions == other.across_sessions
    assert full().across_sessions != key("tvmscope").across_sessions


@pytest.mark.parametrize(
    ("backend", "ours", "compiled"),
    [
        ("tvmscope", True, True), ("tvmscope-tuned", True, True), ("tvm", False, True),
        ("tvm-tuned", False, True),
        ("torch", False, False), ("torch-compile", False, False), ("onnxruntime", False, False),
        ("openvino", False, False),
    ],
)  # fmt: skip
def test_the_manifest_says_whose_row_it_is(backend: str, ours: bool, compiled: bool) -> None:
    manifest = all_backends()[0][backend]
    variant = Variant(backend=backend, family=manifest.family, pipeline=manifest.compiles)
    assert (variant.is_ours, variant.is_compiled) == (ours, compiled)
    assert variant.uses_our_passes is ours


def test_a_name_alone_makes_no_row_ours() -> None:
    posing = Variant(backend="tvmscope-like", family="peer")
    assert not posing.is_ours
    assert not posing.is_compiled


def test_a_precision_that_is_named_twice_is_one_row() -> None:
    assert Options.of(precision="fp16,float16,fp32").precisions == (FLOAT16, FLOAT32)


def test_the_users_own_pipeline_has_not_our_passes() -> None:
    variant = Variant(backend="tvmscope", family="ours", pipeline="mine.py:f")
    assert variant.is_ours
    assert not variant.uses_our_passes
