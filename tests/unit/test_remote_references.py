"""References to functions of worker processes: what they refer to, and that nothing is imported."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from support import fakes
from tvmscope.measure.remote import Remote, here, remote

if TYPE_CHECKING:
    import tvmscope.compiler.build


def test_a_lambda_spells_the_path_and_nothing_is_imported() -> None:
    code = (
        "import sys\n"
        "from tvmscope.measure.remote import remote\n"
        "print(remote(lambda: tvmscope.compiler.build.build))\n"
        "print('tvmscope.compiler' in sys.modules)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["tvmscope.compiler.build:build", "False"]


def test_a_path_may_name_a_word_twice() -> None:
    found = remote(lambda: tvmscope.compiler.build.build)
    assert (found.module, found.name) == ("tvmscope.compiler.build", "build")


def test_a_name_without_its_module_is_refused() -> None:
    with pytest.raises(TypeError, match="names no module"):
        remote(lambda: build)  # type: ignore[name-defined]  # noqa: F821


def test_a_function_at_hand_is_referred_to_by_its_module() -> None:
    assert here(fakes.add) == Remote("support.fakes", "add")
    assert here(fakes.add).resolve()(1, b=2) == 3


def test_what_a_worker_could_not_find_is_refused() -> None:
    for function in (lambda: 1, fakes.FakeRunner.run, print):
        with pytest.raises(TypeError, match="no function of a module"):
            here(function)
