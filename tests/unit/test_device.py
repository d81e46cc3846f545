"""`--device`: one of several GPUs, for the workers of a job and for what this process asks."""

from __future__ import annotations

import importlib
import inspect
import os
import pkgutil
from typing import Any

import pytest

import tvmscope
from support import fake_cuda
from support.fake_cuda import LARGE, SMALL
from tvmscope import workflow
from tvmscope.compiler import targets
from tvmscope.errors import UsageError
from tvmscope.machine import cuda_device, environment, gpu_state
from tvmscope.measure.remote import here
from tvmscope.measure.worker import run_isolated
from tvmscope.parsing import parse_device
from tvmscope.stages.device import on_device, using
from tvmscope.stages.options import Options
from tvmscope.stages.targets import resolve_targets
from tvmscope.workflow.suiting.keys import _gpu


@pytest.fixture
def two_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(cuda_device.VISIBLE, raising=False)
    fake_cuda.install(monkeypatch, LARGE, SMALL)


def visible_gpus() -> str | None:
    """What a worker sees."""
    return os.environ.get(cuda_device.VISIBLE)


@pytest.mark.parametrize(
    ("text", "device"),
    [
        ("cpu", ("cpu", None)), ("llvm", ("cpu", None)), ("cuda", ("cuda", None)),
        ("gpu", ("cuda", None)), ("cuda:0", ("cuda", 0)), (" cuda:12 ", ("cuda", 12)),
    ],
)  # fmt: skip
def test_a_device_is_a_kind_and_a_number(text: str, device: tuple[str, int | None]) -> None:
    assert parse_device(text) == device


@pytest.mark.parametrize("text", ["cuda:", "cuda:-1", "cuda:sm_90", "cpu:1", "cuda:1,cuda:2", ""])
def test_other_words_are_no_device(text: str) -> None:
    with pytest.raises(UsageError, match="unknown device"):
        parse_device(text)


@pytest.mark.usefixtures("two_gpus")
def test_this_process_asks_the_chosen_gpu() -> None:
    with using("cuda:1"):
        assert targets.resolve("cuda").arch == "sm_86"
        assert targets.resolve("cuda").attrs["multiprocessors"] == 28
        assert environment.collect(1).gpu == _gpu() == "RTX 3060"
        with using(None):  # a job inside another keeps its GPU
            assert environment.collect(1).gpu == "RTX 3060"
    assert environment.collect(1).gpu == _gpu() == "NVIDIA H200"
    assert [gpu.name for gpu in cuda_device.find_all()] == ["NVIDIA H200", "RTX 3060"]


@pytest.mark.usefixtures("two_gpus")
def test_nvml_watches_the_same_gpu_though_it_has_another_number() -> None:
    clocks = []
    for device in (None, "cuda:1"):
        with using(device):
            gpu = cuda_device.find()
            assert gpu is not None
            state = gpu_state.connect(gpu.pci_bus)
        assert state is not None
        clocks.append(state.sample().sm_mhz)
    assert clocks == [2000, 1000]
    assert gpu_state.connect("0000:FF:00.0") is None


@pytest.mark.usefixtures("two_gpus")
def test_a_worker_sees_the_chosen_gpu_alone() -> None:
    assert run_isolated(here(visible_gpus)) is None
    with using("cuda:1"):
        assert run_isolated(here(visible_gpus)) == "1"
    with using("cuda"):
        assert run_isolated(here(visible_gpus)) is None


@pytest.mark.parametrize(
    ("given", "wanted"),
    [("4,7", "7"), ("GPU-a, GPU-b", "GPU-b"), ("", "1")],
)
def test_a_number_counts_among_the_gpus_that_are_visible_already(given: str, wanted: str) -> None:
    outside = {cuda_device.VISIBLE: given}
    with cuda_device.chosen(1):
        assert cuda_device.environment(outside) == {"CUDA_VISIBLE_DEVICES": wanted}
    assert cuda_device.environment(outside) == {}


