"""Small scripts in the style of the years 2019 to 2026, each with the faults that are planted."""

from __future__ import annotations

PLANTED: dict[str, tuple[str, set[str]]] = {
    "2019-autotvm-not-applied": (
        """
import tvm
from tvm import autotvm, relay
tasks = autotvm.task.extract_from_program(mod["main"], target="llvm", params=params)
tuner = autotvm.tuner.XGBTuner(tasks[0])
tuner.tune(n_trial=1000, measure_option=option, callbacks=[autotvm.callback.log_to_file("log")])
graph, lib, params = relay.build_module.build(mod, target="llvm", params=params)
""",
        {"gone", "generic-target", "untuned"},
    ),
    "2019-methods": (
        "import tvm\n"
        "def f(out, lib):\n    print(lib.imported_modules[0])\n    return out.asnumpy()\n",
        {"gone"},
    ),
    "2025-profiling-vm": (
        "import tvm\nfrom tvm import relax\n"
        "vm = relax.VirtualMachine(ex, tvm.cpu(), profile=True)\n",
        {"gone"},
    ),
    "2019-relay-resnet": (
        """
import tvm
from tvm import relay
from tvm.contrib import graph_runtime
import onnx
model = onnx.load("resnet.onnx")
mod, params = relay.frontend.from_onnx(model, {"data": (1, 3, 224, 224)})
with relay.build_config(opt_level=3):
    graph, lib, params = relay.build(mod, target="llvm", params=params)
ctx = tvm.cpu(0)
m = graph_runtime.create(graph, lib, ctx)
""",
        {"gone", "generic-target", "untuned"},
    ),
    "2019-nnvm": ("import nnvm\nimport nnvm.compiler\n", {"gone"}),
    "2019-te-schedule": (
        """
import tvm
A = tvm.placeholder((1024,), name="A")
B = tvm.compute(A.shape, lambda i: A[i] + 1)
s = tvm.create_schedule(B.op)
f = tvm.build(s, [A, B], "llvm")
""",
        {"gone", "generic-target"},
    ),
    "2020-te": (
        """
import tvm
from tvm import te
a = te.placeholder((64,), name="a")
b = te.compute((64,), lambda i: a[i] * 2)
s = te.create_schedule(b.op)
print(tvm.lower(s, [a, b], simple_mode=True))
""",
        {"gone"},
    ),
    "2020-autotvm": (
        """
from tvm import autotvm
from tvm.autotvm.tuner import XGBTuner
tuner = XGBTuner(None)
""",
        {"gone"},
    ),
    "2020-target-string": (
        "import tvm\ntarget = tvm.target.Target('llvm -mcpu=skylake-avx512')\n",
        {"old-target"},
    ),
    "2020-target-create": (
        "import tvm\ntarget = tvm.target.create('cuda -model=1080ti')\n",
        {"gone", "old-target"},
    ),
    "2021-graph-executor": (
        """
import tvm
from tvm.contrib import graph_executor
module = graph_executor.GraphModule(lib["default"](tvm.cuda(0)))
""",
        {"gone"},
    ),
    "2021-ansor": (
        """
import tvm
from tvm import auto_scheduler
task = auto_scheduler.SearchTask(func=None, args=(), target=tvm.target.Target("cuda"))
""",
        {"gone", "generic-gpu"},
    ),
    "2021-tvmc": ("from tvm.driver import tvmc\nmodel = tvmc.load('m.onnx')\n", {"gone"}),
    "2021-pytorch": (
        """
import torch, tvm
from tvm import relay
scripted = torch.jit.trace(net, x).eval()
mod, params = relay.frontend.from_pytorch(scripted, [("x", (1, 3, 224, 224))])
""",
        {"gone"},
    ),
    "2021-timing-loop": (
        """
import time
import tvm
from tvm.contrib import graph_executor
m = graph_executor.GraphModule(lib["default"](tvm.cpu()))
start = time.time()
for i in range(3):
    m.run()
print((time.time() - start) / 3)
""",
        {"gone", "few-runs", "no-warm-up"},
    ),
    "2022-copies": (
        """
import time
import tvm
from tvm.contrib import graph_executor
m = graph_executor.GraphModule(lib["default"](tvm.cpu()))
m.run()
t0 = time.perf_counter()
for i in range(100):
    m.set_input("data", x)
    m.run()
    y = m.get_output(0).numpy()
t1 = time.perf_counter()
""",
        {"gone", "copies-timed"},
    ),
    "2022-gpu-no-sync": (
        """
import time
import tvm
from tvm.contrib import graph_executor
dev = tvm.cuda(0)
m = graph_executor.GraphModule(lib["default"](dev))
m.run()
begin = time.time()
for _ in range(50):
    m.run()
end = time.time()
""",
        {"gone", "no-sync"},
    ),
    "2022-metaschedule": (
        "from tvm import meta_schedule as ms\ndb = ms.tune_tir(mod=None, target=None)\n",
        {"gone"},
    ),
    "2022-tir-schedule": (
        "import tvm\nfrom tvm.script import tir as T\nsch = tvm.tir.Schedule(func)\n",
        {"gone"},
    ),
    "2022-nd-array": (
        "import tvm\nimport numpy as np\nx = tvm.nd.array(np.zeros(3), tvm.cpu())\n",
        {"gone"},
    ),
    "2022-one-evaluation": (
        """
import tvm
f = tvm.runtime.load_module("k.so")
t = f.time_evaluator("main", tvm.cpu(), number=1)
""",
        {"few-runs"},
    ),
    "2023-relax-build": (
        """
import tvm
from tvm import relax
from tvm.relax.frontend.onnx import from_onnx
mod = from_onnx(model)
ex = relax.build(mod, target="llvm")
vm = relax.VirtualMachine(ex, tvm.cpu())
""",
        {"generic-target", "untuned"},
    ),
    "2023-dlight": ("from tvm import dlight as dl\nrule = dl.gpu.Matmul()\n", {"gone"}),
    "2023-register": (
        "import tvm\n\n@tvm.register_func('my.f')\ndef f(x):\n    return x\n",
        {"gone"},
    ),
    "2024-no-fusion": (
        """
import tvm
from tvm import relax
seq = tvm.transform.Sequential([relax.transform.LegalizeOps()])
mod = seq(mod)
""",
        {"no-fusion"},
    ),
    "2024-opt-level": (
        """
import tvm
from tvm import relax
with tvm.transform.PassContext(opt_level=0):
    ex = tvm.compile(mod, target=tvm.target.Target({"kind": "llvm", "mcpu": "znver4"}))
""",
        {"no-fusion", "untuned"},
    ),
    "2025-gpu-float32": (
        """
import tvm
from tvm import relax
from tvm.s_tir import dlight as dl
target = tvm.target.Target({"kind": "cuda", "arch": "sm_90"})
ex = tvm.compile(mod, target=target)
vm = relax.VirtualMachine(ex, tvm.cuda(0))
""",
        {"single-precision"},
    ),
    "2025-two-models": (
        """
import tvm
from tvm import relax
first = relax.VirtualMachine(a, tvm.cpu())
second = relax.VirtualMachine(b, tvm.cpu())
""",
        {"one-process"},
    ),
    "2025-beside-onnxruntime": (
        """
import time
import tvm
from tvm import relax
import onnxruntime as ort
vm = relax.VirtualMachine(ex, tvm.cpu())
session = ort.InferenceSession("m.onnx")
vm["main"](x)
session.run(None, {})
t = time.perf_counter()
for _ in range(100):
    vm["main"](x)
u = time.perf_counter()
for _ in range(100):
    session.run(None, {})
v = time.perf_counter()
""",
        {"one-process"},
    ),
    "2026-cold-first-run": (
        """
import time
import tvm
from tvm import relax
vm = relax.VirtualMachine(ex, tvm.cpu())
t = time.perf_counter()
for _ in range(30):
    vm["main"](x)
print(time.perf_counter() - t)
""",
        {"no-warm-up"},
    ),
    "2026-gpu-launch": (
        """
import time
import tvm
from tvm import relax
dev = tvm.device("cuda", 0)
vm = relax.VirtualMachine(ex, dev)
vm["main"](x)
t = time.perf_counter_ns()
for _ in range(30):
    vm["main"](x)
print(time.perf_counter_ns() - t)
""",
        {"no-sync"},
    ),
    "2026-generic-dict": (
        "import tvm\nt = tvm.target.Target({'kind': 'llvm', 'num-cores': 8})\n",
        {"generic-target"},
    ),
}

