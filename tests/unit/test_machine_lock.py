"""Measurements take turns, also those of other processes."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import platformdirs
import pytest

from tvmscope.measure.machine_lock import alone
from tvmscope.messages import Text

HOLD = """
import sys
from tvmscope.measure.machine_lock import alone
with alone(print):
    print("mine", flush=True)
    sys.stdin.readline()
"""


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return Path(platformdirs.user_cache_dir("tvmscope"))


def test_a_second_process_waits_until_the_first_is_done(cache: Path) -> None:
    notes: list[Text] = []
    with subprocess.Popen(
        [sys.executable, "-c", HOLD], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as other:
        assert other.stdout is not None
        assert other.stdin is not None
        assert other.stdout.readline() == "mine\n"

        def note(text: Text) -> None:
            notes.append(text)
            other.kill()  # it dies without a word, and its turn ends

        with alone(note):
            assert other.wait() != 0
    assert len(notes) == 1
    assert "waits" in str(notes[0])


def test_turns_that_do_not_meet_say_nothing(cache: Path) -> None:
    notes: list[Text] = []
    for _ in range(2):
        with alone(notes.append):
            assert (cache / "measuring.lock").is_file()
    assert not notes


def test_a_home_that_cannot_be_written_does_not_matter(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    with alone(pytest.fail):
        pass
