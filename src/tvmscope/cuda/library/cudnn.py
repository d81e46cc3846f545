"""Convolutions with NVIDIA's cuDNN, through ctypes; needs only the library and a driver.

A compiled model whose kernels are calls of the library has a copy of this file, which load_model.py
beside it uses. A convolution and what follows it are a graph of operations, for which the library
proposes engines. The graph and the execution plan of one engine are made once, when a convolution
is made: a launch only queues it on a stream, so that a CUDA graph can record it.

The index of the engine in the library's list is stored, and the list is requested again when the
convolution is made: an engine's number is valid for one version of the library. Another version may
propose others: the result is equally correct, the time may differ. If the library cannot make the
plan that is stored, the first of the list that it can make is used.
"""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

MAJORS = (9,)
"""Supported major versions of the library, the preferred first."""
PROPOSALS = 16
"""How many engines are requested per list; always the same number, as the list may depend on it."""
_PACKAGES = ("nvidia/cudnn/lib", "nvidia/cu13/lib", "nvidia/cublas/lib")
_SYSTEM = (
    "/usr/local/cuda/lib64",
    "/usr/lib/x86_64-linux-gnu",
    "/usr/lib/aarch64-linux-gnu",
    "/usr/lib64",
)
_TYPES = {"float32": 0, "float16": 2, "bfloat16": 9}  # CUDNN_DATA_*
_POINTWISE, _CONVOLUTION, _ENGINE, _CONFIG, _HEURISTICS, _PLAN = range(6)
_CONVOLVE, _APPLY, _GRAPH, _POINTERS, _TENSOR = 10, 13, 15, 16, 17  # CUDNN_BACKEND_*_DESCRIPTOR
_KINDS = {
    _POINTWISE: "pointwise",
    _CONVOLUTION: "convolution",
    _ENGINE: "engine",
    _CONFIG: "engine configuration",
    _HEURISTICS: "heuristics",
    _PLAN: "execution plan",
    _CONVOLVE: "convolution operation",
    _APPLY: "pointwise operation",
    _GRAPH: "operation graph",
    _POINTERS: "variant pack",
    _TENSOR: "tensor",
}
_HANDLE, _DATA, _BOOL, _INT, _FLOAT, _POINTER, _CONV_MODE, _HEUR, _NOTE, _OP, _DESCRIPTOR = (
    0, 1, 2, 3, 4, 6, 7, 8, 11, 14, 15,
)  # fmt: skip
"""CUDNN_TYPE_*: the type of an attribute's values."""
_C: dict[int, Any] = {
    _HANDLE: ctypes.c_void_p,
    _BOOL: ctypes.c_bool,
    _INT: ctypes.c_int64,
    _FLOAT: ctypes.c_float,
    _POINTER: ctypes.c_void_p,
    _DESCRIPTOR: ctypes.c_void_p,
}
"""Others are C enumerations."""
_MODE_A, _MODE_FALLBACK = 3, 2  # CUDNN_HEUR_MODE_*
_NOT_MIRRORED = 1  # CUDNN_CROSS_CORRELATION
_ADD = 0  # CUDNN_POINTWISE_ADD
_LOWER, _UPPER, _SLOPE, _BETA = 3, 4, 5, 8  # CUDNN_ATTR_POINTWISE_RELU_*_CLIP*, _SWISH_BETA
_STEPS: dict[str, tuple[Any, ...]] = {
    "relu": (100,),
    "relu6": (100, (_UPPER, 6.0)),
    "clip": (100,),
    "leaky_relu": (100,),
    "sigmoid": (102,),
    "gelu": (104,),
    "silu": (106, (_BETA, 1.0)),
    "gelu_tanh": (107,),
}
"""CUDNN_POINTWISE_*_FWD, and the attributes of each."""
_PARAMETERS = {"clip": (_LOWER, _UPPER), "leaky_relu": (_SLOPE,)}
"""The attributes that have the call's parameters as values."""
_TENSOR_CORE, _NOTES = 0, 16
_REFUSED_NOTES = {1, 2, 3, 4, 5, 6, 7, 8}
"""CUDNN_NUMERICAL_NOTE_*: rounds inputs, rounds sums, FFT, other bits each time, Winograd."""
ALIGNED_BYTES = 16
"""The alignment of every pointer."""

Attribute = tuple[Any, ...]
"""An attribute of a descriptor: its number, the type of its values, and the values."""


class LibraryError(RuntimeError):
    """The library is missing or refuses a call; the message says which and what to do."""


