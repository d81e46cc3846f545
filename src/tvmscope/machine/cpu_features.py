"""CPU instruction-set features: LLVM's names, the kernel's names, and this CPU's features."""

from __future__ import annotations

import os
import platform
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from tvmscope.errors import UsageError
from tvmscope.messages import msg

X86_FLAGS = {
    "sse3": "pni", "ssse3": "ssse3", "sse4.1": "sse4_1", "sse4.2": "sse4_2", "sse4a": "sse4a",
    "popcnt": "popcnt", "cx16": "cx16", "avx": "avx", "avx2": "avx2", "fma": "fma", "f16c": "f16c",
    "bmi": "bmi1", "bmi2": "bmi2", "lzcnt": "abm", "movbe": "movbe", "aes": "aes", "adx": "adx",
    "pclmul": "pclmulqdq", "sha": "sha_ni", "rdrnd": "rdrand", "rdseed": "rdseed", "xop": "xop",
    "fma4": "fma4", "tbm": "tbm", "gfni": "gfni", "vaes": "vaes", "vpclmulqdq": "vpclmulqdq",
    "avx512f": "avx512f", "avx512dq": "avx512dq", "avx512bw": "avx512bw", "avx512cd": "avx512cd",
    "avx512vl": "avx512vl", "avx512ifma": "avx512ifma", "avx512vbmi": "avx512vbmi",
    "avx512vbmi2": "avx512_vbmi2", "avx512vnni": "avx512_vnni", "avx512bf16": "avx512_bf16",
    "avx512fp16": "avx512_fp16", "avx512bitalg": "avx512_bitalg",
    "avx512vpopcntdq": "avx512_vpopcntdq", "avx512vp2intersect": "avx512_vp2intersect",
    "avxvnni": "avx_vnni", "amx-tile": "amx_tile", "amx-int8": "amx_int8", "amx-bf16": "amx_bf16",
}  # fmt: skip
ARM_FLAGS = {
    "neon": "asimd", "fp-armv8": "fp", "crc": "crc32", "lse": "atomics", "rdm": "asimdrdm",
    "fullfp16": "asimdhp", "dotprod": "asimddp", "fp16fml": "asimdfhm", "sve": "sve",
    "sve2": "sve2", "i8mm": "i8mm", "bf16": "bf16",
}  # fmt: skip
ISA_FEATURES = frozenset(X86_FLAGS) | frozenset(ARM_FLAGS)
"""Features that change which instructions LLVM emits, without its tuning hints."""
ISA_VARIABLE = "TVMSCOPE_ISA"
"""The one variable that caps the host; a variable, so that worker processes inherit it."""


@dataclass(frozen=True)
class Cap:
    """An instruction set to which the host is limited."""

    name: str
    arch: str
    """The LLVM CPU that represents a host with more features."""
    above: tuple[str, ...]
    """Prefixes of the names of the features above it."""

    def hides(self, feature: str) -> bool:
        """Whether a feature is above the cap."""
        return feature.startswith(self.above)


CAPS = {"avx2": Cap("avx2", "x86-64-v3", ("avx512", "amx-"))}


def cap() -> Cap | None:
    """Return the limit that TVMSCOPE_ISA sets for this machine; None if it is not set."""
    name = os.environ.get(ISA_VARIABLE, "")
    if not name:
        return None
    if name not in CAPS:
        known = ", ".join(CAPS)
        raise UsageError(
            msg(
                "{variable}={name}: unknown instruction set; known: {known}",
                variable=ISA_VARIABLE,
                name=name,
                known=known,
            )
        )
    if platform.machine().lower() not in ("x86_64", "amd64"):
        raise UsageError(
            msg(
                "{variable}={name} is for x86; this machine is {machine}",
                variable=ISA_VARIABLE,
                name=name,
                machine=platform.machine(),
            )
        )
    return CAPS[name]


def reported() -> frozenset[str]:
    """Return LLVM names of this CPU's features, as the operating system reports them, capped."""
    limit = cap()
    return frozenset(f for f in _of_this_cpu() if limit is None or not limit.hides(f))


@cache
def _of_this_cpu() -> frozenset[str]:
    table = ARM_FLAGS if platform.machine() in ("aarch64", "arm64") else X86_FLAGS
    flags = _kernel_flags()
    return frozenset(name for name, flag in table.items() if flag in flags)


def _kernel_flags() -> frozenset[str]:
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        for line in cpuinfo.read_text().splitlines():
            key, _, value = line.partition(":")
            if key.strip() in ("flags", "Features"):
                return frozenset(value.split())
    import cpuinfo as py_cpuinfo  # other systems; it runs a helper process, so only there

    return frozenset(py_cpuinfo.get_cpu_info().get("flags", ()))


@cache
def model_name() -> str:
    """Return the CPU's marketing name."""
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        for line in cpuinfo.read_text().splitlines():
            key, _, value = line.partition(":")
            if key.strip() == "model name":
                return value.strip()
    return platform.processor() or platform.machine()


def usable_cores() -> int:
    """Return the cores this process may use: affinity, cgroup quota, one per physical core."""
    import psutil

    affinity = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else []
    logical = len(affinity) or psutil.cpu_count() or 1
    physical = len({_sibling_group(cpu) for cpu in affinity}) if affinity else logical
    quota = _cgroup_quota()
    return max(1, min(physical, quota) if quota else physical)


def _sibling_group(cpu: int) -> str:
    path = Path(f"/sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list")
    return path.read_text().strip() if path.exists() else str(cpu)


def _cgroup_quota() -> int | None:
    """Return the whole cores that the cgroup's CPU quota allows (v2, then v1), at least one."""
    v2 = Path("/sys/fs/cgroup/cpu.max")
    if v2.exists():
        quota, _, period = v2.read_text().strip().partition(" ")
        return None if quota == "max" else max(1, int(quota) // int(period or 100_000))
    v1 = Path("/sys/fs/cgroup/cpu")
    if (v1 / "cpu.cfs_quota_us").exists():
        limit = int((v1 / "cpu.cfs_quota_us").read_text())
        period_us = int((v1 / "cpu.cfs_period_us").read_text())
        return max(1, limit // period_us) if limit > 0 else None
    return None