@pytest.mark.usefixtures("two_gpus")
def test_a_gpu_that_does_not_exist_is_a_usage_error() -> None:
    with pytest.raises(UsageError, match=r"cuda:2.*cuda:0 \(NVIDIA H200\), cuda:1 \(RTX 3060\)"):
        tvmscope.bench("x.onnx", device="cuda:2")


def test_a_machine_without_gpus_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    fake_cuda.install(monkeypatch)
    with pytest.raises(UsageError, match="no CUDA device here"), using("cuda:0"):
        pass
    with using("cuda"):  # compiling needs none
        assert targets.resolve("cuda").arch == targets.CROSS_ARCH


def test_the_device_is_also_the_target_where_none_is_given() -> None:
    assert Options.of(device="cuda:1").targets == ("cuda",)
    assert Options.of(device="cpu").targets == ("cpu",)
    assert Options.of(device="auto") == Options.of()
    assert Options.of(device="cuda:1", target="cuda:sm_90").targets == ("cuda:sm_90",)
    with pytest.raises(UsageError, match="unknown device"):
        Options.of(device="tpu")


@pytest.mark.parametrize(
    ("device", "target", "fits"),
    [
        ("cuda", "cuda:sm_80", True), ("cuda", "cpu:haswell", False), ("cpu", "cuda:sm_80", False),
        ("cpu", "cpu:haswell", True), ("cuda", "cpu:haswell,cuda:sm_80", True),
        ("cpu", "cpu:haswell,cuda:sm_80", False),
    ],
)  # fmt: skip
def test_a_device_of_another_kind_than_the_targets_is_refused(
    device: str, target: str, fits: bool
) -> None:
    options = Options.of(device=device, target=target)
    if fits:
        assert resolve_targets(options)
    else:
        with pytest.raises(UsageError, match=f"--device {device} does not run what is compiled"):
            resolve_targets(options)


def test_a_gpus_number_as_a_target_points_to_the_flag() -> None:
    with pytest.raises(UsageError, match="use --device cuda:1"):
        targets.resolve("cuda:1")


def _jobs() -> dict[str, Any]:
    """The functions of the workflow that commands call with options."""
    found = {}
    for module in pkgutil.walk_packages(workflow.__path__, "tvmscope.workflow."):
        for name, function in vars(importlib.import_module(module.name)).items():
            if inspect.isfunction(function) and function.__module__ == module.name:
                found[name] = function
    return {n: f for n, f in found.items() if inspect.signature(f).return_annotation in _RESULTS}


_RESULTS = ("Session", "list[Session]", "Shown", "Artifact", "Changes", "Examined", "Plan")
_WITHIN = {"bench_models", "bench_folder", "analyze_loaded", "compare_paths", "compile_sizes"}
"""They measure by calling jobs that choose the device, or are called by them."""


def test_every_job_runs_on_its_device() -> None:
    jobs = {
        name: job
        for name, job in _jobs().items()
        if "options" in inspect.signature(job).parameters and not name.startswith("_")
    }
    assert {"analyze", "profile", "run_artifact", "ablate", "compare_artifacts"} <= jobs.keys()
    chosen = {name for name, job in jobs.items() if hasattr(job, "__wrapped__")}
    assert jobs.keys() - chosen <= _WITHIN


@pytest.mark.usefixtures("two_gpus")
def test_a_job_is_given_its_device_by_its_options() -> None:
    @on_device
    def job(_model: Any, options: Options, *, more: int = 0) -> str | None:
        """Say where it runs."""
        gpu = cuda_device.find()
        return gpu.name if gpu else None

    assert job(None, Options.of(device="cuda:1")) == "RTX 3060"
    assert job(None, options=Options.of(device="cuda:0"), more=1) == "NVIDIA H200"
    assert job.__doc__ == "Say where it runs."
