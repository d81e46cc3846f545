"""The parts of lessons that need no TVM: machine code, caches, reasons, exercises, pictures."""

from __future__ import annotations

from dataclasses import replace
from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console

from tvmscope.core.measurement import Measurement
from tvmscope.core.profile import Loop, Roof
from tvmscope.core.target import Target
from tvmscope.errors import BuildError, UsageError
from tvmscope.learn import catalog, plots
from tvmscope.learn import run as running
from tvmscope.learn import setting as settings
from tvmscope.learn.explain.compare_steps import compared, explained
from tvmscope.learn.explain.machine_code import hot_loop, same_code
from tvmscope.learn.explain.reasons import reasons
from tvmscope.learn.facts import Access, Built, HotLoop, LessonRun, Memory, StepRun, Study
from tvmscope.learn.lesson import Lesson
from tvmscope.learn.pages import terminal
from tvmscope.learn.pages.json_ import as_json
from tvmscope.learn.setting import Setting
from tvmscope.learn.sweep import combinations, played_step
from tvmscope.machine import caches, counters
from tvmscope.parsing import parse_assignments
from tvmscope.progress import Silent

VECTOR = """\
main_compute_:
\tvxorps\t%xmm0, %xmm0, %xmm0
.LBB4_4:
\tvmovaps\t(%r14), %zmm4
\tvfmadd231ps\t-3092(%rdi,%rbx){1to16}, %zmm4, %zmm0
\tvfmadd231ps\t-1556(%rdi,%rbx){1to16}, %zmm4, %zmm1
\tvmovups\t%zmm2, 64(%rsp)
\taddq\t$24, %rbx
\tjne\t.LBB4_4
\tvmovaps\t%zmm0, (%r8)
\tretq
"""
SCALAR = """\
main_compute_:
.LBB0_2:
.LBB0_3:
\tvmovss\t(%rax), %xmm1
\tvfmadd231ss\t(%rcx), %xmm1, %xmm0
\tincq\t%rax
\tjne\t.LBB0_3
\tvmovss\t%xmm0, (%rdx)
\tjne\t.LBB0_2
"""
ARM = """\
main_compute_:
.LBB0_1:
\tldr\tq1, [x0], #16
\tfmla\tv0.4s, v1.4s, v2.s[0]
\tsubs\tx2, x2, #1
\tb.ne\t.LBB0_1
"""
CACHES = (caches.Cache(level=1, size_bytes=32 << 10, ways=8, sets=64),)
TARGET = Target(kind="llvm", arch="x86-64-v4", features=("avx512f",), cores=2)
STUDY = Study(target=TARGET, size=64, threads=2, params={}, caches=CACHES)


def test_the_hot_loop_is_counted() -> None:
    hot = hot_loop(VECTOR)
    assert hot is not None
    assert (hot.vector_math, hot.scalar_math, hot.vector_bits) == (2, 0, 512)
    assert (hot.loads, hot.stores, hot.spills, hot.sums) == (3, 1, 1, 2)
    assert hot.flops == 2 * 16 * 2


def test_an_outer_loop_is_not_the_innermost() -> None:
    hot = hot_loop(SCALAR)
    assert hot is not None
    assert (hot.scalar_math, hot.vector_bits, hot.stores) == (1, 0, 0)
    assert hot.instructions == 4


def test_of_two_loops_of_one_sum_the_one_that_reads_it_is_hot() -> None:
    first = VECTOR.replace("LBB4_4", "LBB4_2").replace("vmovaps\t(%r14), %zmm4", "nop")
    found = hot_loop(first + VECTOR.replace("main_compute_:", ""))
    assert found is not None
    assert found.loads == 3  # as in VECTOR: the first term's loop has one less


def test_arm_is_read_too() -> None:
    hot = hot_loop(ARM)
    assert hot is not None
    assert (hot.vector_math, hot.vector_bits, hot.loads, hot.flops) == (1, 128, 1, 8.0)


def test_code_without_arithmetic_has_no_hot_loop() -> None:
    assert hot_loop("f:\n\tmovq\t%rax, %rbx\n\tretq\n") is None


