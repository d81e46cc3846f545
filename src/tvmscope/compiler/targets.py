"""Parses every form of a target's name to a `Target`: presets, JSON, TVM's old strings, the host.

The host's target is what LLVM calls this CPU, minus the features that the operating system does
not report (a hypervisor may hide AVX-512 from a CPU that LLVM knows has it), proven by running a
kernel in a child process. TVMSCOPE_ISA caps it (see `cpu_features.cap`).
"""

from __future__ import annotations

import difflib
import hashlib
import json
import re
import shlex
from dataclasses import replace
from pathlib import Path
from typing import Any

from tvmscope.compiler import host
from tvmscope.core.target import Target
from tvmscope.errors import RunError, SchemaError, TvmscopeError, UsageError, one_line
from tvmscope.machine import cpu_features, cuda_device
from tvmscope.measure.remote import here
from tvmscope.measure.worker import run_isolated, run_within
from tvmscope.messages import Text, clauses, did_you_mean, msg
from tvmscope.storage.codec import decode, encode
from tvmscope.storage.files import write_text_atomic

_LLVM_HOST, _LLVM_FEATURES = here(host.llvm_host), here(host.llvm_features)
_PROBE = here(host.run_probe_kernel)
_PROBE_S = 120.0
ARM64_TRIPLE = "aarch64-linux-gnu"
_X86_LEVELS = ("x86-64-v4", "x86-64-v3", "x86-64-v2", "x86-64")
_OLD_KEYS = {"mcpu", "mattr", "mtriple", "arch", "num-cores", "keys", "libs", "device", "model"}
_CUDA_LIMITS = (
    "max_threads_per_block",
    "max_shared_memory_per_block",
    "thread_warp_size",
    "registers_per_block",
    "l2_cache_size_bytes",
    "max_num_threads",
)
"""The attributes that TVM's CUDA targets take beside the architecture."""
_LABELS = ("kind", "tag", "keys", "libs", "device", "model")
"""Attributes that TVM writes into every target; no code here depends on them."""
_KNOWN = {
    "cuda": (*_LABELS, "arch", *_CUDA_LIMITS),
    "llvm": (*_LABELS, "mcpu", "mattr", "mtriple", "num-cores"),
}

CROSS_ARCH = "sm_90"
"""The architecture that `cuda` means if there is no GPU; `cuda:sm_NN` names another."""


def resolve(text: str, *, cores: int | None = None, cache: Path | None = None) -> Target:
    """Return the target that `text` names; the first lines of this module list the forms."""
    text = text.strip()
    if text == "auto":
        text = "cuda" if cuda_device.find() else "cpu"
    if text.startswith("{"):
        target = _from_json(text)
    elif re.match(r"(llvm|cuda|cpu)\s+-", text):
        target = _from_old_string(text)
    elif text in ("cpu", "llvm"):
        return host_target(cores=cores, cache=cache)
    elif text == "cuda":
        target = cuda_target()
    elif match := re.fullmatch(r"cuda:(sm_\d+a?)", text):
        target = Target(kind="cuda", arch=match[1], attrs=_cuda_limits(match[1]))
    elif match := re.fullmatch(r"(cpu|llvm|arm64):([\w.-]+)", text):
        target = cpu_target(match[2], ARM64_TRIPLE if match[1] == "arm64" else None)
    elif re.fullmatch(r"(cuda|gpu):\d+", text):
        raise UsageError(
            msg(
                "'{text}' names one of several GPUs, not what to compile for: use --device {text}",
                text=text,
            )
        )
    else:
        raise UsageError(
            msg(
                "unknown target '{text}'; use auto, cpu, cuda, cpu:skylake-avx512, "
                "arm64:cortex-a72, cuda:sm_90, a target JSON, or an old string such as "
                "'llvm -mcpu=skylake'",
                text=text,
            )
        )
    return replace(target, cores=cores) if cores else target


