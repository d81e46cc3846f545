"""Puts the machine code of TVM's CUDA kernels into a library that is built without a GPU.

TVM compiles CUDA source while it builds if it finds a driver; otherwise the library holds the
source, and the machine that loads it needs a compiler. A compiler needs no driver, so here the
source is replaced where TVM packs the modules that a library imports:

    number of bytes, tree of modules, then of each module its kind and its bytes
    bytes of a CUDA module: format, functions with their launch parameters, code
"""

from __future__ import annotations

import re
import struct
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import tvm

from tvmscope.errors import BuildError, one_line
from tvmscope.messages import msg
from tvmscope.runtime import cuda_code

_LIBRARY, _CUDA = b"_lib", b"cuda"
_SOURCE, _BINARY = b"cuda", b"cubin"
_UNKNOWN_GPU = re.compile(r"gpu.architecture", re.IGNORECASE)
"""In what nvcc and NVRTC say of an architecture that they do not know."""
Compile = Callable[[str], bytes]


Packer = Callable[[Any, bool, str, str], str]
_ASSEMBLY = """\
    .section .rodata
    .globl {symbol}
    .type {symbol}, STT_OBJECT
    .p2align 4
{symbol}:
    .incbin "{file}"
    .size {symbol}, {size}
    .section .note.GNU-stack
"""


def packer(target: tvm.target.Target) -> Packer | None:
    """Return what `export_library` calls to write a library's imports into a file for the linker;
    None where TVM's own packing is right."""
    if target.kind.name != "cuda" or cuda_code.compiler() is None:
        return None
    return partial(_pack, partial(_compiled, target))


def _pack(compile_source: Compile, module: Any, _: bool, prefix: str, folder: str) -> str:
    """Write the imports, which may hold a model's weights, and what puts them into a library."""
    blob = tvm.get_global_func("runtime.ModulePackImportsToTensor")(module).numpy().tobytes()
    symbol = prefix + tvm.get_global_func("runtime.ModuleImportsBlobName")()
    file, assembly = Path(folder) / f"{symbol}.bin", Path(folder) / f"{symbol}.s"
    size = file.write_bytes(with_machine_code(blob, compile_source))
    assembly.write_text(_ASSEMBLY.format(symbol=symbol, file=file, size=size), encoding="utf-8")
    return str(assembly)


def _compiled(target: tvm.target.Target, source: str) -> bytes:
    """Return a source's machine code, as TVM compiles it beside a GPU."""
    with target:
        return bytes(tvm.get_global_func("tvm_callback_cuda_compile")(source))


def with_machine_code(blob: bytes, compile_source: Compile) -> bytes:
    """Return packed modules with the source of CUDA modules compiled; those of an architecture
    that the compiler does not know keep it."""
    reader = _Reader(blob)
    reader.number()
    tree = b"".join(reader.numbers() for _ in range(2))
    modules = [_string(kind) + content for kind, content in _modules(reader, compile_source)]
    body = tree + b"".join(modules)
    return struct.pack("<Q", len(body)) + body


def _modules(reader: _Reader, compile_source: Compile) -> Iterator[tuple[bytes, bytes]]:
    while not reader.is_done:
        kind = reader.string()
        if kind == _LIBRARY:
            yield kind, b""
        else:
            content = reader.string()
            yield kind, _string(_binary(content, compile_source) if kind == _CUDA else content)


def _binary(content: bytes, compile_source: Compile) -> bytes:
    """Return a CUDA module's bytes with machine code."""
    reader = _Reader(content)
    if reader.string() != _SOURCE:
        return content
    start = reader.at
    for _ in range(reader.number()):
        reader.function()
    functions = content[start : reader.at]
    try:
        code = compile_source(reader.string().decode())
    except Exception as e:  # nvcc's words come as a RuntimeError, NVRTC's as others
        if _UNKNOWN_GPU.search(str(e)):
            return content
        raise BuildError(
            msg("the CUDA source cannot be compiled: {reason}", reason=one_line(e))
        ) from e
    return _string(_BINARY) + functions + _string(code)


def _string(content: bytes) -> bytes:
    return struct.pack("<Q", len(content)) + content


class _Reader:
    """Reads TVM's serialised values one after the other."""

    def __init__(self, content: bytes) -> None:
        self.content, self.at = content, 0

    @property
    def is_done(self) -> bool:
        return self.at >= len(self.content)

    def number(self) -> int:
        (value,) = struct.unpack_from("<Q", self.content, self.at)
        self.at += 8
        return int(value)

    def numbers(self) -> bytes:
        """Return a list of numbers as it is."""
        start = self.at
        self.skip(8)
        return self.content[start : self.at]

    def skip(self, size: int) -> None:
        """Skip a list of values of so many bytes."""
        count = self.number()
        self.at += size * count

    def string(self) -> bytes:
        size = self.number()
        self.at += size
        return self.content[self.at - size : self.at]

    def function(self) -> None:
        """Skip a function: its two names, its arguments' types, its launch parameters' names, and
        of some arguments a kind."""
        self.string()
        self.string()
        self.skip(4)
        for _ in range(self.number()):
            self.string()
        self.skip(4)
