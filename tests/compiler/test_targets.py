"""Every form of --target."""

from __future__ import annotations

import json
import platform
from pathlib import Path

import pytest
import tvm

from tvmscope.compiler import targets
from tvmscope.compiler.host import run_probe_kernel
from tvmscope.core.target import Target
from tvmscope.errors import UsageError
from tvmscope.machine import cpu_features
from tvmscope.measure.remote import here
from tvmscope.measure.worker import run_isolated
from tvmscope.runtime.check import cpu_problem

X86 = pytest.mark.skipif(platform.machine() != "x86_64", reason="the cap is for x86")


def test_host_uses_only_features_that_the_cpu_reports(host: Target) -> None:
    assert host.kind == "llvm"
    assert set(host.features) <= cpu_features.reported()
    assert host.cores == 2


def test_probe_runs_on_the_host(host: Target) -> None:
    assert run_isolated(here(run_probe_kernel), targets.to_tvm(host)) < 1e-4


def test_features_hidden_by_a_hypervisor_are_switched_off(monkeypatch: pytest.MonkeyPatch) -> None:
    hidden = frozenset(f for f in cpu_features.reported() if not f.startswith("avx512"))
    monkeypatch.setattr(cpu_features, "reported", lambda: hidden)
    target = targets.host_target()
    assert not any(f.startswith("avx512") for f in target.features)
    if target.disabled_features:
        assert "-avx512f" in targets.to_tvm(target)["mattr"]


@X86
def test_a_capped_host_has_no_feature_above_the_cap(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = targets.host_target(cache=tmp_path)
    monkeypatch.setenv(cpu_features.ISA_VARIABLE, "avx2")
    capped = targets.host_target(cache=tmp_path)
    assert capped.vector_bits <= 256
    assert not any(cpu_features.CAPS["avx2"].hides(f) for f in capped.features)
    assert run_isolated(here(run_probe_kernel), targets.to_tvm(capped)) < 1e-4
    if whole.vector_bits == 512:
        assert (capped.arch, capped.disabled_features) == ("x86-64-v3", ())


@X86
def test_code_above_the_cap_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    target = targets.cpu_target("skylake-avx512")
    monkeypatch.setattr(cpu_features, "_of_this_cpu", lambda: frozenset(target.features))
    monkeypatch.delenv(cpu_features.ISA_VARIABLE, raising=False)
    assert cpu_problem(target) is None
    monkeypatch.setenv(cpu_features.ISA_VARIABLE, "avx2")
    problem = cpu_problem(target)
    assert problem is not None
    assert "this CPU lacks avx512" in problem
    assert problem.endswith("(TVMSCOPE_ISA is set)")


def test_proof_of_the_host_is_kept(tmp_path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = targets.host_target(cache=tmp_path)
    monkeypatch.setattr(targets, "_detect_host", lambda: pytest.fail("detected twice"))
    assert targets.host_target(cache=tmp_path) == first


def test_damaged_proof_is_made_again(tmp_path) -> None:
    first = targets.host_target(cache=tmp_path)
    (file,) = tmp_path.iterdir()
    file.write_text("{")
    assert targets.host_target(cache=tmp_path) == first


def test_cpu_preset_has_the_features_of_its_cpu() -> None:
    target = targets.resolve("cpu:skylake-avx512")
    assert target.arch == "skylake-avx512"
    assert {"avx512f", "avx512bw", "fma"} <= set(target.features)
    assert target.vector_bits == 512


def test_arm_preset_is_a_cross_target() -> None:
    target = targets.resolve("arm64:cortex-a72", cores=4)
    assert target.triple == targets.ARM64_TRIPLE
    assert "neon" in target.features
    assert targets.to_tvm(target)["num-cores"] == 4


def test_old_llvm_string_is_translated() -> None:
    target = targets.resolve("llvm -mcpu=skylake-avx512 -mattr=-avx512f,+f16c -num-cores 3")
    assert target.arch == "skylake-avx512"
    assert "avx512f" not in target.features
    assert target.cores == 3
    assert "-avx512f" in targets.to_tvm(target)["mattr"]


def test_old_cuda_string_is_translated() -> None:
    target = targets.resolve("cuda -arch=sm_89")
    assert targets.to_tvm(target)["arch"] == "sm_89"
    assert target.device == "cuda"


def test_json_is_taken() -> None:
    text = json.dumps({"kind": "llvm", "mcpu": "haswell", "mattr": ["-fma"]})
    target = targets.resolve(text)
    assert "avx2" in target.features
    assert "fma" not in target.features


def test_limits_in_a_cuda_json_reach_tvm() -> None:
    limits = {
        "max_threads_per_block": 512,
        "max_shared_memory_per_block": 101376,
        "thread_warp_size": 32,
        "registers_per_block": 32768,
    }
    target = targets.resolve(json.dumps({"kind": "cuda", "arch": "sm_86", **limits}))
    assert target.attrs == limits
    made = tvm.target.Target(targets.to_tvm(target))
    assert {key: int(made.attrs[key]) for key in limits} == limits


@pytest.mark.parametrize(
    ("config", "words"),
    [
        ({"kind": "cuda", "max_thread_per_block": 512}, "did you mean max_threads_per_block"),
        ({"kind": "cuda", "mcpu": "haswell"}, "a cuda target has no 'mcpu'"),
        ({"kind": "cuda", "thread_warp_size": "32"}, "whole number over 0"),
        ({"kind": "llvm", "thread_warp_size": 32}, "a llvm target has no 'thread_warp_size'"),
        ({"kind": "opencl"}, "use llvm or cuda"),
    ],
)
def test_what_a_target_does_not_take_is_refused(config: dict[str, object], words: str) -> None:
    with pytest.raises(UsageError, match=words):
        targets.resolve(json.dumps(config))


def test_cuda_preset_needs_no_device() -> None:
    target = targets.resolve("cuda:sm_90")
    assert target.attrs["thread_warp_size"] == 32
    assert target.label == "cuda:sm_90"


@pytest.mark.parametrize(
    "text",
    ["gpu", "cpu:notacpu", "{", '{"kind": "opencl"}', "llvm -frobnicate=1", "arm64:skylake"],
)
def test_unknown_target_is_a_usage_error_that_names_it(text: str) -> None:
    with pytest.raises(UsageError):
        targets.resolve(text)


def test_a_target_without_a_cpu_name_is_the_plainest_one() -> None:
    target = targets.resolve('{"kind": "llvm"}')
    assert (target.arch, target.features, target.vector_bits) == ("x86-64", (), 128)
