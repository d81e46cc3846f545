"""Stand-ins for NVIDIA's libraries, written in C: how elements are read and written, compiling."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

ELEMENTS = r"""
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static float get(const void *at, int type, int64_t i) {
    if (type == 0) return ((const float *)at)[i];
    if (type == 2) return (float)((const _Float16 *)at)[i];
    uint32_t bits = (uint32_t)((const uint16_t *)at)[i] << 16;
    float value;
    memcpy(&value, &bits, 4);
    return value;
}
static void put(void *at, int type, int64_t i, float value) {
    if (type == 0) { ((float *)at)[i] = value; return; }
    if (type == 2) { ((_Float16 *)at)[i] = (_Float16)value; return; }
    uint32_t bits;
    memcpy(&bits, &value, 4);
    ((uint16_t *)at)[i] = (uint16_t)((bits + 0x7fff + ((bits >> 16) & 1)) >> 16);
}
"""


def build(source: str, library: Path) -> Path:
    """Compile it; the test is skipped where there is no C compiler."""
    compiler = shutil.which("gcc") or shutil.which("cc")
    if compiler is None:
        pytest.skip("no C compiler")
    file = library.with_suffix(".c")
    file.write_text(ELEMENTS + source)
    command = [compiler, "-O1", "-shared", "-fPIC", str(file), "-o", str(library), "-lm"]
    subprocess.run(command, check=True, capture_output=True)
    return library
