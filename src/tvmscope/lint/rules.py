"""The checks of a script: each rule yields faults with a line and the replacement."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from tvmscope.lint.old_calls import old_call
from tvmscope.lint.script import Call, Region, Script
from tvmscope.messages import Message, Text, msg, msgn

FEWEST_RUNS = 10
"""The fewest runs of a timing; fewer say little about a run that takes milliseconds."""
_MODELS = ("tvm.relax.VirtualMachine", "GraphModule", "graph_executor.create",
           "graph_runtime.create")  # fmt: skip
_OTHERS = ("onnxruntime.InferenceSession", "openvino.", "torch.jit", "torchvision.models")
_COPIES = ("numpy", "asnumpy", "set_input", "copyto", "copyfrom", "cpu", "to")
_ARRAYS = ("tvm.nd.array", "tvm.runtime.tensor", "torch.from_numpy")


@dataclass(frozen=True, kw_only=True)
class Fault:
    """Code that costs speed, or that TVM no longer has."""

    line: int
    rule: str
    said: Text
    today: Text
    """The replacement."""


@dataclass(frozen=True, kw_only=True)
class Rule:
    id: str
    title: Message
    check: Callable[[Script], Iterator[Fault]]


def gone(script: Script) -> Iterator[Fault]:
    """Report modules and functions that TVM 0.27 no longer has, each once."""
    told: set[str] = set()
    given = [(f"{c.path}({k.arg}=)", c.line) for c in script.calls for k in c.node.keywords]
    names = [*script.imports, *script.uses, *((c.path, c.line) for c in script.calls), *given]
    for path, line in sorted(names, key=lambda item: (item[1], -len(item[0]))):
        found = old_call(path)
        if found is None or found.name in told:
            continue
        told.add(found.name)
        yield Fault(
            line=line,
            rule="gone",
            said=msg("{name} is gone: {was}", name=found.name, was=found.was),
            today=found.today,
        )


def _targets(script: Script) -> Iterator[tuple[object, int]]:
    """Yield every constant that is given as a target."""
    for call in script.calls:
        name = call.path.rpartition(".")[2]
        if call.path.endswith(("target.Target", "target.create")):
            if call.node.args:
                yield script.value(call.node.args[0]), call.line
        elif name in ("build", "compile", "create_executor", "lower", "tune_tir", "tune_relax"):
            place = 2 if call.path == "tvm.build" and len(call.node.args) > 2 else 1
            yield script.value(call.argument("target", place)), call.line


def generic_target(script: Script) -> Iterator[Fault]:
    """Report a CPU target without the CPU's name: it means a processor of twenty years ago."""
    for value, line in _targets(script):
        text = value.get("kind") if isinstance(value, dict) else value
        named = isinstance(value, dict) and value.get("mcpu")
        if isinstance(text, str) and text.split()[:1] == ["llvm"] and not named:
            if "mcpu" in text:
                continue
            yield Fault(
                line=line,
                rule="generic-target",
                said=msg("'llvm' alone means a generic CPU: no AVX2, no AVX-512, no FMA"),
                today=msg(
                    "{code}; tvmscope doctor names this CPU",
                    code="tvm.target.Target("
                    "{'kind': 'llvm', 'mcpu': 'native name', 'num-cores': n})",
                ),
            )


def old_target(script: Script) -> Iterator[Fault]:
    """Report targets with options inside a string, which TVM 0.27 rejects."""
    for value, line in _targets(script):
        if isinstance(value, str) and re.search(r"\s-{1,2}\w", value):
            yield Fault(
                line=line,
                rule="old-target",
                said=msg("the target '{text}' is refused today: options go into a dictionary",
                         text=value),
                today="tvm.target.Target({'kind': 'llvm', 'mcpu': ...}) or "
                "{'kind': 'cuda', 'arch': 'sm_90'}",
            )  # fmt: skip


def generic_gpu(script: Script) -> Iterator[Fault]:
    """Report a CUDA target without its architecture."""
    for value, line in _targets(script):
        kind = value.get("kind") if isinstance(value, dict) else value
        named = isinstance(value, dict) and value.get("arch")
        if kind == "cuda" and not named:
            yield Fault(
                line=line,
                rule="generic-gpu",
                said=msg("'cuda' alone means sm_50 where no GPU is found: no tensor cores"),
                today="tvm.target.Target({'kind': 'cuda', 'arch': 'sm_90'})",
            )


def _on_gpu(script: Script) -> bool:
    """Whether it runs on a GPU: by the devices that it makes, or else by its targets."""
    made = [c.path.rpartition(".")[2] for c in script.calls if c.path.startswith("tvm.")]
    named = [
        script.value(c.argument("", 0))
        for c in script.calls
        if c.path in ("tvm.device", "tvm.context", "tvm.runtime.device")
    ]
    devices = [*(n for n in made if n in ("cpu", "cuda", "gpu")), *named]
    kinds = [_kind(v) for v, _ in _targets(script)]
    return any(_is_gpu(v) for v in (devices if any(devices) else kinds))