def find() -> Path | None:
    """Find the library's file in installed packages or the system's folders; nothing is loaded."""
    return next((file for name in _names() for file in _files(name)), None)


def _names() -> list[str]:
    return [f"libcudnn.so.{major}" for major in MAJORS]


def _files(name: str) -> Iterator[Path]:
    places = [Path(root) / part for root in sys.path for part in _PACKAGES]
    places += [Path(p) for p in os.environ.get("LD_LIBRARY_PATH", "").split(":") if p]
    places += [Path(p) for p in _SYSTEM]
    return (file for place in places if (file := place / name).is_file())


def _open(*names: str) -> Any:
    """Load a library: the process's own, the system loader's, or a file in one of the places."""
    reasons = []
    for name in (*names, *(str(file) for known in names for file in _files(known))):
        try:
            return ctypes.CDLL(name)
        except OSError as e:
            reasons.append(str(e))
    raise LibraryError(reasons[0])


def load() -> Any:
    """Load the library and cuBLASLt, without which it would abort the process."""
    advice = (
        "pip install nvidia-cudnn-cu13 (nvidia-cudnn-cu12 for drivers of CUDA 12), or install"
        " cuDNN; or compile the model with --no-library"
    )
    try:
        library = _open(*_names())
    except LibraryError as e:
        names = " or ".join(_names())
        raise LibraryError(
            f"the model calls cuDNN, and there is no {names} here: {advice} ({e})"
        ) from None
    library.cudnnGetCudartVersion.restype = ctypes.c_size_t
    cublas = f"libcublasLt.so.{library.cudnnGetCudartVersion() // 1000}"
    try:
        _open(cublas)
    except LibraryError as e:
        raise LibraryError(f"cuDNN needs {cublas}, which is not here: {advice} ({e})") from None
    return library


class Library:
    """A handle for the GPU whose context is current."""

    def __init__(self, library: Any = None) -> None:
        self._library = load() if library is None else library
        pointer, number, count = ctypes.c_void_p, ctypes.c_int, ctypes.c_int64
        for name, types in {
            "SetAttribute": (pointer, number, number, count, pointer),
            "GetAttribute": (pointer, number, number, count, pointer, pointer),
            "Execute": (pointer, pointer, pointer),
            "Finalize": (pointer,),
            "DestroyDescriptor": (pointer,),
        }.items():
            getattr(self._library, f"cudnnBackend{name}").argtypes = types
        self._library.cudnnSetStream.argtypes = (pointer, pointer)
        self._library.cudnnGetErrorString.restype = ctypes.c_char_p
        self._library.cudnnGetVersion.restype = ctypes.c_size_t
        self.version = int(self._library.cudnnGetVersion())
        self.handle: int | None = self._created()
        self.device: dict[int, list[Attribute]] = {
            _GRAPH: [(800, _HANDLE, self.handle)],
            _PLAN: [(400, _HANDLE, self.handle)],
        }
        """What tells a descriptor of this kind for which GPU it is."""
        self._stream = 0

    def _created(self) -> int | None:
        handle = ctypes.c_void_p()
        self.check("cudnnCreate", ctypes.byref(handle))
        return handle.value

    def check(self, name: str, *arguments: Any, what: str = "") -> None:
        """Call a function and raise if it fails."""
        if status := getattr(self._library, name)(*arguments):
            raise LibraryError(self._refused(name, status, what))

    def _refused(self, name: str, status: int, what: str) -> str:
        said = ctypes.create_string_buffer(2048)
        if last := getattr(self._library, "cudnnGetLastErrorString", None):
            last(said, ctypes.c_size_t(len(said)))
        means = self._library.cudnnGetErrorString(status).decode()
        detail = said.value.decode(errors="replace").strip()
        whole = (
            f"cuDNN {self.version}: {name}{' of ' if what else ''}{what} says {status} ({means})"
        )
        return f"{whole}: {detail}" if detail else whole

    def empty(self, kind: int) -> int:
        """Return a new descriptor without attributes."""
        made, what = ctypes.c_void_p(), _KINDS[kind]
        self.check("cudnnBackendCreateDescriptor", kind, ctypes.byref(made), what=what)
        return int(made.value or 0)

    def describe(self, kind: int, *attributes: Attribute) -> int:
        """Return a finished descriptor with these attributes."""
        made, what = self.empty(kind), _KINDS[kind]
        try:
            for name, type_, *values in (*attributes, *self.device.get(kind, ())):
                given = (_C.get(type_, ctypes.c_int) * len(values))(*values)
                where = f"{what}, attribute {name} = {values}"
                arguments = (made, name, type_, len(values), given)
                self.check("cudnnBackendSetAttribute", *arguments, what=where)
            self.check("cudnnBackendFinalize", made, what=what)
        except LibraryError:
            self.destroy(made)
            raise
        return made

    def values(self, of: int, name: int, type_: int, values: Any) -> list[Any]:
        """Read an attribute into an array; return as many values as there are."""
        count = ctypes.c_int64()
        what = f"attribute {name}"
        arguments = (of, name, type_, len(values), ctypes.byref(count), values)
        self.check("cudnnBackendGetAttribute", *arguments, what=what)
        return list(values[: min(count.value, len(values))])

    def destroy(self, descriptor: int) -> None:
        """Free a descriptor."""
        self.check("cudnnBackendDestroyDescriptor", descriptor)

    def execute(self, plan: int, pointers: int, stream: int, what: str) -> None:
        """Queue a plan on a stream."""
        if stream != self._stream:
            self.check("cudnnSetStream", self.handle, stream)
            self._stream = stream
        self.check("cudnnBackendExecute", self.handle, plan, pointers, what=what)

    def convolution(self, call: Mapping[str, Any], *, strict: bool = False) -> Convolution:
        """Return the convolution that an entry of an artifact's table describes; with `strict`, it
        is an error if the library cannot make its algorithm."""
        return Convolution(self, call, strict)


