"""Arrays in files are shared by the processes that read them, not copied."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from support import evil
from tvmscope.benchmark.verify import verify
from tvmscope.measure.confinement import status_bytes
from tvmscope.measure.remote import here
from tvmscope.measure.worker import Worker
from tvmscope.storage.files import map_npz, write_npz

ARRAYS = {
    "x": np.arange(24, dtype=np.float32).reshape(2, 3, 4),
    "a/b.c": np.array(7.5),
    "empty": np.zeros((0, 4), dtype=np.int64),
    "file": np.array([True, False]),
    "half": np.ones(3, dtype=np.float16),
    "fortran": np.asfortranarray(np.arange(6.0).reshape(2, 3)),
}


def test_arrays_come_back_under_any_name(tmp_path: Path) -> None:
    write_npz(tmp_path / "x.npz", ARRAYS)
    mapped = map_npz(tmp_path / "x.npz")
    assert list(mapped) == list(ARRAYS)
    with np.load(tmp_path / "x.npz") as loaded:
        for name, array in ARRAYS.items():
            for found in (mapped[name], loaded[name]):
                assert (found.shape, found.dtype) == (array.shape, array.dtype)
                assert np.array_equal(found, array)


def test_mapped_arrays_are_aligned_and_writing_leaves_the_file(tmp_path: Path) -> None:
    write_npz(tmp_path / "x.npz", ARRAYS)
    mapped = map_npz(tmp_path / "x.npz")
    for name in ("x", "half", "fortran"):
        assert mapped[name].ctypes.data % 64 == 0
        assert mapped[name].flags.writeable
    mapped["x"][:] = -1
    assert np.array_equal(map_npz(tmp_path / "x.npz")["x"], ARRAYS["x"])


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
def test_files_of_numpy_are_read_too(tmp_path: Path, save: object) -> None:
    save(tmp_path / "x.npz", x=ARRAYS["x"])  # type: ignore[operator]
    assert np.array_equal(map_npz(tmp_path / "x.npz")["x"], ARRAYS["x"])


def test_a_reader_takes_no_memory_of_its_own(tmp_path: Path) -> None:
    write_npz(tmp_path / "x.npz", {"x": np.ones(50_000_000, dtype=np.float32)})
    with Worker("w") as worker:
        total, grown = worker.call(here(evil.sum_of_file), str(tmp_path / "x.npz"))
    assert total == 50_000_000
    assert grown < 20 << 20


def test_verifying_large_outputs_takes_little_memory(tmp_path: Path) -> None:
    write_npz(tmp_path / "x.npz", {"x": np.ones(25_000_000, dtype=np.float32)})
    before = status_bytes("VmHWM") or 0
    assert verify(tmp_path / "x.npz", tmp_path / "x.npz", 1e-4, "itself").passed
    # the files' own pages count in this number; reading them whole into float64 took six times them
    assert (status_bytes("VmHWM") or 0) - before < 300 << 20