def _kind(target: object) -> object:
    return target.get("kind") if isinstance(target, dict) else target


def _is_gpu(device: object) -> bool:
    return isinstance(device, str) and device.startswith(("cuda", "gpu"))


_HALF = ("float16", "bfloat16", "half", "ToMixedPrecision", "fp16", "bf16", "tf32")


def single_precision(script: Script) -> Iterator[Fault]:
    """Report float32 on a GPU: the tensor cores are idle."""
    compiled = _compiling(script)
    if compiled is None or script.text_has(*_HALF):
        return
    target = _kind(script.value(compiled.argument("target", 1)))
    if _is_gpu(target) or (target is None and _on_gpu(script)):
        yield Fault(
            line=compiled.line,
            rule="single-precision",
            said=msg("float32 on a GPU leaves its tensor cores unused"),
            today=msg(
                "{first} or {rest}",
                first="mod = relax.transform.ToMixedPrecision(out_dtype='float16')(mod),",
                rest="tvmscope compile --precision float16",
            ),
        )


def _compiling(script: Script) -> Call | None:
    """Return the call that compiles a whole model."""
    paths = ("tvm.compile", "tvm.relax.build", "tvm.relay.build", "tvm.relay.build_module.build")
    found = [c for c in script.calls if c.path in paths]
    return found[0] if found and script.text_has("relax", "relay") else None


_TUNED = ("ApplyDatabase", "apply_history_best", "ApplyHistoryBest", "apply_graph_best", "dlight",
          "static_shape_tuning", "ApplyDefaultSchedule", "database", "get_pipeline")  # fmt: skip
_OLD_TUNERS = ("tvm.autotvm", "tvm.auto_scheduler")
"""They only write a log; a build uses it where it is told to."""


def untuned(script: Script) -> Iterator[Fault]:
    """Report a model that is compiled without tuning records or schedules."""
    compiled = _compiling(script)
    if compiled is not None and not script.text_has(*_TUNED) and not _searches(script):
        yield Fault(
            line=compiled.line,
            rule="untuned",
            said=msg(
                "no records are applied, and TVM 0.27 itself schedules nothing on a CPU: loops run "
                "as written, on one core"
            ),
            today=msg(
                "tvmscope compile model.onnx, or relax.transform.MetaScheduleApplyDatabase(dir) "
                "in the pipeline"
            ),
        )


def _searches(script: Script) -> bool:
    """Whether it tunes with something that hands its result on."""
    if any(path.startswith(_OLD_TUNERS) for path, _ in script.imports):
        return False
    return any("tune" in call.path.rpartition(".")[2] for call in script.calls)


def no_fusion(script: Script) -> Iterator[Fault]:
    """Report a list of passes that legalises and never fuses, or no optimisation at all."""
    for call in script.calls:
        if call.path.endswith("transform.Sequential") or call.path.endswith("ir.Sequential"):
            inside = ast_names(call)
            if "LegalizeOps" in inside and "FuseOps" not in inside and "FuseTIR" not in inside:
                yield Fault(
                    line=call.line,
                    rule="no-fusion",
                    said=msg("the passes legalise operators and never fuse them: every value goes "
                             "to memory"),
                    today=msg("relax.transform.AnnotateTIROpPattern(), FuseOps(), FuseTIR() after "
                              "LegalizeOps(), or relax.get_pipeline('zero')"),
                )  # fmt: skip
        if call.path.endswith("PassContext"):
            level = script.value(call.argument("opt_level", 0))
            if isinstance(level, int) and level < 2:
                yield Fault(
                    line=call.line,
                    rule="no-fusion",
                    said=msg("opt_level={level} leaves fusion and folding out", level=level),
                    today="tvm.transform.PassContext(opt_level=3)",
                )


def ast_names(call: Call) -> set[str]:
    """Return the names of the functions that are called inside a call."""
    return {
        n.func.attr if isinstance(n.func, ast.Attribute) else getattr(n.func, "id", "")
        for n in ast.walk(call.node)
        if isinstance(n, ast.Call)
    }


# ---- timing ------------------------------------------------------------------------------------