def test_labels_do_not_make_code_different() -> None:
    assert same_code(SCALAR, SCALAR.replace("LBB0", "LBB9"))
    assert not same_code(SCALAR, VECTOR)


def test_caches_are_read_from_the_system(tmp_path: Path) -> None:
    for place, (kind, level, size) in enumerate(
        [("Data", 1, "48K"), ("Instruction", 1, "32K"), ("Unified", 2, "2M")]
    ):
        folder = tmp_path / f"index{place}"
        folder.mkdir()
        for name, text in (("type", kind), ("level", str(level)), ("size", size)):
            (folder / name).write_text(text + "\n")
        (folder / "ways_of_associativity").write_text("12\n")
    first, second = caches.read(tmp_path)
    assert (first.name, first.size_bytes, first.ways, first.sets) == ("L1", 48 << 10, 12, None)
    assert second.size_bytes == 2 << 20


def test_a_silent_system_has_usual_caches(tmp_path: Path) -> None:
    assert caches.read(tmp_path / "none") == ()
    assert caches.data_caches()


def test_counters_are_numbers_or_a_reason() -> None:
    found = counters.count(lambda: None)
    assert bool(found.values) != bool(found.missing)


def test_counters_of_another_system_are_a_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(counters.platform, "system", lambda: "Plan9")
    assert "Linux" in str(counters.count(lambda: None).missing)


def _built(assembly: str = SCALAR, **changes: object) -> Built:
    built = Built(
        tree=(Loop(text="i", extent=4, body=(Loop(text="C[i] = 0"),)),),
        script="",
        assembly=assembly,
        hot=hot_loop(assembly),
        memory=None,
        flops=1e6,
        bytes=1e4,
        parallel=1,
        launches=0,
        guards=0,
        error=1e-7,
        right=True,
    )
    return replace(built, **changes)  # type: ignore[arg-type]


def _run(seconds: float, built: Built | None = None, name: str = "x") -> StepRun:
    rounds = tuple((seconds * (1 + 0.001 * n),) for n in range(9))
    return StepRun(
        name=name,
        title=name,
        built=built or _built(),
        measurement=Measurement(rounds_s=rounds),
        threads=2,
    )


def _said(before: StepRun, now: StepRun) -> str:
    return " ".join(reasons(compared(now, before), before, STUDY))


def test_a_faster_step_is_told_by_what_helps() -> None:
    said = _said(_run(1.0), _run(0.1, _built(VECTOR)))
    assert "One arithmetic instruction now works on 16 numbers, before on 1" in said


def test_a_slower_step_is_told_by_what_hurts() -> None:
    now = compared(_run(1.0), _run(0.1, _built(VECTOR)))
    assert now.verdict == "slower"
    assert "works on 1 numbers, before on 16" in _said(_run(0.1, _built(VECTOR)), _run(1.0))


def test_noise_is_said_to_be_noise() -> None:
    noisy = replace(_run(1.0, _built(VECTOR)), verdict="undecided", ratio_ci95=(0.1, 9.0))
    (said,) = reasons(noisy, _run(1.0), STUDY)
    assert "too restless to tell: between 0.1 and 9 times as fast" in said


def test_the_same_code_is_said_to_be_the_same() -> None:
    assert "same, instruction for instruction" in _said(_run(1.0), _run(1.0))
    assert "the machine's, not the schedule's" in _said(_run(1.0), _run(0.5))


def test_a_difference_that_nothing_explains_is_not_explained() -> None:
    other = SCALAR.replace("incq", "decq")
    said = _said(_run(1.0), _run(0.5, _built(other)))
    assert "Neither the loops nor the counts" in said


def test_strides_and_spills_are_reasons() -> None:
    def walked(stride: int, assembly: str) -> Built:
        access = Access(buffer="B", writes=False, stride_bytes=stride)
        traffic = {"L1": 4e6 if stride > 4 else 1e6}
        memory = Memory(loop="k", accesses=(access,), traffic_bytes=traffic)
        return _built(assembly, memory=memory)

    faster = _said(_run(1.0, walked(4096, SCALAR)), _run(0.1, walked(4, VECTOR)))
    assert "moves 4 B in B from turn to turn, before 4 KiB" in faster
    slower = _said(_run(0.1, walked(4, SCALAR)), _run(1.0, walked(4096, VECTOR)))
    assert "must come from beyond the L1 cache (" not in slower  # no bandwidth is known
    assert "must come from beyond the L1 cache" in slower
    assert "no longer fits the registers" in slower