def to_tvm(target: Target) -> dict[str, Any]:
    """Return the JSON that TVM 0.27 takes."""
    if target.kind == "cuda":
        # A host target is named by the builder, so that both sides are explicit there.
        limits = {key: value for key, value in target.attrs.items() if key in _CUDA_LIMITS}
        return {"kind": "cuda", "arch": target.arch, **limits}
    config: dict[str, Any] = {"kind": "llvm", "mcpu": target.arch, "num-cores": target.cores}
    if target.triple:
        config["mtriple"] = target.triple
    attrs = [f"+{name}" for name in target.enabled_features]
    attrs += [f"-{name}" for name in target.disabled_features]
    if attrs:
        config["mattr"] = attrs
    return config


def cpu_target(arch: str, triple: str | None = None, *, disabled: tuple[str, ...] = ()) -> Target:
    """Return a CPU by its LLVM name, with the features that LLVM gives it."""
    features = run_isolated(_LLVM_FEATURES, arch, triple)
    if features is None:
        where = msg(" for {triple}", triple=triple) if triple else ""
        raise UsageError(
            msg(
                "LLVM does not know a CPU named '{arch}'{where}{suggest}",
                arch=arch,
                where=where,
                suggest=_suggest(arch),
            )
        )
    return Target(
        kind="llvm",
        arch=arch,
        triple=triple,
        features=tuple(f for f in features if f not in disabled),
        disabled_features=tuple(f for f in disabled if f in features),
        cores=cpu_features.usable_cores(),
    )


def host_target(*, cores: int | None = None, cache: Path | None = None) -> Target:
    """Return this machine's CPU, proven by a probe kernel; the proof is kept in `cache`."""
    cap = cpu_features.cap()
    known = [sorted(cpu_features.reported()), cpu_features.model_name(), cap and cap.name]
    key = json.dumps(known)
    file = cache and cache / f"host-{hashlib.sha256(key.encode()).hexdigest()[:16]}.json"
    target = _read_cached(file) if file else None
    if target is None:
        target = _detect_host()
        if file:
            write_text_atomic(file, json.dumps(encode(target)))
    return replace(target, cores=cores or cpu_features.usable_cores())


def _read_cached(file: Path) -> Target | None:
    try:
        return decode(Target, json.loads(file.read_text()))
    except (OSError, json.JSONDecodeError, SchemaError):
        return None  # no proof yet, or one of an older version: detect again


def _detect_host() -> Target:
    name, _ = run_isolated(_LLVM_HOST)
    reported, tried = cpu_features.reported(), []
    for arch in (name, *_X86_LEVELS):
        features = run_isolated(_LLVM_FEATURES, arch, None)
        missing = tuple(f for f in features or () if f not in reported)
        if features is None or (missing and arch in _X86_LEVELS):
            continue
        target = Target(
            kind="llvm",
            arch=arch,
            features=tuple(f for f in features if f in reported),
            disabled_features=missing,
        )
        try:
            error = run_within(_PROBE_S, _PROBE, to_tvm(target))
        except TvmscopeError as e:
            tried.append(msg("{arch}: {reason}", arch=arch, reason=one_line(e)))
            continue
        if error < 1e-4:
            return target
        tried.append(msg("{arch}: wrong result (error {error:.1e})", arch=arch, error=error))
    raise RunError(
        msg(
            "no CPU target runs here ({tried}); name one, e.g. --target cpu:x86-64-v2",
            tried=clauses(tried),
        )
    )


def cuda_target() -> Target:
    """Return this machine's GPU: the chosen one, or the first; without any, an architecture to
    cross-compile for."""
    device = cuda_device.find()
    if device is None:
        return Target(kind="cuda", arch=CROSS_ARCH, attrs=_cuda_limits(CROSS_ARCH))
    return Target(kind="cuda", arch=device.arch, attrs=device.attrs)


