"""Examines the installation and the machine: what works, what does not, and how to fix it."""

from __future__ import annotations

import os
import platform
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any, Literal

import psutil

from tvmscope import extras, plugins
from tvmscope.compiler import targets, tvm_facts
from tvmscope.compiler.units import choose
from tvmscope.core.profile import Roof
from tvmscope.core.target import Target
from tvmscope.errors import TvmscopeError, one_line
from tvmscope.machine import cpu_features, cuda_device
from tvmscope.measure.remote import here
from tvmscope.measure.worker import run_isolated, run_within
from tvmscope.messages import Text, clauses, msg, sentences
from tvmscope.profiling import roofs
from tvmscope.quantities import format_bytes
from tvmscope.runtime import tvm_compat
from tvmscope.stages.places import RESULTS, TUNING_LOGS, cache_folder
from tvmscope.workflow.examining.inventory import inventory
from tvmscope.workflow.fixing import calibration

_PINS = {"apache-tvm": tvm_compat.TVM_PIN, "apache-tvm-ffi": tvm_compat.FFI_PIN}
_ALTERNATIVES = {"xgboost-cpu": "xgboost", "onnxruntime": "onnxruntime-gpu"}
"""Distributions that provide the same module."""
_TVM_FACTS = here(tvm_facts.tvm_facts)
_ROOFS = here(roofs.measure)
_PROBE_S = 120.0
_NOTABLE = ("avx", "avx2", "fma", "f16c", "avx512f", "avx512vnni", "avx512bf16", "amx-bf16",
            "neon", "dotprod", "fullfp16", "sve")  # fmt: skip

Status = Literal["ok", "warn", "fail", "info"]


@dataclass(frozen=True)
class Check:
    """One line: the check, its state, and what to do about it."""

    name: Text
    status: Status
    detail: Text
    fix: Text = ""


def examine() -> list[Check]:
    """Run every check; one that breaks becomes a separate line."""
    cpu_features.cap()  # an unknown TVMSCOPE_ISA is a usage error, like an unknown flag
    checks: list[Check] = []
    for part in (_python, _packages, _tvm, _cpu, _gpu, _extras, _plugins, _places, _load):
        checks += _guarded(part)
    return checks


def _guarded(part: Callable[[], Iterator[Check]]) -> list[Check]:
    try:
        return list(part())
    except Exception as e:  # a check that breaks is itself a finding; the others continue
        name = part.__name__.strip("_")
        return [Check(name, "warn", f"{type(e).__name__}: {one_line(e)}")]


def _python() -> Iterator[Check]:
    fine = sys.version_info >= (3, 11)
    fix = "" if fine else msg("install Python 3.11 or newer")
    detail = f"{platform.python_version()} ({sys.executable}), {platform.platform()}"
    yield Check("python", "ok" if fine else "fail", detail, fix)


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def _packages() -> Iterator[Check]:
    needed = {name: _version(name) for name in extras.BASE}
    if _has_tvm():
        yield from _pins()
        needed |= {name: _version(name) for name in extras.EXTRAS["tvm"] if name not in _PINS}
        for name, other in _ALTERNATIVES.items():
            needed[name] = needed[name] or _version(other)
    else:
        text = msg(
            "not installed: reports, comparisons of sessions and tuning records work without it"
        )
        yield Check("apache-tvm", "info", text, extras.install("tvm"))
    for name in (n for n, v in needed.items() if v is None):
        yield Check(name, "fail", msg("not installed"), f"pip install {name}")
    present = [f"{name} {v}" for name, v in needed.items() if v is not None]
    yield Check(msg("libraries"), "ok", ", ".join(present))


def _has_tvm() -> bool:
    """Whether there is a TVM to examine: a source build, or any version of the wheel."""
    return tvm_compat.prefer_source_build() is not None or _version("apache-tvm") is not None


def _pins() -> Iterator[Check]:
    source, pins = tvm_compat.prefer_source_build(), _PINS
    install = "pip install " + " ".join(f"'{name}=={pin}'" for name, pin in pins.items())
    for name, pin in pins.items():
        found = _version(name)
        if source is not None:
            yield Check(name, "info", msg("from source: {place}", place=source))
        elif found == pin:
            yield Check(name, "ok", found)
        elif found is None:
            yield Check(name, "fail", msg("not installed"), install)
        else:
            text = msg(
                "{found}, but tvmscope needs {pin} (other versions crash or do not load)",
                found=found, pin=pin,
            )  # fmt: skip
            yield Check(name, "fail", text, install)
    if library := os.environ.get("TVM_LIBRARY_PATH"):
        yield Check("TVM_LIBRARY_PATH", "info", library)


