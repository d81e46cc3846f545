"""Every lesson at a small size: steps are right, refusals are refused, exercises check."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tvmscope.compiler import targets
from tvmscope.compiler.codegen import linkers
from tvmscope.core.profile import Loop
from tvmscope.core.target import Target
from tvmscope.errors import BuildError, UsageError
from tvmscope.learn import catalog, user_file
from tvmscope.learn.facts import Built, Study
from tvmscope.learn.lesson import Lesson
from tvmscope.learn.lessons import search
from tvmscope.learn.step_builder import Request, StepBuilder
from tvmscope.machine import caches, cpu_features

STEPPED = [lesson for lesson in catalog.lessons().values() if lesson.steps]
SHOWING = [lesson for lesson in catalog.lessons().values() if lesson.exhibits]


@pytest.fixture(scope="module")
def host(tmp_path_factory: pytest.TempPathFactory) -> Target:
    from tvmscope.stages.places import cache_folder

    return targets.host_target(cores=1, cache=cache_folder())


class Taught:
    """A lesson in this process; each step is built once for every choice of parameters."""

    def __init__(self, lesson: Lesson, target: Target) -> None:
        self.lesson, self.target = lesson, target
        self.params = {p.name: p.value(target) for p in lesson.parameters}
        self.builder = StepBuilder(
            Request(
                lesson=lesson.name,
                size=lesson.smallest,
                threads=1,
                target=target,
                caches=caches.data_caches(),
            )
        )

    def build(self, step: str, chosen: dict[str, int]) -> Built:
        return self.builder.build(step, self.params, chosen)[1]

    @property
    def study(self) -> Study:
        return Study(
            target=self.target,
            size=self.lesson.smallest,
            threads=1,
            params=self.params,
            caches=caches.data_caches(),
            build=self.build,
        )


def _loops(nodes: tuple[Loop, ...]) -> Iterator[Loop]:
    for node in nodes:
        yield node
        yield from _loops(node.body)


@pytest.mark.parametrize("lesson", STEPPED, ids=lambda lesson: lesson.name)
def test_steps_are_right_and_refusals_are_refused(lesson: Lesson, host: Target) -> None:
    taught = Taught(lesson, host)
    trees = {}
    for step in lesson.steps:
        if step.refused:
            with pytest.raises(BuildError, match="is not legal here"):
                taught.build(step.name, {})
            continue
        built = taught.build(step.name, {})
        assert built.right, f"{step.name}: {built.error}"
        assert built.script
        assert list(_loops(built.tree))
        trees[step.name] = built.tree
        for primitive, mode in (("sch.parallel", "parallel"), ("sch.vectorize", "vectorized")):
            if f"{primitive}(" in step.code:
                assert mode in {loop.mode for loop in _loops(built.tree)}, step.name
    assert len(set(trees.values())) > 1 or len(trees) < 3


@pytest.mark.parametrize("name", ["matmul", "conv2d"])
@pytest.mark.parametrize("isa", ["cpu:x86-64-v3", "cpu:x86-64-v4"])
def test_the_last_step_of_a_whole_lesson_can_reach_the_roof(name: str, isa: str) -> None:
    """Its inner loop multiplies and adds, eight sums or more at once; nothing else goes to memory
    than what feeds them. What the clock says to it is a slow test."""
    target = targets.resolve(isa, cores=1)
    if missing := set(target.features) - cpu_features.reported():
        pytest.skip(f"the CPU lacks {', '.join(sorted(missing))}")
    taught = Taught(catalog.find(name), target)
    hot = taught.build(taught.lesson.steps[-1].name, {}).hot
    assert hot is not None
    assert (hot.spills, hot.stores, hot.gathers, hot.shuffles) == (0, 0, 0, 0)
    assert hot.sums >= 8
    assert hot.vector_bits == target.vector_bits
    assert hot.loads <= 1.1 * hot.math, "no more loads than multiply-adds: a core can do both"
    assert hot.instructions <= 1.6 * hot.math + 16


def test_work_that_is_handed_out_inside_a_loop_is_counted(host: Target) -> None:
    taught = Taught(catalog.find("parallel"), host)
    assert taught.build("serial", {}).launches == 0
    assert taught.build("one-thread", {}).launches == 1
    assert taught.build("inner", {}).launches == taught.lesson.smallest


@pytest.mark.parametrize("lesson", catalog.lessons().values(), ids=lambda lesson: lesson.name)
def test_the_exercise_takes_its_solution_and_no_other_answer(lesson: Lesson, host: Target) -> None:
    study = Taught(lesson, host).study
    solution = lesson.exercise.solution(study)
    checked = lesson.exercise.check(solution, study)
    assert checked.right, checked.words
    wrong = (
        "rows=1,columns=4" if "rows=" in solution else "factor=4" if "=" in solution else "999983"
    )
    refused = lesson.exercise.check(wrong, study)
    assert not refused.right
    assert refused.words


@pytest.mark.parametrize(
    "lesson", [x for x in SHOWING if x.name not in ("search", "profile")], ids=lambda x: x.name
)
def test_exhibits_are_shown(lesson: Lesson, host: Target) -> None:
    assert lesson.exhibits is not None
    shown = lesson.exhibits.resolve()(lesson.smallest, host, False)
    assert all(e.title and e.words for e in shown)
    if lesson.name == "gpu":
        code = [e.code for e in shown]
        assert "threadIdx.x" in code[1]
        assert "__shared__" in code[2]
        assert "mma_sync" in code[3]
    if lesson.name == "road":
        assert [e.title[:1] for e in shown] == list("12345678")
        assert "T.parallel" in shown[6].code


@pytest.mark.parametrize(
    "lesson", [x for x in SHOWING if x.name not in ("search", "profile")], ids=lambda x: x.name
)
def test_exhibits_need_no_c_compiler(
    lesson: Lesson, host: Target, monkeypatch: pytest.MonkeyPatch
) -> None:
    def missing(*_: object) -> None:
        raise BuildError("no C++ compiler found")

    for name in ("link", "linker_for"):
        monkeypatch.setattr(linkers, name, missing)
    monkeypatch.setattr(shutil, "which", lambda *_: None)
    monkeypatch.setenv("PATH", "/nowhere")
    assert lesson.exhibits is not None
    assert lesson.exhibits.resolve()(lesson.smallest, host, False)


def test_a_profile_is_read(host: Target) -> None:
    lesson = catalog.find("profile")
    assert lesson.exhibits is not None
    table, reading = lesson.exhibits.resolve()(lesson.smallest, host, False)
    assert "conv2d" in table.code
    assert "Look first at" in reading.words


def test_the_stored_search_is_dated_and_read(host: Target) -> None:
    table, reading = search.exhibits(384, host, False)
    assert "MetaSchedule" in table.code
    assert "20" in table.words
    assert "reach half of the best speed" in reading.words


def test_a_search_measures_both_kinds(host: Target, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(search, "TRIALS", 4)
    curves = search.measured(48, host)
    assert len(curves["metaschedule"]) == len(curves["rule"]) == 4
    assert max(curves["metaschedule"]) > 0
    assert max(curves["rule"]) > 0


# ---- the reader's own file ---------------------------------------------------------------------

MINE = """
from tvm import te

