"""Lists what TVM 0.27 no longer has, by the name that scripts use, with its replacement.

The rule `gone` and the table in the documentation both come from this list.
"""

from __future__ import annotations

from dataclasses import dataclass

from tvmscope.messages import Message, Text, msg


@dataclass(frozen=True, kw_only=True)
class OldCall:
    """A module or function that was removed, and its successor."""

    name: str
    """The name resolved from the script's imports; everything inside it was removed, too.

    `.name` is a method or attribute of a value of type `on`, whatever the script calls the value;
    `name(keyword=)` is a keyword argument that was removed.
    """
    was: Message
    today: Text
    """The replacement."""
    on: str = ""
    """The type that had the method or attribute."""
    names: tuple[str, ...] = ()
    """The names of TVM that `today` uses; a test looks up each of them in the installed TVM."""


_FRONTENDS = "from tvm.relax.frontend.onnx import from_onnx; mod = from_onnx(model)"
_TORCH = (
    "from tvm.relax.frontend.torch import from_exported_program; "
    "mod = from_exported_program(torch.export.export(net, args))"
)
_COMPILE = "ex = tvm.compile(mod, target=tvm.target.Target({'kind': 'llvm', 'mcpu': ...}))"
_RUN = "f = relax.VirtualMachine(ex, tvm.cpu())['main']; out = f(x)"
_TUNE = "tvmscope tune model.onnx --budget 10m"

