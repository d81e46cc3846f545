"""Another installed package, which brings one manifest of each kind, made in a folder."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tvmscope import plugins

DISTRIBUTION, VERSION = "elsewhere", "1.2"
ORIGIN = f"{DISTRIBUTION} {VERSION}"

FILES = {
    "backend": """
import numpy as np
from tvmscope.backends.api import Backend
from tvmscope.measure.remote import here

class Runner:
    settings = {"library": "elsewhere"}

    def __init__(self, folder):
        with np.load(folder + "/reference.npz") as values:
            self.values = dict(values)

    def run(self):
        pass

    def outputs(self):
        return self.values

def load(request):
    return Runner(request.folder)

BACKEND = Backend(
    name="elsewhere", kinds=("cpu",), formats=("torch", "onnx"), load=here(load),
    unavailable=lambda device: None,
)
""",
    "cpu_rule": """
from tvmscope.compiler.manifest.rule import ScheduleRule
from tvmscope.compiler.manifest.switch import Switch

def schedule(func, target):
    from tvm import s_tir
    if "T.max(" not in func.script():
        return None
    sch = s_tir.Schedule(func)
    blocks = sch.get_child_blocks(sch.get_sblock("root"))
    for block in blocks[:-1]:
        sch.compute_inline(block)
    sch.parallel(sch.get_loops(blocks[-1])[0])
    return sch

RULE = ScheduleRule(
    name="elsewhere-cpu", devices=("cpu",), version=7, words="Runs rows in parallel.",
    schedule=schedule, switch=Switch(name="elsewhere-schedule"), before="fallback",
)
""",
    "cuda_rule": """
from tvmscope.compiler.manifest.rule import ScheduleRule

def _ours(func):
    return "T.max(" in func.script()

def schedule(func, target):
    from tvm import s_tir
    if not _ours(func):
        return None
    sch = s_tir.Schedule(func)
    blocks = sch.get_child_blocks(sch.get_sblock("root"))
    for block in blocks[:-1]:
        sch.compute_inline(block)
    outer, inner = sch.split(sch.fuse(*sch.get_loops(blocks[-1])), factors=[None, 64])
    sch.bind(outer, "blockIdx.x")
    sch.bind(inner, "threadIdx.x")
    return sch

def space(func, target):
    return {"threads": (64, 128)} if _ours(func) else None

RULE = ScheduleRule(
    name="elsewhere-cuda", devices=("cuda",), version=1, words="Gives each element a thread.",
    schedule=schedule, space=space, parameters={"threads": "{value} threads share a block"},
    before="tir-elementwise",
)
""",
    "step": """
from tvmscope.compiler.manifest.pass_ import Pass
from tvmscope.compiler.manifest.switch import Switch

def make(context):
    import tvm

    @tvm.transform.module_pass(opt_level=0, name="Elsewhere")
    def transform(module, _):
        return module.with_attr("elsewhere", context.target.device)

    return transform

PASS = Pass(
    name="elsewhere-pass", phase="tidy", words="Notes that it was here.", make=make,
    switches=(Switch(name="elsewhere-note"),), after="dead-code",
)
""",
    "rule": """
from tvmscope.core.diagnosis.findings import Finding
from tvmscope.diagnose.rule import Rule

def check(session):
    yield Finding(
        rule="elsewhere-finding", severity="low", effort="hours", title="Seen from elsewhere",
        evidence="One model.", advice="None.",
    )

RULE = Rule(id="elsewhere-finding", title="A rule from elsewhere", needs=(), check=check)
""",
    "text": """
from tvmscope.report.renderers import Renderer

RENDERER = Renderer(
    "elsewhere-text", ".elsewhere", lambda sessions: "elsewhere: " + sessions[0].model.name
)
""",
    "model": """
from tvmscope.models.api import BuiltIn

def load(options):
    raise AssertionError("the model is listed, and never loaded")

MODEL = BuiltIn(
    name="elsewhere-net", summary="A network from elsewhere", weights="none", load=load, requires=()
)
""",
}
"""One file for each manifest, and nothing else."""
ENTRY_POINTS = """
[tvmscope.backends]
elsewhere = elsewhere.backend:BACKEND
[tvmscope.schedule_rules]
elsewhere-cpu = elsewhere.cpu_rule:RULE
elsewhere-cuda = elsewhere.cuda_rule:RULE
[tvmscope.passes]
elsewhere-pass = elsewhere.step:PASS
[tvmscope.diagnosis_rules]
elsewhere-finding = elsewhere.rule:RULE
[tvmscope.formats]
elsewhere-text = elsewhere.text:RENDERER
[tvmscope.models]
elsewhere-net = elsewhere.model:MODEL
"""


def write(folder: Path, files: dict[str, str] = FILES, entry_points: str = ENTRY_POINTS) -> Path:
    """The package and its metadata, as an installer leaves them."""
    package = folder / "elsewhere"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("")
    for name, text in files.items():
        (package / f"{name}.py").write_text(text)
    info = folder / f"{DISTRIBUTION}-{VERSION}.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(
        f"Metadata-Version: 2.1\nName: {DISTRIBUTION}\nVersion: {VERSION}\n"
    )
    (info / "entry_points.txt").write_text(entry_points)
    return folder


@contextmanager
def installed(folder: Path) -> Iterator[Path]:
    """The package is found in this process, and in workers that it starts."""
    sys.path.insert(0, str(folder))
    importlib.invalidate_caches()
    plugins.allow(True)
    try:
        yield folder
    finally:
        sys.path.remove(str(folder))
        for name in [n for n in sys.modules if n.partition(".")[0] == "elsewhere"]:
            del sys.modules[name]
        importlib.invalidate_caches()
        plugins.allow(True)