def test_sets_of_the_cache_are_a_reason() -> None:
    def column(stride: int) -> Built:
        access = Access(buffer="A", writes=False, stride_bytes=stride)
        memory = Memory(loop="j", accesses=(access,), traffic_bytes={})
        return _built(SCALAR.replace("incq", f"addq ${stride},"), memory=memory)

    assert (CACHES[0].sets_used(4096), CACHES[0].sets_used(4160)) == (1, 64)
    said = _said(_run(1.0, column(4096)), _run(0.1, column(4160)))
    assert "Steps of 4160 bytes in A fall into 64 of the L1 cache's 64 sets, before into 1" in said
    said = _said(_run(0.1, column(4160)), _run(1.0, column(4096)))
    assert "fall into 1 of the L1 cache's 64 sets, before into 64" in said


def test_a_wrong_step_is_not_explained_by_speed() -> None:
    (said,) = reasons(_run(1.0, _built(right=False, error=0.5)), None, STUDY)
    assert "The result is wrong" in said


def test_another_computation_is_not_compared() -> None:
    now = compared(_run(0.5, _built(VECTOR, flops=2e6)), _run(1.0))
    assert (now.ratio, now.verdict) == (None, None)
    assert reasons(now, _run(1.0), STUDY) == ()


def test_threads_are_a_reason() -> None:
    said = _said(_run(1.0), _run(0.5, _built(VECTOR, parallel=8)))
    assert "8 turns go to 2 threads instead of 1" in said


def test_handing_out_inside_a_loop_is_a_reason() -> None:
    said = _said(_run(0.1, _built(VECTOR, launches=1)), _run(1.0, _built(launches=384)))
    assert "handed out 384 times a run, before 1" in said


def test_the_same_code_on_other_threads_is_not_the_same() -> None:
    before = replace(_run(1.0, _built(parallel=8)), threads=1)
    assert "2 threads instead of 1" in _said(before, _run(0.5, _built(parallel=8)))


def test_shares_are_of_as_many_cores_as_steps_use() -> None:
    roofs = tuple(
        Roof(dtype="float32", threads=n, flops_per_s=n * 1e7, bytes_per_s=None, how="")
        for n in (1, 2)
    )
    study = replace(STUDY, roofs=roofs)
    run = LessonRun(lesson="x", size=1, study=study, steps=(_run(1.0), _run(0.5)))
    assert [s.share for s in explained(run).steps] == pytest.approx([0.1, 0.2], rel=0.02)
    both = replace(run, steps=(_run(1.0), _run(0.5, _built(VECTOR, parallel=8))))
    assert explained(both).steps[1].share == pytest.approx(0.1, rel=0.02)


def test_steps_of_one_computation_have_one_roof() -> None:
    """The first is slow enough for the memory, the second is not: its data came from the cache."""
    roofs = tuple(
        Roof(dtype="float32", threads=1, flops_per_s=None, bytes_per_s=rate, how="", level=level)
        for level, rate in (("DRAM", 1e4), ("L3", 1e5))
    )
    study = replace(STUDY, roofs=roofs)
    run = LessonRun(lesson="x", size=1, study=study, steps=(_run(2.0), _run(0.2)))
    slow, fast = explained(run).steps
    assert slow.share is not None
    assert fast.share is not None
    assert fast.share / slow.share == pytest.approx(10)


def test_a_step_is_compared_with_the_one_it_names() -> None:
    steps = (
        _run(1.0, name="plain"),
        _run(0.2, _built(VECTOR), name="best"),
        _run(0.8, _built(VECTOR, guards=1), name="small"),
        replace(_run(0.4, _built(VECTOR * 2, guards=1), name="large"), against="best"),
    )
    run = explained(LessonRun(lesson="x", size=1, study=STUDY, steps=steps))
    last = run.steps[-1]
    assert last.beside == 2
    assert terminal.comparison(last).startswith("2 times slower than step 2")
    assert "a condition stands inside it" in str(last.reasons[0])
    assert terminal.ratio_of(last) == "0.5x (step 2)"
    assert [s["compared_with"] for s in as_json(run)["steps"]] == [None] * 3 + ["best"]


