"""Matrix products with NVIDIA's cuBLASLt, through ctypes; needs only the library and a driver.

A compiled model whose kernels are calls of the library has a copy of this file, which load_model.py
beside it uses. Descriptors and the algorithm are made once, when a product is made: a launch only
queues it on a stream, so that a CUDA graph can record it.

The library describes an algorithm by 64 bytes that are valid for one version only. Therefore its
index in the list of algorithms that the library proposes for a product is stored, and the list is
requested again when the product is made. Another version may propose others: the result is equally
correct, the time may differ. If the list is shorter than before, its first is used.
"""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

MAJORS = (13, 12)
"""Supported major versions of the library, the preferred first."""
PROPOSALS = 8
"""How many algorithms are requested; always the same number, because the list may depend on it."""
_PACKAGES = ("nvidia/cu13/lib", "nvidia/cublas/lib")
_SYSTEM = (
    "/usr/local/cuda/lib64",
    "/usr/lib/x86_64-linux-gnu",
    "/usr/lib/aarch64-linux-gnu",
    "/usr/lib64",
)
_TYPES = {"float32": 0, "float16": 2, "bfloat16": 14}  # CUDA_R_*
_BYTES = {"float32": 4, "float16": 2, "bfloat16": 2}
_SUMS = {"float32": 68, "tf32": 77}  # CUBLAS_COMPUTE_32F, CUBLAS_COMPUTE_32F_FAST_TF32
_EPILOGUES = {"none": (1, 4), "relu": (2, 6), "gelu_tanh": (32, 36)}
"""CUBLASLT_EPILOGUE_* without and with bias. Its GELU is the one with tanh."""
_TRANS_A, _TRANS_B, _EPILOGUE, _BIAS_POINTER, _BIAS_TYPE = 3, 4, 7, 8, 26  # CUBLASLT_MATMUL_DESC_*
_BATCH_COUNT, _BATCH_STRIDE = 5, 6  # CUBLASLT_MATRIX_LAYOUT_*
_WORKSPACE, _ALIGNMENTS = 1, (5, 6, 7, 8)  # CUBLASLT_MATMUL_PREF_*
ALIGNED_BYTES = 16
"""The alignment of every pointer; the library would assume 256."""
_STATUS = {
    1: "not initialised, or the driver is too old for it",
    3: "out of memory",
    7: "a value is invalid",
    8: "this GPU lacks what it needs",
    13: "the kernel failed",
    14: "an error inside the library",
    15: "not supported",
}


class LibraryError(RuntimeError):
    """The library is missing or refuses a call; the message says which and what to do."""


class _Proposal(ctypes.Structure):
    _fields_ = (
        ("algorithm", ctypes.c_uint64 * 8),
        ("workspace_bytes", ctypes.c_size_t),
        ("state", ctypes.c_int),
        ("waves", ctypes.c_float),
        ("reserved", ctypes.c_int * 4),
    )


def find() -> Path | None:
    """Find the library's file in installed packages or the system's folders; nothing is loaded."""
    return next(_files(), None)


def _files() -> Iterator[Path]:
    places = [Path(root) / part for root in sys.path for part in _PACKAGES]
    places += [Path(p) for p in os.environ.get("LD_LIBRARY_PATH", "").split(":") if p]
    places += [Path(p) for p in _SYSTEM]
    for major in MAJORS:
        for place in places:
            if (file := place / f"libcublasLt.so.{major}").is_file():
                yield file


def load() -> Any:
    """Load the library: the process's own, the system loader's, or one of `find`'s."""
    reasons = []
    for name in (*(f"libcublasLt.so.{major}" for major in MAJORS), *map(str, _files())):
        try:
            return ctypes.CDLL(name)
        except OSError as e:
            reasons.append(str(e))
    raise LibraryError(
        f"the model calls cuBLASLt, and there is no libcublasLt.so.{MAJORS[0]} or"
        f" .{MAJORS[1]} here: pip install nvidia-cublas (nvidia-cublas-cu12 for drivers of CUDA"
        f" 12), or install the CUDA toolkit; or compile the model with --no-library ({reasons[0]})"
    )