class Convolution:
    """A convolution and the operations after it (`steps`), ready to be launched."""

    def __init__(self, library: Library, call: Mapping[str, Any], strict: bool = False) -> None:
        self._library, self._call = library, call
        self._places = {role: i for i, role in enumerate(call["arguments"])}
        self._made: list[int] = []
        self._ids: dict[str, int] = {}
        self._last: tuple[tuple[int, ...], int] = ((), 0)
        try:
            self._plan = self._planned(self._graph(), strict)
        except LibraryError as e:
            self.close()
            raise LibraryError(f"{self.words}: {e}") from e

    @property
    def words(self) -> str:
        """The convolution in a few words."""
        x, w = self._call["x"], self._call["w"]
        window = f"{'x'.join(map(str, x))} * {'x'.join(map(str, w))} {self._call['dtype']}"
        return " + ".join([f"convolution {window}", *self._call["steps"]])

    def _described(self, kind: int, *attributes: Attribute) -> int:
        self._made.append(self._library.describe(kind, *attributes))
        return self._made[-1]

    def _tensor(self, shape: Sequence[int], dtype: str, role: str = "") -> int:
        """Describe a tensor by its shape [n, c, h, w]; its channels are contiguous. One without a
        role is a value between two operations, which is not stored."""
        n, c, h, w = shape
        made = self._described(
            _TENSOR,
            (906, _INT, len(self._made) + 1),
            (901, _DATA, _TYPES[dtype]),
            (902, _INT, n, c, h, w),
            (903, _INT, h * w * c, 1, w * c, c),
            (900, _INT, ALIGNED_BYTES),
            *([] if role else [(907, _BOOL, True)]),
        )
        if role:
            self._ids[role] = len(self._made)
        return made

    def _graph(self) -> int:
        """Describe the convolution, and the operations that follow it in their order."""
        call = self._call
        shape, steps = call["y"], call["steps"]
        convolution = self._described(
            _CONVOLUTION,
            (100, _DATA, _TYPES["float32"]),
            (101, _CONV_MODE, _NOT_MIRRORED),
            (102, _INT, *call["dilation"]),
            (103, _INT, *call["stride"]),
            (104, _INT, *call["padding"][2:]),
            (105, _INT, *call["padding"][:2]),
            (106, _INT, 2),
        )
        x = self._tensor(call["x"], call["dtype"], "input")
        w = self._tensor(call["w"], call["dtype"], "weight")
        y = self._result(last=not steps)
        operations = [
            self._described(
                _CONVOLVE,
                (700, _FLOAT, 1.0),
                (701, _FLOAT, 0.0),
                (702, _DESCRIPTOR, convolution),
                (703, _DESCRIPTOR, w),
                (704, _DESCRIPTOR, x),
                (705, _DESCRIPTOR, y),
            )
        ]
        added = {"bias": ((1, shape[1], 1, 1), call["output"]), "residual": (shape, call["dtype"])}
        for number, step in enumerate(steps, 1):
            other = [(752, _DESCRIPTOR, self._tensor(*added[step], step))] if step in added else []
            before, y = y, self._result(last=number == len(steps))
            operations.append(
                self._described(
                    _APPLY,
                    (750, _DESCRIPTOR, self._pointwise(step)),
                    (751, _DESCRIPTOR, before),
                    *other,
                    (753, _DESCRIPTOR, y),
                )
            )
        return self._described(_GRAPH, (801, _DESCRIPTOR, *operations))

    def _result(self, *, last: bool) -> int:
        shape = self._call["y"]
        return self._tensor(shape, *((self._call["output"], "output") if last else ("float32",)))

    def _pointwise(self, step: str) -> int:
        """Describe one of the operations after the convolution; it computes in float32."""
        mode, *settings = _STEPS.get(step, (_ADD,))
        values = dict(settings)
        names = _PARAMETERS.get(step, ())
        values |= zip(names, self._call["parameters"], strict=True) if names else ()
        set_ = [(name, _FLOAT, value) for name, value in values.items()]
        return self._described(_POINTWISE, (0, _OP, mode), (1, _DATA, _TYPES["float32"]), *set_)

    def _planned(self, graph: int, strict: bool) -> int:
        """Return the plan of the engine at the call's index in the library's list."""
        proposed = self._proposed(graph)
        place = self._call["algorithm"]
        if not proposed or (strict and place >= len(proposed)):
            raise LibraryError(f"cuDNN proposes {len(proposed)} engines, not {place + 1}")
        first = [place] if place < len(proposed) else []
        others = [] if strict else [i for i in range(len(proposed)) if i != place]
        refusals = []
        for i in (*first, *others):
            try:
                return self._made_plan(proposed[i])
            except LibraryError as e:
                refusals.append(f"engine {i}: {e}")
        raise LibraryError("; ".join(refusals[:3]))

    def _made_plan(self, config: int) -> int:
        plan = self._described(_PLAN, (401, _DESCRIPTOR, config))
        (wanted,) = self._library.values(plan, 402, _INT, (ctypes.c_int64 * 1)())
        if wanted > self._call["workspace_bytes"]:
            raise LibraryError(
                f"its plan needs {wanted} bytes of workspace, not {self._call['workspace_bytes']}"
            )
        return plan

    def _proposed(self, graph: int) -> list[int]:
        """Return the engines that the library proposes and whose numbers are as they should be:
        the fast ones, then those that always work."""
        found, refusals = [], []
        for mode in (_MODE_A, _MODE_FALLBACK):
            try:
                asked = self._described(_HEURISTICS, (201, _DESCRIPTOR, graph), (200, _HEUR, mode))
            except LibraryError as e:
                refusals.append(str(e))
                continue
            room = self._empty(_CONFIG, PROPOSALS)
            found += self._library.values(asked, 202, _DESCRIPTOR, room)
        if not found and refusals:
            raise LibraryError("; ".join(refusals))
        return [config for config in found if self._is_exact(config)]

    def _empty(self, kind: int, count: int) -> Any:
        """Return empty descriptors, which the library fills."""
        made = [self._library.empty(kind) for _ in range(count)]
        self._made += made
        return (ctypes.c_void_p * count)(*made)

    def _is_exact(self, config: int) -> bool:
        """Whether an engine multiplies as the call says, and sums in float32 in a fixed order."""
        library = self._library
        (engine,) = library.values(config, 300, _DESCRIPTOR, self._empty(_ENGINE, 1))
        notes = set(library.values(engine, 1303, _NOTE, (ctypes.c_int * _NOTES)()))
        plain = self._call["dtype"] == "float32" and self._call["sums"] == "float32"
        return not notes & (_REFUSED_NOTES | ({_TENSOR_CORE} if plain else set()))

    def launch(self, pointers: Sequence[int], stream: int = 0) -> None:
        """Queue it; `pointers` are those of the call's arguments, in their order."""
        given = tuple(pointers)
        if given != self._last[0]:
            at = [given[self._places[role]] for role in self._ids]
            pack = self._library.describe(
                _POINTERS,
                (1000, _INT, *self._ids.values()),
                (1001, _POINTER, *at),
                (1003, _POINTER, given[self._places["workspace"]]),
            )
            before, self._last = self._last[1], (given, pack)
            if before:
                self._library.destroy(before)
        self._library.execute(self._plan, self._last[1], stream, self.words)

    def close(self) -> None:
        """Free the descriptors."""
        pack = self._last[1]
        for descriptor in (*([pack] if pack else []), *reversed(self._made)):
            self._library.destroy(descriptor)
        self._made, self._last = [], ((), 0)