def test_a_step_that_the_compiler_had_made_already_is_said_to_be_so() -> None:
    other = VECTOR.replace("%r14", "%r15")
    assert "LLVM had made the same of it" in _said(
        _run(1.0, _built(VECTOR)), _run(1.0, _built(other))
    )


def test_a_number_that_a_step_is_about_is_not_changed_by_the_reader() -> None:
    lesson = catalog.find("unroll")
    jobs = [running.Job.of(lesson, step, STUDY, {"rows": 8}) for step in lesson.steps]
    assert [job.shown.get("rows") for job in jobs] == [8, None, 2, 48]
    assert "rows" not in jobs[-1].chosen


def test_steps_are_compared_with_steps_before_them() -> None:
    for lesson in catalog.lessons().values():
        names = [step.name for step in lesson.steps]
        for place, step in enumerate(lesson.steps):
            assert step.against is None or step.against in names[:place], (lesson.name, step.name)


def test_plots_are_as_long_as_speeds() -> None:
    console = Console(file=StringIO(), width=100, color_system=None)
    failed = StepRun(name="z", title="z", failure="no")
    console.print(plots.Plot([_run(1.0, name="x"), _run(0.5, name="y"), failed]))
    first, second, third = console.file.getvalue().splitlines()  # type: ignore[attr-defined]
    assert second.count("█") == 2 * first.count("█") == 40
    assert "failed" in third


def test_a_picture_is_svg_with_every_name() -> None:
    document = plots.svg("title", [_run(1.0, name="naive"), _run(0.5, name="tiled")], 0.004)
    assert document.startswith("<?xml")
    assert "naive" in document
    assert "tiled" in document


@pytest.mark.parametrize(
    "texts, expected",
    [
        (["factor=8,16"], {"factor": (8, 16)}),
        (["a=1,b=2"], {"a": (1,), "b": (2,)}),
        (["a=1", "a=2"], {"a": (1, 2)}),
    ],
)
def test_assignments(texts: list[str], expected: dict[str, tuple[int, ...]]) -> None:
    assert parse_assignments(texts) == expected


@pytest.mark.parametrize("text", ["factor", "factor=x", "=3", "8"])
def test_bad_assignments_are_refused(text: str) -> None:
    with pytest.raises(UsageError, match="write name=8"):
        parse_assignments([text])


def test_too_many_combinations_are_refused() -> None:
    assert combinations({"a": (1, 2), "b": (3, 4)})[1] == {"a": 1, "b": 4}
    with pytest.raises(UsageError, match="more than"):
        combinations({"a": tuple(range(10)), "b": tuple(range(10))})


