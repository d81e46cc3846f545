"""Tuning of generated CUDA kernels, as far as it needs no GPU."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from support.references import EXTRACT, PREPARE
from tvmscope.compiler import targets
from tvmscope.compiler.units.choose import Chooser
from tvmscope.core.model import Prepared
from tvmscope.core.options import CompileOptions, LoadOptions
from tvmscope.core.precision import FLOAT16
from tvmscope.core.tuning import Candidate, Choice, TuningTask
from tvmscope.cuda import config as configs
from tvmscope.cuda.cubins import kernel_file
from tvmscope.cuda.units import Conv2d
from tvmscope.measure.worker import run_isolated
from tvmscope.tuning.records.validity import identity
from tvmscope.tuning.trials.builders import Builders, Job
from tvmscope.tuning.trials.kernels import widened
from tvmscope.tuning.trials.runners import LocalRunner

pytest.importorskip("triton", reason="CUDA kernels are generated where Triton is installed")

SM_90 = targets.resolve("cuda:sm_90")


@pytest.fixture(scope="module")
def tasks(net: Path, tmp_path_factory: pytest.TempPathFactory) -> list[TuningTask]:
    folder = tmp_path_factory.mktemp("functions")
    model = run_isolated(PREPARE, str(net), str(folder), LoadOptions())
    options = CompileOptions(precision=FLOAT16)
    return run_isolated(EXTRACT, Prepared(folder, model), SM_90, options, folder / "functions")


@pytest.fixture(scope="module")
def task(tasks: list[TuningTask]) -> TuningTask:
    return max((t for t in tasks if not t.loops), key=lambda t: t.flops or 0)


def test_heavy_operators_are_tasks_with_configurations_to_try(task: TuningTask) -> None:
    assert task.kernel.startswith("conv2d")
    assert task.rule == "triton"
    assert task.candidates[0] == Candidate()
    assert len(task.candidates) > 10
    own = configs.from_json(dict(task.lowerings[0].own))
    tried = [configs.from_json(dict(c.params)) for c in task.candidates[1:]]
    assert own not in tried
    assert len(set(tried)) == len(tried)
    assert identity(task.rule)["rule_version"] >= 1


def test_a_candidate_is_a_kernel_file_and_the_plain_build_is_the_reference(
    task: TuningTask, tmp_path: Path
) -> None:
    function = Path(task.lowerings[0].function)
    plain, built = tmp_path / "plain.so", tmp_path / "one.so"
    with Builders(1, device="cpu") as builders:
        for candidate, output in ((None, plain), (task.candidates[1], built)):
            job = Job(function=function, candidate=candidate, target=SM_90, output=output)
            assert builders.submit(job).result().failure is None
        args = builders.arguments(function)
    unit, kernel = kernel_file.read(built)
    assert kernel is not None
    assert kernel.cubin[:4] == b"\x7fELF"
    assert kernel.config == configs.from_json(dict(task.candidates[1].params))
    assert kernel_file.read(plain) == (unit, None)
    assert isinstance(unit, Conv2d)
    with LocalRunner(threads=1) as runner:
        (first,) = runner.outputs(plain, widened(args), seed=0)
        (again,) = runner.outputs(plain, widened(args), seed=0)
        (other,) = runner.outputs(plain, widened(args), seed=1)
    assert first.shape == args[-1][0]
    assert np.isfinite(first).all()
    assert np.array_equal(first, again)
    assert not np.array_equal(first, other)


def test_a_record_decides_and_one_without_parameters_leaves_the_choice_to_the_model(
    task: TuningTask, tmp_path: Path
) -> None:
    function, output = Path(task.lowerings[0].function), tmp_path / "plain.so"
    with Builders(1, device="cpu") as builders:
        job = Job(function=function, candidate=None, target=SM_90, output=output)
        assert builders.submit(job).result().failure is None
    unit, _ = kernel_file.read(output)
    own = configs.from_json(dict(task.lowerings[0].own))
    other = task.candidates[5]
    chosen = Choice(candidate=other, source="here", cpu="a GPU", threads=1, date="today")
    assert Chooser(SM_90, {unit.key: chosen})(unit) == configs.from_json(dict(other.params))
    unchanged = replace(chosen, candidate=Candidate())
    assert Chooser(SM_90, {unit.key: unchanged})(unit) == own == Chooser(SM_90, {})(unit)