OLD_CALLS = (
    OldCall(
        name="tvm.relay.frontend.from_pytorch",
        was=msg("Relay's PyTorch importer, of traced TorchScript"),
        today=_TORCH,
        names=("tvm.relax.frontend.torch.from_exported_program",),
    ),
    OldCall(
        name="tvm.relay.frontend",
        was=msg("Relay's importers"),
        today=_FRONTENDS,
        names=("tvm.relax.frontend.onnx.from_onnx",),
    ),
    OldCall(
        name="tvm.relay.build",
        was=msg("compiling a Relay module"),
        today=_COMPILE,
        names=("tvm.compile", "tvm.target.Target"),
    ),
    OldCall(
        name="tvm.relay.create_executor",
        was=msg("Relay's executors"),
        today=_RUN,
        names=("tvm.relax.VirtualMachine", "tvm.cpu"),
    ),
    OldCall(
        name="tvm.relay.quantize",
        was=msg("Relay's quantization"),
        today=msg("quantize before the import (PyTorch, ONNX), or --precision float16"),
    ),
    OldCall(
        name="tvm.relay",
        was=msg("Relay, the graph language before Relax"),
        today="from tvm import relax",
        names=("tvm.relax",),
    ),
    OldCall(
        name="nnvm",
        was=msg("NNVM, the graph language before Relay"),
        today="from tvm import relax",
        names=("tvm.relax",),
    ),
    OldCall(
        name="tvm.autotvm",
        was=msg("AutoTVM, tuning of written templates"),
        today=_TUNE,
    ),
    OldCall(
        name="tvm.auto_scheduler",
        was=msg("Ansor, the auto-scheduler before MetaSchedule"),
        today=_TUNE,
    ),
    OldCall(
        name="tvm.meta_schedule",
        was=msg("MetaSchedule's old module"),
        today="from tvm.s_tir import meta_schedule",
        names=("tvm.s_tir.meta_schedule",),
    ),
    OldCall(
        name="tvm.dlight",
        was=msg("DLight's old module"),
        today="from tvm.s_tir import dlight",
        names=("tvm.s_tir.dlight",),
    ),
    OldCall(
        name="tvm.contrib.graph_executor",
        was=msg("the graph executor"),
        today=_RUN,
        names=("tvm.relax.VirtualMachine", "tvm.cpu"),
    ),
    OldCall(
        name="tvm.contrib.graph_runtime",
        was=msg("the graph executor under its first name"),
        today=_RUN,
        names=("tvm.relax.VirtualMachine", "tvm.cpu"),
    ),
    OldCall(
        name="tvm.contrib.debugger",
        was=msg("the graph executor's profiler"),
        today=msg("tvmscope profile model.onnx, or vm.set_instrument(f)"),
        names=("tvm.relax.VirtualMachine.set_instrument",),
    ),
    OldCall(
        name="tvm.driver.tvmc",
        was=msg("tvmc, TVM's command line"),
        today="tvmscope compile model.onnx -o folder; tvmscope run folder",
    ),
    OldCall(
        name="tvm.te.create_schedule",
        was=msg("TE schedules"),
        today="sch = tvm.s_tir.Schedule(te.create_prim_func([a, b, c]))",
        names=("tvm.s_tir.Schedule", "tvm.te.create_prim_func"),
    ),
    OldCall(
        name="tvm.create_schedule",
        was=msg("TE schedules, under their first name"),
        today="sch = tvm.s_tir.Schedule(te.create_prim_func([a, b, c]))",
        names=("tvm.s_tir.Schedule", "tvm.te.create_prim_func"),
    ),
    *(
        OldCall(
            name=f"tvm.{name}",
            was=msg("tensor expressions, before they had a module"),
            today=f"from tvm import te; te.{name}(...)",
            names=(f"tvm.te.{name}",),
        )
        for name in ("placeholder", "compute", "var", "reduce_axis")
    ),
    OldCall(
        name="tvm.build_config",
        was=msg("options of the compiler"),
        today="with tvm.transform.PassContext(opt_level=3, config={...}):",
        names=("tvm.transform.PassContext",),
    ),
    OldCall(
        name="tvm.tir.Schedule",
        was=msg("TIR schedules' old module"),
        today="sch = tvm.s_tir.Schedule(func)",
        names=("tvm.s_tir.Schedule",),
    ),
    OldCall(
        name="tvm.tir",
        was=msg("TIR's old module"),
        today=msg("from tvm import tirx (functions, expressions), s_tir (schedules)"),
        names=("tvm.tirx", "tvm.s_tir"),
    ),
    OldCall(
        name="tvm.script.tir",
        was=msg("TVMScript's TIR under its old name"),
        today="from tvm.script import tirx as T",
        names=("tvm.script.tirx",),
    ),
    OldCall(
        name="tvm.lower",
        was=msg("lowering by hand"),
        today=msg("sch.mod.show() shows the loops; tvm.compile lowers"),
        names=("tvm.compile",),
    ),
    OldCall(
        name="tvm.nd",
        was=msg("arrays under their old name"),
        today="tvm.runtime.tensor(array, device), tvm.runtime.empty(shape, dtype, device)",
        names=("tvm.runtime.tensor", "tvm.runtime.empty"),
    ),
    OldCall(
        name=".asnumpy",
        on="tvm.runtime.Tensor",
        was=msg("an array's values, under their old name"),
        today="array.numpy()",
        names=("tvm.runtime.Tensor.numpy",),
    ),
    OldCall(
        name=".imported_modules",
        on="tvm.runtime.Module",
        was=msg("the modules inside a compiled one"),
        today="module.imports[0].inspect_source()",
        names=("tvm.runtime.Module.imports", "tvm.runtime.Module.inspect_source"),
    ),
    OldCall(
        name="tvm.relax.VirtualMachine(profile=)",
        was=msg("the virtual machine's profiler"),
        today=msg("tvmscope profile model.onnx, or vm.set_instrument(f)"),
        names=("tvm.relax.VirtualMachine.set_instrument",),
    ),
    OldCall(
        name="tvm.context",
        was=msg("devices under their first name"),
        today="tvm.device('cuda', 0)",
        names=("tvm.device",),
    ),
    OldCall(
        name="tvm.gpu",
        was=msg("CUDA devices under their first name"),
        today="tvm.cuda(0)",
        names=("tvm.cuda",),
    ),
    OldCall(
        name="tvm.target.create",
        was=msg("targets from strings"),
        today="tvm.target.Target({'kind': 'llvm', 'mcpu': ...})",
        names=("tvm.target.Target",),
    ),
    OldCall(
        name="tvm.register_func",
        was=msg("registering a global function"),
        today="tvm.register_global_func(name, f)",
        names=("tvm.register_global_func",),
    ),
    OldCall(
        name="tvm.micro",
        was=msg("microTVM"),
        today=msg("TVM 0.18 was the last version with it"),
    ),
    OldCall(
        name="vta",
        was=msg("VTA, the FPGA accelerator's stack"),
        today=msg("TVM 0.18 was the last version with it"),
    ),
    OldCall(
        name="topi",
        was=msg("TOPI as a package of its own"),
        today="from tvm import topi",
        names=("tvm.topi",),
    ),
)
"""Longer names first: the first matching name is reported."""


def old_call(path: str) -> OldCall | None:
    """Return the most specific entry for a resolved name."""
    fitting = [c for c in OLD_CALLS if _fits(path, c.name)]
    return max(fitting, key=lambda c: (bool(c.on), len(c.name)), default=None)


def _fits(path: str, name: str) -> bool:
    if name.startswith("."):
        return path.endswith(name)
    return path == name or path.startswith(f"{name}.")


def table() -> str:
    """Return all entries as a Markdown table, for the documentation."""
    lines = ["| then | what it was | today |", "|---|---|---|"]
    for call in OLD_CALLS:
        today = call.today.replace("|", "\\|")
        lines.append(f"| `{call.name}` | {call.was} | `{today}` |")
    return "\n".join(lines) + "\n"