def test_a_machine_without_a_compiler_has_no_shares_but_every_step(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fails(*_: object, **__: object) -> None:
        raise BuildError("cc could not build the roof kernels")

    monkeypatch.setattr(settings, "run_within", fails)
    roofs, (warning,) = settings.known_roofs(TARGET, Silent())
    assert roofs == ()
    assert "roofs are unknown" in warning
    run = explained(LessonRun(lesson="x", size=1, study=STUDY, steps=(_run(1.0), _run(0.5))))
    assert [step.share for step in run.steps] == [None, None]
    assert run.roof_gflops is None
    text = StringIO()
    for width in (40, 130):  # a narrow terminal shows all of it too
        console = Console(file=text, width=width, color_system=None)
        for part in terminal.measured(run, ir=False, asm=True):
            console.print(part)
    assert "machine code: unchanged" in text.getvalue()


def _printed(width: int, *parts: object) -> str:
    text = StringIO()
    console = Console(file=text, width=width, color_system=None)
    for part in parts:
        console.print(part)
    return text.getvalue()


def test_what_cannot_be_shown_is_said_and_the_lesson_goes_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fails(*_: object, **__: object) -> None:
        raise BuildError("no C++ compiler found to link the artifact")

    monkeypatch.setattr(running, "run_within", fails)
    monkeypatch.setattr(settings, "run_within", fails)
    lesson = catalog.find("profile")
    found = running.run(lesson, Setting(target=TARGET))
    said = " ".join(_printed(40, *terminal.pages(found, lesson)).split())
    assert "What cannot be shown on this machine" in said
    assert "no C++ compiler found" in said
    assert "By how many percent" in said, "the exercise is still there"


@pytest.mark.parametrize("width", [24, 40, 79, 100])
def test_every_name_and_number_is_whole_at_any_width(width: int) -> None:
    roofs = (Roof(dtype="float32", threads=1, flops_per_s=1e7, bytes_per_s=None, how=""),)
    counted = counters.Counted(values={}, missing="this machine does not let programs count")
    runs = (_run(1.0, name="naive"), replace(_run(0.5, name="tiled"), counted=counted))
    run = LessonRun(lesson="x", size=1, study=replace(STUDY, roofs=roofs), steps=runs)
    page_ = _printed(width, *terminal.measured(explained(run), ir=True, asm=True))
    said = " ".join(page_.split())
    assert "…" not in page_
    for words in ("naive", "tiled", "1.00 s", "500 ms", "10%", "20%", "2x", "GFLOP/s", "roof"):
        assert words in said, words
    assert "Without the processor's counters: this machine" in said
    assert max(map(len, page_.splitlines())) <= width
    bars = [line for line in page_.splitlines() if "█" in line]
    assert len(bars) == 2
    assert bars[1].count("█") == pytest.approx(2 * bars[0].count("█"), abs=1)


@pytest.mark.parametrize(
    ("said", "theme"), [("0;15", "ansi_light"), ("15;0", "ansi_dark"), ("", "ansi_dark")]
)
def test_code_has_the_terminals_own_colours(
    said: str, theme: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLORFGBG", said)
    assert terminal._theme() == theme


def test_a_machine_with_one_core_says_what_it_cannot_show() -> None:
    handed_out = replace(_run(1.0), built=replace(_built(VECTOR), launches=1))
    alone = replace(TARGET, cores=1)
    (warning,) = running._one_core((_run(1.0), handed_out), alone)
    assert "one core only" in warning
    assert running._one_core((_run(1.0),), alone) == ()
    assert running._one_core((handed_out,), TARGET) == ()


# ---- the lessons as manifests ------------------------------------------------------------------


def test_every_lesson_has_its_place() -> None:
    listed = [name for _, names in catalog.CHAPTERS for name in names]
    assert list(catalog.lessons()) == listed


def test_an_unknown_lesson_is_answered_with_the_nearest() -> None:
    with pytest.raises(UsageError, match="did you mean vectorize"):
        catalog.find("vectorise")


@pytest.mark.parametrize("lesson", catalog.lessons().values(), ids=lambda lesson: lesson.name)
def test_a_lesson_is_whole(lesson: Lesson) -> None:
    names = [step.name for step in lesson.steps]
    assert len(names) == len(set(names))
    assert lesson.steps or lesson.exhibits
    assert bool(lesson.steps) == (lesson.workload is not None)
    known = {p.name for p in lesson.parameters} | {"threads"}
    for step in lesson.steps:
        assert set(step.params) <= known
        for name in known - {"threads"}:
            assert f'p["{name}"]' not in step.code or name in known
    for parameter in lesson.parameters:
        assert parameter.value(TARGET) > 0
        assert played_step(lesson, (parameter.name,)) in names
    text = StringIO()
    console = Console(file=text, width=80, color_system=None)
    for part in (*terminal.opening(lesson), *terminal.question(lesson)):
        console.print(part)
    assert str(lesson.title) in " ".join(text.getvalue().split())


def test_the_list_names_every_lesson() -> None:
    text = StringIO()
    console = Console(file=text, width=100, color_system=None)
    for part in terminal.listing(catalog.lessons()):
        console.print(part)
    assert all(name in text.getvalue() for name in catalog.lessons())


def test_hot_loops_without_instructions_have_no_rate() -> None:
    empty = HotLoop(
        instructions=0, vector_math=0, scalar_math=0, vector_bits=0, loads=0, stores=0,
        spills=0, gathers=0, shuffles=0, sums=0, flops=0.0, text=(),
    )  # fmt: skip
    assert empty.flops_per_instruction == 0.0