class Library:
    """A handle for the GPU whose context is current."""

    def __init__(self, library: Any = None) -> None:
        self._library = load() if library is None else library
        self.handle = ctypes.c_void_p()
        self._library.cublasLtGetVersion.restype = ctypes.c_size_t
        self.version = int(self._library.cublasLtGetVersion())
        self.check("cublasLtCreate", ctypes.byref(self.handle))
        self.multiply = self._library.cublasLtMatmul
        self.multiply.argtypes = (ctypes.c_void_p,) * 14 + (ctypes.c_size_t, ctypes.c_void_p)

    def check(self, name: str, *arguments: Any) -> None:
        """Call a function and raise if it fails."""
        if status := getattr(self._library, name)(*arguments):
            raise LibraryError(refused(name, status))

    def product(self, call: Mapping[str, Any], *, strict: bool = False) -> Product:
        """Return the product that an entry of an artifact's table describes; with `strict`, a list
        without its algorithm is an error."""
        return Product(self, call, strict)


def refused(name: str, status: int) -> str:
    """Return the message for a status that is not success."""
    return f"cuBLASLt: {name} says {status} ({_STATUS.get(status, 'unknown')})"


class Product:
    """output = activation(scale * input x weight + bias + residual), ready to be launched.

    The library's matrices are stored by columns, the model's by rows: so it computes the transposed
    output, the weight times the input."""

    def __init__(self, library: Library, call: Mapping[str, Any], strict: bool = False) -> None:
        self._library, self._call = library, call
        self._places = {role: i for i, role in enumerate(call["arguments"])}
        self._biased: int | None = self._places.get("bias")
        self._bias = ctypes.c_void_p(ALIGNED_BYTES)  # the library checks its alignment
        self._alpha = ctypes.c_float(call["scale"])
        self._beta = ctypes.c_float(1.0 if "residual" in self._places else 0.0)
        self._operation = self._described()
        m, n, k = call["m"], call["n"], call["k"]
        self._sides = [
            self._layout(call["b"], n, k, call["dtype"]),
            self._layout(call["a"], k, m, call["dtype"]),
            self._layout(call["z"], n, m, call["output"]),
            self._layout(call["y"], n, m, call["output"]),
        ]
        self._algorithm = self._proposed(strict)
        self._at = self._operands()

    def _described(self) -> ctypes.c_void_p:
        call, made = self._call, ctypes.c_void_p()
        self._library.check(
            "cublasLtMatmulDescCreate", ctypes.byref(made), _SUMS[call["sums"]], _TYPES["float32"]
        )
        plain, biased = _EPILOGUES[call["activation"]]
        values: dict[int, Any] = {
            _TRANS_A: ctypes.c_int32(call["b"]["transposed"]),
            _TRANS_B: ctypes.c_int32(call["a"]["transposed"]),
            _EPILOGUE: ctypes.c_uint32(plain if self._biased is None else biased),
        }
        if self._biased is not None:
            values[_BIAS_TYPE] = ctypes.c_int32(_TYPES[call["output"]])
            values[_BIAS_POINTER] = self._bias
        for attribute, value in values.items():
            self._set("cublasLtMatmulDescSetAttribute", made, attribute, value)
        return made

    def _set(self, name: str, of: ctypes.c_void_p, attribute: int, value: Any) -> None:
        size = ctypes.c_size_t(ctypes.sizeof(value))
        self._library.check(name, of, ctypes.c_int(attribute), ctypes.byref(value), size)

    def _layout(
        self, side: Mapping[str, Any], rows: int, columns: int, dtype: str
    ) -> ctypes.c_void_p:
        """Describe a matrix of `rows` x `columns` by columns, or the transpose if stored so."""
        if side["transposed"]:
            rows, columns = columns, rows
        made = ctypes.c_void_p()
        self._library.check(
            "cublasLtMatrixLayoutCreate",
            ctypes.byref(made),
            _TYPES[dtype],
            ctypes.c_uint64(rows),
            ctypes.c_uint64(columns),
            ctypes.c_int64(side["pitch"]),
        )
        if self._call["batches"] > 1:
            count, stride = ctypes.c_int32(self._call["batches"]), ctypes.c_int64(side["stride"])
            self._set("cublasLtMatrixLayoutSetAttribute", made, _BATCH_COUNT, count)
            self._set("cublasLtMatrixLayoutSetAttribute", made, _BATCH_STRIDE, stride)
        return made

    def _proposed(self, strict: bool) -> Any:
        """Return the algorithm at the call's index in the library's list."""
        found = (_Proposal * PROPOSALS)()
        count, preference = ctypes.c_int(), ctypes.c_void_p()
        self._library.check("cublasLtMatmulPreferenceCreate", ctypes.byref(preference))
        setter = "cublasLtMatmulPreferenceSetAttribute"
        limit = ctypes.c_uint64(self._call["workspace_bytes"])
        self._set(setter, preference, _WORKSPACE, limit)
        for attribute in _ALIGNMENTS:
            self._set(setter, preference, attribute, ctypes.c_uint32(ALIGNED_BYTES))
        arguments = (self._library.handle, self._operation, *self._sides, preference)
        try:
            self._library.check(
                "cublasLtMatmulAlgoGetHeuristic",
                *arguments,
                ctypes.c_int(PROPOSALS),
                found,
                ctypes.byref(count),
            )
        finally:
            self._library.check("cublasLtMatmulPreferenceDestroy", preference)
        usable = [p for p in found[: count.value] if p.state == 0]
        place = self._call["algorithm"]
        if not usable or (strict and place >= len(usable)):
            raise LibraryError(
                f"cuBLASLt proposes {len(usable)} algorithms for {self._words}, not {place + 1}"
            )
        return usable[place if place < len(usable) else 0].algorithm

    @property
    def _words(self) -> str:
        call = self._call
        return f"{call['m']}x{call['n']}x{call['k']} {call['dtype']} {call['activation']}"

    def _operands(self) -> list[tuple[int, int]]:
        """Return for weight, input, residual and output the pointer's index and the byte offset."""
        places, call = self._places, self._call
        item, out = _BYTES[call["dtype"]], _BYTES[call["output"]]
        second = places["weight"] if "weight" in places else places["second"]
        residual = places.get("residual", places["output"])
        return [
            (second, call["b"]["offset"] * item),
            (places["input"], call["a"]["offset"] * item),
            (residual, call["z"]["offset"] * out),
            (places["output"], call["y"]["offset"] * out),
        ]

    def launch(self, pointers: Sequence[int], stream: int = 0) -> None:
        """Queue it; `pointers` are those of the call's arguments, in their order."""
        if self._biased is not None:
            self._bias.value = pointers[self._biased]
            self._set("cublasLtMatmulDescSetAttribute", self._operation, _BIAS_POINTER, self._bias)
        b, a, z, y = (pointers[place] + offset for place, offset in self._at)
        left, right, before, after = self._sides
        status = self._library.multiply(
            self._library.handle, self._operation, ctypes.byref(self._alpha),
            b, left, a, right,
            ctypes.byref(self._beta), z, before, y, after,
            ctypes.byref(self._algorithm),
            pointers[self._places["workspace"]], self._call["workspace_bytes"], stream,
        )  # fmt: skip
        if status:
            raise LibraryError(f"{refused('cublasLtMatmul', status)}: {self._words}")

    def close(self) -> None:
        """Free the descriptors."""
        for side in self._sides:
            self._library.check("cublasLtMatrixLayoutDestroy", side)
        self._library.check("cublasLtMatmulDescDestroy", self._operation)
        self._sides = []
