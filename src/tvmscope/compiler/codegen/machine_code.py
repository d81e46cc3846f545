"""Puts the machine code of TVM's CUDA kernels into a library that is built without a GPU.

TVM compiles CUDA source while it builds if it finds a driver; otherwise the library holds the
source, and the machine that loads it needs a compiler. A compiler needs no driver, so here the
source is replaced where TVM packs the modules that a library imports:

    number of bytes, tree of modules, then of each module its kind and its bytes
    bytes of a CUDA module: format, functions with their launch parameters, code
"""

from __future__ import annotations

import platform
import re
import struct
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import tvm

from tvmscope.errors import BuildError
from tvmscope.messages import Text, msg
from tvmscope.runtime import cuda_code

_LIBRARY, _CUDA = b"_lib", b"cuda"
_SOURCE, _BINARY = b"cuda", b"cubin"
_OF_THE_SOURCE = re.compile(r"(?:tvm_kernels|default_program)[^\n(]*\(\d+\): error")
"""How nvcc and NVRTC begin what they say of the source; all else says that they cannot compile here
or not for this GPU."""
_LARGE_BYTES = 1 << 30
"""Data of this size is kept away from code, which reaches 2 GiB."""
_ASSEMBLY = """\
    .section {section}
    .globl {symbol}
    .type {symbol}, STT_OBJECT
    .p2align 4
{symbol}:
    .incbin "{file}"
    .size {symbol}, {size}
    .section .note.GNU-stack
"""

Bytes = bytes | memoryview
Compile = Callable[[str], bytes]
Packer = Callable[[Any, bool, str, str], str]


def packer(target: tvm.target.Target, remarks: list[Text]) -> Packer | None:
    """Return what `export_library` calls to write a library's imports into a file for the linker;
    None where TVM's own packing is right. `remarks` gets why source is left."""
    if target.kind.name != "cuda" or cuda_code.compiler() is None:
        return None
    return partial(_pack, target, remarks)


def _pack(
    target: tvm.target.Target, remarks: list[Text], module: Any, _: bool, prefix: str, folder: str
) -> str:
    """Write the imports, which may hold a model's weights, and what puts them into a library."""
    blob = tvm.get_global_func("runtime.ModulePackImportsToTensor")(module).numpy()
    symbol = prefix + tvm.get_global_func("runtime.ModuleImportsBlobName")()
    file, assembly = Path(folder) / f"{symbol}.bin", Path(folder) / f"{symbol}.s"
    with file.open("wb") as stream:
        for piece in with_machine_code(
            memoryview(blob).cast("B"), partial(_compiled, target), remarks
        ):
            stream.write(piece)
    size = file.stat().st_size
    section = _section(size, str(target.host.attrs.get("mtriple", "")) if target.host else "")
    text = _ASSEMBLY.format(section=section, symbol=symbol, file=file, size=size)
    assembly.write_text(text, encoding="utf-8")
    return str(assembly)


def _section(size: int, triple: str) -> str:
    is_x86 = triple.startswith("x86_64") or (not triple and platform.machine() == "x86_64")
    return '.lrodata,"al",@progbits' if is_x86 and size >= _LARGE_BYTES else ".rodata"


def _compiled(target: tvm.target.Target, source: str) -> bytes:
    """Return a source's machine code, as TVM compiles it beside a GPU."""
    with target:
        return bytes(tvm.get_global_func("tvm_callback_cuda_compile")(source))


def with_machine_code(blob: Bytes, compile_source: Compile, remarks: list[Text]) -> list[Bytes]:
    """Return packed modules, in pieces, with the source of CUDA modules compiled; it stays where
    the compiler does not work or does not know the GPU."""
    reader = _Reader(blob)
    reader.number()
    pieces: list[Bytes] = [reader.numbers(), reader.numbers()]  # the tree
    for kind, content in _modules(reader, compile_source, remarks):
        pieces += [*_string(kind), *content]
    return [struct.pack("<Q", sum(map(len, pieces))), *pieces]


def _modules(
    reader: _Reader, compile_source: Compile, remarks: list[Text]
) -> Iterator[tuple[Bytes, tuple[Bytes, ...]]]:
    while not reader.is_done:
        kind = reader.string()
        if kind == _LIBRARY:
            yield kind, ()
        else:
            content = reader.string()
            made = _binary(content, compile_source, remarks) if kind == _CUDA else None
            yield kind, _string(content if made is None else made)


def _binary(content: Bytes, compile_source: Compile, remarks: list[Text]) -> bytes | None:
    """Return a CUDA module's bytes with machine code; None if it stays as it is."""
    reader = _Reader(content)
    if reader.string() != _SOURCE:
        return None
    start = reader.at
    for _ in range(reader.number()):
        reader.function()
    functions = content[start : reader.at]
    try:
        code = compile_source(bytes(reader.string()).decode())
    except Exception as e:  # nvcc's words come as a RuntimeError, NVRTC's as others
        said = str(e)
        if found := _OF_THE_SOURCE.search(said):
            reason = said[found.start() :].splitlines()[0]
            raise BuildError(
                msg("the CUDA source cannot be compiled: {reason}", reason=reason)
            ) from e
        remarks.append(
            msg(
                "TVM's kernels are compiled where the artifact is loaded: the CUDA compiler here "
                "failed: {reason}",
                reason=_last_line(said),
            )
        )
        return None
    return b"".join((*_string(_BINARY), functions, *_string(code)))


def _last_line(said: str) -> str:
    """Return a compiler's words, which follow the source."""
    return next((line.strip() for line in reversed(said.splitlines()) if line.strip()), "")


def _string(content: Bytes) -> tuple[Bytes, ...]:
    return struct.pack("<Q", len(content)), content


class _Reader:
    """Reads TVM's serialised values one after the other."""

    def __init__(self, content: Bytes) -> None:
        self.content, self.at = content, 0

    @property
    def is_done(self) -> bool:
        return self.at >= len(self.content)

    def number(self) -> int:
        (value,) = struct.unpack_from("<Q", self.content, self.at)
        self.at += 8
        return int(value)

    def numbers(self) -> Bytes:
        """Return a list of numbers as it is."""
        start = self.at
        self.skip(8)
        return self.content[start : self.at]

    def skip(self, size: int) -> None:
        """Skip a list of values of so many bytes."""
        count = self.number()
        self.at += size * count

    def string(self) -> Bytes:
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