GOOD = {
    "cpu timed beside a kernel for a GPU": """
import time
import tvm
from tvm import relax
mod = relax.get_pipeline("static_shape_tuning")(mod)
ex = tvm.compile(mod, target={"kind": "llvm", "mcpu": "znver4"})
kernel = tvm.compile(func, target=tvm.target.Target({"kind": "cuda", "arch": "sm_90"}))
vm = relax.VirtualMachine(ex, tvm.cpu())
print(vm.time_evaluator("main", tvm.cpu(), number=10, repeat=20)(x))
t = time.perf_counter()
for _ in range(100):
    vm["main"](x)
print(time.perf_counter() - t)
""",
    "whole": """
import time
import tvm
from tvm import relax
from tvm.relax.frontend.onnx import from_onnx
mod = from_onnx(model)
mod = relax.get_pipeline("static_shape_tuning")(mod)
target = tvm.target.Target({"kind": "llvm", "mcpu": "znver4", "num-cores": 8})
ex = tvm.compile(mod, target=target)
vm = relax.VirtualMachine(ex, tvm.cpu())
for _ in range(5):
    vm["main"](x)
t = time.perf_counter()
for _ in range(100):
    vm["main"](x)
print(time.perf_counter() - t)
""",
    "gpu": """
import time
import tvm
from tvm import relax
dev = tvm.cuda(0)
mod = relax.transform.ToMixedPrecision(out_dtype="float16")(mod)
with tvm.transform.PassContext(opt_level=3):
    mod = relax.transform.MetaScheduleApplyDatabase("db")(mod)
    ex = tvm.compile(mod, target=tvm.target.Target({"kind": "cuda", "arch": "sm_90"}))
vm = relax.VirtualMachine(ex, dev)
vm["main"](x)
dev.sync()
t = time.perf_counter()
for _ in range(100):
    vm["main"](x)
dev.sync()
print(time.perf_counter() - t)
""",
    "schedule": """
import tvm
from tvm import s_tir, te
a = te.placeholder((64, 64), name="a")
c = te.compute((64, 64), lambda i, j: a[i, j] * 2, name="c")
sch = s_tir.Schedule(te.create_prim_func([a, c]))
i, j = sch.get_loops("c")
sch.parallel(i)
lib = tvm.compile(sch.mod, target=tvm.target.Target({"kind": "llvm", "mcpu": "znver4"}))
""",
    "evaluator": """
import tvm
f = tvm.runtime.load_module("k.so")
t = f.time_evaluator("main", tvm.cpu(), number=5, repeat=20, min_repeat_ms=100)
""",
    "passes": """
import tvm
from tvm.relax import transform as rx
seq = tvm.transform.Sequential(
    [rx.LegalizeOps(), rx.AnnotateTIROpPattern(), rx.FuseOps(), rx.FuseTIR()]
)
""",
    "own-names": """
import tvm
def build(relay, autotvm):
    return relay.build(autotvm)
""",
}
