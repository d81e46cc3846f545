"""Runs the installed command as users run it, and checks how it refuses."""

from __future__ import annotations

import atexit
import functools
import json
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any

import onnx
from onnx import TensorProto, helper

from support import command_server

COMMAND = str(Path(sys.executable).with_name("tvmscope"))
ENV = {**os.environ, "COLUMNS": "160", "NO_COLOR": "1"}
TORCH_NET = """
import torch

class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = torch.nn.Conv2d(3, 8, 3, padding=1)
        self.head = torch.nn.Linear(8, 5)

    def forward(self, x):
        return self.head(torch.relu(self.conv(x)).mean((2, 3)))

def get_init_inputs():
    return []

def get_inputs():
    return [torch.randn(1, 3, 12, 10)]
"""


def run(
    *args: str, cwd: Path | None = None, timeout_s: float = 120, **env: str
) -> subprocess.CompletedProcess[str]:
    """The command's exit code, stdout and stderr."""
    if not env:
        return _server().run(args, cwd or Path.cwd(), timeout_s)
    return subprocess.run(  # variables may matter while modules are imported
        [COMMAND, *args], capture_output=True, text=True, cwd=cwd, timeout=timeout_s, check=False,
        env={**ENV, **env},
    )  # fmt: skip


class _Server:
    """The process that commands are forked from; it ends with this one."""

    def __init__(self) -> None:
        self._connection, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, command_server.__file__, str(theirs.fileno())],
                pass_fds=(theirs.fileno(),), stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                env=ENV,
            )  # fmt: skip
        atexit.register(self.close)

    def run(
        self, args: tuple[str, ...], cwd: Path, timeout_s: float
    ) -> subprocess.CompletedProcess[str]:
        request = json.dumps({"args": args, "cwd": str(cwd)}).encode()
        with TemporaryFile("w+") as out, TemporaryFile("w+") as err:
            socket.send_fds(self._connection, [request], [out.fileno(), err.fileno()])
            self._connection.settimeout(timeout_s)
            process = self._answer()
            try:
                code = self._answer()
            except TimeoutError as e:
                os.kill(process, signal.SIGKILL)
                self._connection.settimeout(None)
                self._answer()
                raise subprocess.TimeoutExpired([COMMAND, *args], timeout_s) from e
            texts = [(stream.seek(0), stream.read())[1] for stream in (out, err)]
        return subprocess.CompletedProcess([COMMAND, *args], code, *texts)

    def close(self) -> None:
        self._connection.close()
        self._process.wait()

    def _answer(self) -> int:
        message = self._connection.recv(64)
        assert message, "the server of commands has ended"
        number: int = json.loads(message)
        return number


_server = functools.cache(_Server)


def refuses(done: subprocess.CompletedProcess[str], code: int, *words: str) -> None:
    """One line on stderr, nothing on stdout, no traceback."""
    assert done.returncode == code, done.stderr
    assert done.stdout == ""
    assert done.stderr.startswith("error: ")
    assert done.stderr.count("\n") == 1
    for word in words:
        assert word in done.stderr


def asked(folder: Path, name: str, *args: str, code: int = 0) -> Any:
    """What `run --json` of the artifact `name` prints; it must say nothing else."""
    done = run("run", str(folder / name), "--json", "-q", *args)
    assert (done.returncode, done.stderr) == (code, ""), done.stderr
    return json.loads(done.stdout)


def save_onnx(file: Path, *nodes: onnx.NodeProto, shape: tuple[int | str, ...] = (1, 8)) -> Path:
    """A graph from x to y, both of one shape; domains other than ONNX's are declared."""
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, shape)],
    )
    domains = sorted({node.domain for node in nodes} - {""})
    opsets = [helper.make_opsetid("", 18), *(helper.make_opsetid(d, 1) for d in domains)]
    onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=9), file)
    return file
