"""The extras say in one line what to install, and their list is the package's own."""

from __future__ import annotations

import importlib.util
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from support import fakes
from tvmscope import extras
from tvmscope.errors import BackendUnavailable
from tvmscope.measure.remote import here
from tvmscope.measure.worker import Worker

PROJECT = Path(__file__).parents[2] / "pyproject.toml"


def names(requirements: list[str]) -> set[str]:
    return {re.split(r"[<>=;\[]", text)[0].strip() for text in requirements}


def test_the_lists_are_those_of_the_package() -> None:
    project = tomllib.loads(PROJECT.read_text())["project"]
    needed = [text for text in project["dependencies"] if "sys_platform != 'linux'" not in text]
    assert names(needed) == set(extras.BASE) - {"py-cpuinfo"}
    optional = project["optional-dependencies"]
    assert optional.pop("all") == ["tvmscope[tvm,torch,openvino]"]
    for ours in ("dev", "docs"):  # of the checkout, not of the product
        optional.pop(ours)
    assert {extra: names(found) for extra, found in optional.items()} == {
        extra: set(found) for extra, found in extras.EXTRAS.items()
    }


def test_no_library_is_in_two_extras() -> None:
    modules = [module for found in extras.EXTRAS.values() for module in found.values()]
    assert len(modules) == len(set(modules))


def test_a_missing_library_names_its_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    expected = "openvino is not installed: pip install 'tvmscope[openvino]'"
    assert extras.missing("openvino") == expected
    with pytest.raises(BackendUnavailable, match=r"tvmscope run needs tvm.*'tvmscope\[tvm\]'"):
        extras.require("tvm", why="tvmscope run")


def test_a_failed_import_is_explained_only_where_an_extra_is_missing() -> None:
    absent = ModuleNotFoundError("No module named 'onnxslim'", name="onnxslim")
    assert "'tvmscope[tvm]'" in str(extras.explain(absent))
    # A part that an installed TVM of another version lacks is not cured by installing the extra.
    assert extras.explain(ModuleNotFoundError("No module named 'tvm.x'", name="tvm.x")) is None
    assert extras.explain(ModuleNotFoundError("No module named 'einops'", name="einops")) is None
    assert extras.explain(ValueError("onnxslim")) is None


def test_a_hidden_module_is_back_afterwards() -> None:
    with extras.hidden("wave"):
        assert importlib.util.find_spec("wave") is None
        with pytest.raises(ImportError):
            importlib.import_module("wave")
    importlib.import_module("wave")
    with extras.hidden("wave"):  # what is imported already stays
        importlib.import_module("wave")


def test_a_worker_says_what_to_install() -> None:
    with (
        Worker("w") as worker,
        pytest.raises(BackendUnavailable, match=r"pip install 'tvmscope\[cuda\]'"),
    ):
        worker.call(here(fakes.fail), "no-extra")


@pytest.mark.parametrize(
    "module",
    [
        "tvmscope.backends.profilers.onnxruntime",
        "tvmscope.backends.profilers.openvino",
        "tvmscope.models.loaders.onnx_graph",
    ],
)
def test_what_serves_onnx_alone_imports_neither_tvm_nor_torch(module: str) -> None:
    code = f"import {module}, sys; print({{'tvm', 'torch'}} & sys.modules.keys())"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "set()\n"