def _cuda_limits(arch: str) -> dict[str, int]:
    """Return limits that hold for every GPU of compute capability 5.0 and later."""
    return {
        "max_threads_per_block": 1024,
        "max_shared_memory_per_block": 49152,
        "thread_warp_size": 32,
        "registers_per_block": 65536,
    }


def _from_json(text: str) -> Target:
    try:
        config = json.loads(text)
    except json.JSONDecodeError as e:
        raise UsageError(msg("the target is not valid JSON: {reason}", reason=str(e))) from e
    return _from_config(config, text)


def _from_old_string(text: str) -> Target:
    """Parse TVM 0.1x syntax: `llvm -mcpu=skylake -mattr=+avx2,-avx512f`, `cuda -arch=sm_89`."""
    kind, *words = shlex.split(text)
    config: dict[str, Any] = {"kind": "llvm" if kind == "cpu" else kind}
    while words:
        match = re.fullmatch(r"--?([\w-]+)(?:=(.*))?", words.pop(0))
        if match is None or match[1] not in _OLD_KEYS:
            known = ", ".join(f"-{key}" for key in sorted(_OLD_KEYS))
            raise UsageError(
                msg(
                    "cannot read the target string '{text}'; known options: {known}",
                    text=text,
                    known=known,
                )
            )
        value = match[2] if match[2] is not None else (words.pop(0) if words else "")
        config[match[1]] = value.split(",") if match[1] == "mattr" else value
    return _from_config(config, text)


def _from_config(config: dict[str, Any], text: str) -> Target:
    kind = config.get("kind")
    if kind not in _KNOWN:
        raise UsageError(
            msg(
                "target kind '{kind}' in '{text}' is not supported; use llvm or cuda",
                kind=str(kind),
                text=text,
            )
        )
    _refuse_unknown(config, kind)
    if kind == "cuda":
        arch = str(config.get("arch") or cuda_target().arch)
        return Target(kind="cuda", arch=arch, attrs=_cuda_limits(arch) | _limits_in(config))
    cores = int(config["num-cores"]) if "num-cores" in config else None
    attrs = [str(a) for a in config.get("mattr", ())]
    disabled = tuple(a[1:] for a in attrs if a.startswith("-"))
    base = cpu_target(str(config.get("mcpu") or "x86-64"), config.get("mtriple"), disabled=disabled)
    added = tuple(a.lstrip("+") for a in attrs if not a.startswith("-"))
    target = replace(
        base,
        features=tuple(sorted({*base.features, *added})),
        enabled_features=tuple(f for f in added if f not in base.features),
    )
    return replace(target, cores=cores) if cores else target


def _refuse_unknown(config: dict[str, Any], kind: str) -> None:
    """Raise if a target has a key that no code would use: it must not be ignored silently."""
    known = [key for key in _KNOWN[kind] if key not in _LABELS]
    for key in config:
        if key not in _KNOWN[kind]:
            close = difflib.get_close_matches(key, known, n=1)
            raise UsageError(
                msg(
                    "a {kind} target has no '{key}'{hint} (it takes: {known})",
                    kind=str(kind),
                    key=key,
                    hint=did_you_mean(close),
                    known=known,
                )
            )


def _limits_in(config: dict[str, Any]) -> dict[str, int]:
    limits = {key: config[key] for key in _CUDA_LIMITS if key in config}
    for key, value in limits.items():
        if type(value) is not int or value < 1:
            raise UsageError(
                msg(
                    "'{key}' in a target is a whole number over 0, not {value}",
                    key=key,
                    value=repr(value),
                )
            )
    return limits


def _suggest(arch: str) -> Text:
    common = ["skylake-avx512", "icelake-server", "sapphirerapids", "znver3", "znver4", "haswell",
              "x86-64-v2", "x86-64-v3", "x86-64-v4", "cortex-a72", "cortex-a76", "neoverse-n1",
              "apple-m1"]  # fmt: skip
    close = difflib.get_close_matches(arch, common, n=1, cutoff=0.4)
    return did_you_mean(close)