def _tvm() -> Iterator[Check]:
    if not _has_tvm():
        return
    try:
        facts = run_within(_PROBE_S, _TVM_FACTS)
    except TvmscopeError as e:
        fix = msg("install the pinned versions above; `tvmscope doctor -v` shows this again")
        yield Check("tvm", "fail", msg("does not work: {why}", why=one_line(e)), fix)
        return
    where = facts["source_build"] or Path(facts["file"]).parent
    yield Check("tvm", "ok", f"{facts['version']}, LLVM {facts['llvm']} ({where})")
    yield from _tvm_cuda(facts, gpu=cuda_device.find() is not None)
    yield from _threads(facts["threads"])
    yield from _host(facts["llvm_cpu"])


def _tvm_cuda(facts: Mapping[str, Any], *, gpu: bool) -> Iterator[Check]:
    """Report what this TVM can do with a GPU; without one only compiling for it matters."""
    code = msg("generates CUDA code") if facts["cuda_code"] else msg("was built without CUDA code")
    if facts["cuda_device"]:
        yield Check("tvm cuda", "ok", msg("{code}; its runtime sees the GPU", code=code))
        return
    runtime = (
        msg("its CUDA runtime sees no device")
        if facts["cuda_runtime"]
        else msg("its CUDA runtime is missing or does not load here")
    )
    fix = msg("install a TVM with CUDA, and the CUDA libraries that it needs") if gpu else ""
    yield Check("tvm cuda", "warn" if gpu else "info", clauses((code, runtime)), fix)


def _threads(by_itself: int) -> Iterator[Check]:
    usable = cpu_features.usable_cores()
    text = msg("TVM by itself would use {n} of {usable} cores", n=by_itself, usable=usable)
    if by_itself == usable:
        yield Check(msg("threads"), "ok", text)
    else:
        fix = msg("tvmscope sets this itself; elsewhere: export TVM_NUM_THREADS={n}", n=usable)
        yield Check(msg("threads"), "info", text, fix)


def _host(llvm_name: str) -> Iterator[Check]:
    try:
        target = targets.host_target()
    except TvmscopeError as e:
        yield Check(msg("host target"), "warn", one_line(e), "--target cpu:x86-64-v2")
        return
    detail = [
        msg(
            "{label}, {bits}-bit vectors, proven by a kernel",
            label=target.label, bits=target.vector_bits,
        )
    ]  # fmt: skip
    if target.disabled_features:
        detail.append(
            msg(
                "{name} would have {features}, which this machine does not report",
                name=llvm_name, features=" ".join(target.disabled_features),
            )
        )  # fmt: skip
    yield Check(msg("host target"), "ok", clauses(detail))


def _cpu() -> Iterator[Check]:
    usable, logical = cpu_features.usable_cores(), psutil.cpu_count() or 1
    known = [f for f in _NOTABLE if f in cpu_features.reported()]
    detail = msg(
        "{cpu}, {usable} usable cores of {logical} logical (affinity, cgroup, hyper-threads), "
        "{features}",
        cpu=cpu_features.model_name(), usable=usable, logical=logical, features=" ".join(known),
    )  # fmt: skip
    yield Check(msg("cpu"), "ok", detail)
    if cap := cpu_features.cap():
        text = msg(
            "the host counts as a CPU with {isa} only; other runtimes are not limited", isa=cap.name
        )
        fix = msg("unset {variable} to use the whole CPU", variable=cpu_features.ISA_VARIABLE)
        yield Check(cpu_features.ISA_VARIABLE, "info", text, fix)
    memory = psutil.virtual_memory()
    free, total = format_bytes(memory.available), format_bytes(memory.total)
    detail = msg("{free} free of {total}", free=free, total=total)
    status: Status = "ok" if memory.available > 2 * 2**30 else "warn"
    yield Check(msg("memory"), status, detail)