def workload():
    a = te.placeholder((64, 64), name="A")
    return te.create_prim_func([a, te.compute((64, 64), lambda i, j: a[i, j] * 2, name="C")])

def schedule(sch, factor=16):
    i, j = sch.get_loops("C")
    j_o, j_i = sch.split(j, factors=[None, factor])
    sch.vectorize(j_i)
"""


def _mine(folder: Path, text: str, target: Target) -> StepBuilder:
    file = folder / "mine.py"
    file.write_text(text)
    known = caches.data_caches()
    return StepBuilder(Request(file=file, size=1, threads=1, target=target, caches=known))


def test_keyword_arguments_are_parameters(tmp_path: Path, host: Target) -> None:
    builder = _mine(tmp_path, MINE, host)
    assert builder.lesson.steps[-1].params == {"factor": 16}
    _, built = builder.build("scheduled", {}, {"factor": 8})
    assert built.right
    assert any(loop.extent == 8 and loop.mode == "vectorized" for loop in _loops(built.tree))


def test_an_illegal_schedule_says_which_rule_it_breaks(tmp_path: Path, host: Target) -> None:
    text = MINE.replace("sch.vectorize(j_i)", "sch.reorder(j_i, j_i)")
    said = r"reorder is not legal here\. Loop j_1 appears .*multiple times"
    with pytest.raises(BuildError, match=said):
        _mine(tmp_path, text, host).build("scheduled", {}, {})


def test_a_compact_dataflow_rule_is_quoted(tmp_path: Path, host: Target) -> None:
    lesson = MINE.replace("a[i, j] * 2", "te.sum(a[i, k], axis=k)").replace(
        "    return te.create", "    k = te.reduce_axis((0, 64), name='k')\n    return te.create"
    )
    text = lesson.replace("i, j = sch", "i, j, k = sch") + (
        "    sch.decompose_reduction('C', k)\n    sch.parallel(i)\n"
    )
    with pytest.raises(BuildError, match=r"parallel is not legal here\. .*data parallel"):
        _mine(tmp_path, text, host).build("scheduled", {}, {})


@pytest.mark.parametrize(
    "text, said",
    [
        ("schedule = 3\n", "has no TIR function"),
        (MINE.replace("def schedule", "def other"), "defines no function schedule"),
        (MINE.replace("factor=16", "factor=None"), "needs a whole number"),
        ("1 / 0\n", "ZeroDivisionError"),
    ],
)
def test_a_file_that_is_none_is_refused(tmp_path: Path, text: str, said: str) -> None:
    file = tmp_path / "mine.py"
    file.write_text(text)
    with pytest.raises(UsageError, match=said):
        user_file.read(file)


def test_a_reference_of_the_readers_own_is_obeyed(tmp_path: Path, host: Target) -> None:
    text = MINE + "\ndef reference(a):\n    return a * 3\n"
    _, built = _mine(tmp_path, text, host).build("plain", {}, {})
    assert not built.right
