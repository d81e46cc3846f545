"""Small prepared models that the compiler's tests share; each is made once per test run."""

from __future__ import annotations

from pathlib import Path

import pytest

from support.references import PREPARE
from tvmscope.compiler import targets
from tvmscope.compiler.tunable import extract
from tvmscope.core.model import Prepared
from tvmscope.core.options import CompileOptions, LoadOptions
from tvmscope.core.target import Target
from tvmscope.core.tuning import TuningTask
from tvmscope.machine import cpu_features
from tvmscope.measure.worker import run_isolated

CONV_NET = """
import torch

class Block(torch.nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.conv = torch.nn.Conv2d(channels, channels, 3, padding=1, bias=False)
        self.norm = torch.nn.BatchNorm2d(channels)
        self.act = torch.nn.ReLU()

    def forward(self, x):
        return self.act(self.norm(self.conv(x)) + x)

class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = torch.nn.Conv2d(3, 11, 3, stride=2, padding=1)
        self.first = Block(11)
        self.second = Block(11)
        self.head = torch.nn.Linear(11, 5)

    def forward(self, x):
        x = self.second(self.first(torch.relu(self.stem(x))))
        return self.head(x.mean((2, 3)))

def get_init_inputs():
    return []

def get_inputs():
    return [torch.randn(1, 3, 17, 13)]
"""


@pytest.fixture(scope="session")
def host() -> Target:
    return targets.host_target(cores=2)


@pytest.fixture(scope="session")
def narrow() -> Target:
    """A CPU with half the vectors and registers of AVX-512, whose code this machine can run."""
    name = "cpu:x86-64-v3" if "avx2" in cpu_features.reported() else "cpu"
    return targets.resolve(name, cores=2)


@pytest.fixture(scope="session")
def wide() -> Target:
    """A CPU with two 512-bit multiply-adds a cycle, or with what this machine can run."""
    needed = {"avx512f", "avx512bw", "avx512dq", "avx512vl"}
    name = "cpu:x86-64-v4" if needed <= cpu_features.reported() else "cpu"
    return targets.resolve(name, cores=2)


@pytest.fixture(scope="session")
def conv_net(tmp_path_factory: pytest.TempPathFactory) -> Prepared:
    """A residual network with odd shapes, as torch and as ONNX."""
    folder = tmp_path_factory.mktemp("conv-net")
    source = folder / "net.py"
    source.write_text(CONV_NET)
    ready = folder / "prepared"
    ready.mkdir()
    model = run_isolated(PREPARE, str(source), str(ready), LoadOptions())
    return Prepared(Path(ready), model)


@pytest.fixture(scope="session")
def conv_net_onnx(conv_net: Prepared, tmp_path_factory: pytest.TempPathFactory) -> Prepared:
    """The same network, from its ONNX file."""
    ready = tmp_path_factory.mktemp("conv-net-onnx")
    model = run_isolated(PREPARE, str(conv_net.onnx_path), str(ready), LoadOptions())
    return Prepared(Path(ready), model)


@pytest.fixture(scope="session")
def tasks(
    conv_net: Prepared, host: Target, tmp_path_factory: pytest.TempPathFactory
) -> list[TuningTask]:
    """What can be tuned in the network."""
    folder = tmp_path_factory.mktemp("functions")
    return extract.extract(conv_net, host, CompileOptions(), folder)