def few_runs(script: Script) -> Iterator[Fault]:
    """Report a timing of so few runs that it is mostly noise."""
    for call in script.calls:
        if not call.path.endswith("time_evaluator"):
            continue
        number = script.value(call.argument("number", 2))
        repeat = script.value(call.argument("repeat", 3))
        longer = call.argument("min_repeat_ms") is not None
        runs = (number if isinstance(number, int) else 10) * (
            repeat if isinstance(repeat, int) else 1
        )
        known = all(x is None or isinstance(x, int) for x in (number, repeat))
        if known and not longer and (runs < FEWEST_RUNS or not isinstance(repeat, int)):
            yield _too_few(call.line, runs)
    for region in script.regions:
        if region.repeats is not None and region.repeats < FEWEST_RUNS and _runs_model(region):
            yield _too_few(region.line, region.repeats)


def _too_few(line: int, runs: int) -> Fault:
    return Fault(
        line=line,
        rule="few-runs",
        said=msgn(
            "{count} run in one round: the noise of a machine decides",
            "{count} runs in one round: the noise of a machine decides",
            count=runs,
        ),
        today="time_evaluator(name, dev, number=5, repeat=20, min_repeat_ms=100); tvmscope bench",
    )


def _runs_model(region: Region) -> list[Call]:
    """Return the timed calls that run compiled code."""
    return [
        c
        for c in region.calls
        if c.path.endswith(("[]", ".run", ".invoke_stateful")) or c.path.endswith("()")
    ]


def no_warm_up(script: Script) -> Iterator[Fault]:
    """Report a clock that is started before the first run."""
    for region in script.regions:
        for call in _runs_model(region)[:1]:
            earlier = [c for c in script.calls if c.line < region.line]
            if not any(c.path == call.path or c.path.endswith("time_evaluator") for c in earlier):
                yield Fault(
                    line=region.line,
                    rule="no-warm-up",
                    said=msg("the first timed run is the first run at all: it loads, allocates and "
                             "wakes threads"),
                    today=msg("run it a few times before the clock starts; time_evaluator does so "
                              "once"),
                )  # fmt: skip


def no_sync(script: Script) -> Iterator[Fault]:
    """Report a clock that is read while a GPU still works."""
    if not _on_gpu(script):
        return
    for region in script.regions:
        names = {c.path.rpartition(".")[2] for c in region.calls}
        if _runs_model(region) and not names & {"sync", "synchronize", "numpy", "asnumpy"}:
            yield Fault(
                line=region.line,
                rule="no-sync",
                said=msg("the clock is read before the GPU is done: this times the launch"),
                today=msg("dev.sync() before both readings of the clock"),
            )


def copies_timed(script: Script) -> Iterator[Fault]:
    """Report copies between host and device inside the timed region."""
    for region in script.regions:
        if not _runs_model(region):
            continue
        for call in region.calls:
            method = call.path.rpartition(".")[2]
            if call.path in _ARRAYS or (method in _COPIES and "." in call.path):
                yield Fault(
                    line=call.line,
                    rule="copies-timed",
                    said=msg("{name} copies data inside the timed region", name=method),
                    today=msg("copy before the clock starts and after it has stopped"),
                )
                break


def one_process(script: Script) -> Iterator[Fault]:
    """Report several models or runtimes that share threads, caches and memory of one process."""
    models = [c for c in script.calls if c.path.endswith(_MODELS)]
    others = [c for c in script.calls if c.path.startswith(_OTHERS) or c.path.endswith(".eval")]
    shared = models[1:2] or (others[:1] if models and len(script.regions) > 1 else [])
    for call in shared:
        yield Fault(
            line=call.line,
            rule="one-process",
            said=msg("several models share one process: their thread pools and caches disturb each "
                     "other"),
            today=msg("a process for each, timed in turns: tvmscope bench model.onnx"),
        )  # fmt: skip


RULES = (
    Rule(id="gone", title=msg("No longer in TVM"), check=gone),
    Rule(id="old-target", title=msg("A target string that is refused"), check=old_target),
    Rule(id="generic-target", title=msg("A CPU target without a CPU"), check=generic_target),
    Rule(id="generic-gpu", title=msg("A GPU target without its architecture"), check=generic_gpu),
    Rule(id="single-precision", title=msg("Tensor cores unused"), check=single_precision),
    Rule(id="untuned", title=msg("No schedules and no records"), check=untuned),
    Rule(id="no-fusion", title=msg("Passes without fusion"), check=no_fusion),
    Rule(id="few-runs", title=msg("Too few runs"), check=few_runs),
    Rule(id="no-warm-up", title=msg("No warm-up"), check=no_warm_up),
    Rule(id="no-sync", title=msg("No synchronisation"), check=no_sync),
    Rule(id="copies-timed", title=msg("Copies inside the timed region"), check=copies_timed),
    Rule(id="one-process", title=msg("Several models in one process"), check=one_process),
)


def lint(script: Script) -> list[Fault]:
    """Return every fault, by line."""
    found = [fault for rule in RULES for fault in rule.check(script)]
    return sorted(dict.fromkeys(found), key=lambda fault: (fault.line, fault.rule))