def _gpu() -> Iterator[Check]:
    devices = cuda_device.find_all()
    if not devices:
        yield Check(msg("gpu"), "info", msg("no CUDA device: only cpu targets run here"))
    for number, device in enumerate(devices):
        memory = format_bytes(device.memory_bytes)
        detail = f"{device.name}, {device.arch}, {memory}, {device.driver}"
        name = msg("gpu") if len(devices) == 1 else f"cuda:{number}"
        yield Check(name, "ok", detail)
    for arch in dict.fromkeys(device.arch for device in devices):
        yield _kernels(arch)
    yield from _cuda_compiler(needed=bool(devices))


def _kernels(arch: str) -> Check:
    """Report whether kernels are generated for a GPU, and whether they were measured on one."""
    name = msg("generated kernels")
    if reason := choose.unavailable(Target(kind="cuda", arch=arch)):
        return Check(name, "warn", reason)
    if remark := choose.unmeasured(arch):
        return Check(name, "info", remark)
    return Check(name, "ok", msg("measured winners for {arch} come with the package", arch=arch))


def _cuda_compiler(*, needed: bool) -> Iterator[Check]:
    """Report the CUDA compiler: TVM uses nvcc, or NVRTC through cuda-bindings."""
    if nvcc := shutil.which("nvcc"):
        run = subprocess.run(
            [nvcc, "--version"], capture_output=True, text=True, timeout=20, check=True
        )
        release = re.search(r"release ([\d.]+)", run.stdout)
        yield Check("nvcc", "ok", f"{release[1] if release else '?'} ({nvcc})")
    elif version := _version("cuda-bindings"):
        yield Check("cuda-bindings", "ok", version)
    else:
        fix = "pip install cuda-bindings" if needed else ""
        yield Check("nvcc", "warn" if needed else "info", msg("no CUDA compiler found"), fix)


def _extras() -> Iterator[Check]:
    for extra, packages in extras.EXTRAS.items():
        for package in packages if extra != "tvm" else ():
            version = _version(package)
            fix = "" if version else extras.install(extra)
            status: Status = "ok" if version else "info"
            yield Check(package, status, version or msg("not installed"), fix)


def _plugins() -> Iterator[Check]:
    """Report the plug-ins of each kind, the failures, and the providers."""
    brought: dict[str, list[str]] = {}
    for kind in inventory():
        for failure in kind.failures:
            yield Check(failure.module, "warn", failure.reason)
        yield Check(kind.label, "ok", ", ".join(kind.built_in))
        for plugin in kind.plugins:
            brought.setdefault(plugin.origin, []).append(f"{plugin.kind} {plugin.name}")
    for origin, names in brought.items():
        yield Check(msg("plug-in {origin}", origin=origin), "ok", ", ".join(names))
    if not plugins.allowed():
        yield Check(msg("plug-ins"), "info", msg("other packages are left out (--no-plugins)"))


def _places() -> Iterator[Check]:
    for name in (RESULTS, TUNING_LOGS):
        folder = Path.cwd() / name
        state = "" if folder.is_dir() else msg("(does not exist yet)")
        yield Check(str(name), "info", sentences(str(folder), state))
    folder = cache_folder()
    yield Check(msg("cache"), "info", f"{folder}, {format_bytes(_size(folder))}")
    yield Check(msg("calibration"), "info", str(calibration.file()))


def _size(folder: Path) -> int:
    return sum(f.lstat().st_size for f in folder.rglob("*") if f.is_file() or f.is_symlink())


def clear_cache() -> int:
    """Empty the cache folder; return the freed bytes."""
    folder = cache_folder()
    size = _size(folder)
    if folder.is_dir():
        shutil.rmtree(folder)
    return size


def _load() -> Iterator[Check]:
    load, usable = psutil.getloadavg()[0], cpu_features.usable_cores()
    busy = load > 0.5 * usable
    fix = msg("close other programs: they disturb measurements") if busy else ""
    text = msg("{load:.2f} on {usable} cores", load=load, usable=usable)
    yield Check(msg("system load"), "warn" if busy else "ok", text, fix)


def measure_roofs() -> tuple[Roof, ...]:
    """Return this machine's roofs, measured again and stored in the cache folder."""
    found = roofs.measure(targets.host_target(cache=cache_folder()), cache_folder(), fresh=True)
    if cuda_device.find() is None:
        return found
    # in a worker, which sees the chosen GPU alone
    gpu = run_isolated(_ROOFS, targets.resolve("cuda"), cache_folder(), fresh=True)
    return (*found, *gpu)
