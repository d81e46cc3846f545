"""From flags to options, from sessions to exit codes, and the lines of a progress."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
from rich.console import Console

from support import samples
from support.rows import key
from tvmscope.cli.flags import groups as flags
from tvmscope.cli.progress import Bars, showing
from tvmscope.cli.show import InterruptedWork, Show, exit_code
from tvmscope.core.precision import FLOAT16
from tvmscope.core.session import Session, save
from tvmscope.messages import _, plural
from tvmscope.stages.options import Options
from tvmscope.workflow import bench
from tvmscope.workflow.examining.dry_run import compile_lines


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (["cpu,cuda:sm_90"], ("cpu", "cuda:sm_90")),
        (["cpu", "cuda"], ("cpu", "cuda")),
        (["llvm -mattr=+avx2,+fma"], ("llvm -mattr=+avx2,+fma",)),
        (['{"kind": "llvm", "mcpu": "x"}'], ('{"kind": "llvm", "mcpu": "x"}',)),
    ],
)
def test_commas_part_targets_but_not_inside_one(
    given: list[str], expected: tuple[str, ...]
) -> None:
    assert flags.target(target=given)["targets"] == expected


def test_every_group_without_flags_gives_the_default_options() -> None:
    fields = {k: v for group in flags.MEASURING for k, v in group().items()}
    shown = {k: fields.pop(k) for k in ("json", "quiet", "verbose", "redact", "dry_run")}
    assert Options.of(**fields) == Options()
    assert Show(**shown) == Show()


def test_flags_reach_their_options() -> None:
    options = Options.of(
        **flags.target(precision=["fp16"]),
        **flags.cores(threads=3),
        **flags.shapes(shapes=["x:1x3"]),
        **flags.inputs(seed=7),
        **flags.compilation(graph=True, disable_pass=["a,b"], dump_ir=Path("ir")),
        **flags.measurement(duration="250ms", mode="throughput"),
        **flags.comparison(backends=["torch,openvino"]),
        **flags.tolerances(rtol=0.5),
    )
    assert (options.precisions, options.threads, options.tolerance) == ((FLOAT16,), 3, 0.5)
    assert (options.load.shapes, options.load.seed, options.measure.seed) == ({"x": (1, 3)}, 7, 7)
    assert options.compile.disabled_passes == ("a", "b")
    assert options.graph
    assert (options.measure.duration_s, options.measure.mode) == (0.25, "throughput")
    assert options.backends == ("torch", "openvino")


@pytest.mark.parametrize(
    ("session", "asked", "code"),
    [
        (samples.complete(), (), 0),
        (samples.wrong_result(), (), 3),
        (samples.unavailable(), (), 0),
        (samples.unavailable(), ("openvino",), 5),
        (samples.only_unavailable(), (), 5),
        (samples.failed_backend(), (), 0),
        (samples.failed_backend(), ("openvino",), 1),
        (samples.failed_model(), (), 1),
        (samples.interrupted(), (), 130),
    ],
)
def test_exit_code(session: Session, asked: tuple[str, ...], code: int) -> None:
    assert exit_code([session], asked) == code


def compiled(status: str, **more: object) -> Session:
    """A session in which our own row came to `status` and a peer was measured."""
    ours = key("tvmscope", pipeline="tvmscope")
    row = samples.result(ours, None, status=status, reason="because", **more)
    return samples.session(row, samples.result("onnxruntime", 0.05))


def test_a_compiled_row_that_failed_is_a_failure_although_peers_ran() -> None:
    assert exit_code([compiled("failed", build_s=None)]) == 1


def test_our_rows_count_whoever_compiles_them() -> None:
    failed = samples.result(key("tvmscope"), None, status="failed", reason="because")
    assert failed.task.variant.pipeline is None
    assert exit_code([samples.session(failed, samples.result("onnxruntime", 0.05))]) == 1


def test_what_was_cross_compiled_as_asked_is_no_missing_dependency() -> None:
    assert exit_code([compiled("unavailable", build_s=2.0)], ("tvmscope",)) == 0
    assert exit_code([compiled("unavailable", build_s=None)], ("tvmscope",)) == 5


def test_our_rows_that_cannot_run_are_no_success_although_peers_ran() -> None:
    assert exit_code([compiled("unavailable", build_s=None)]) == 5
    assert exit_code([compiled("unavailable", build_s=2.0)]) == 0


def test_a_row_of_ours_in_another_precision_may_be_unavailable() -> None:
    other = samples.result("tvmscope", None, precision="bfloat16", status="unavailable")
    assert exit_code([samples.session(samples.result("tvmscope", 0.05), other)]) == 0


def test_interruption_names_the_saved_session() -> None:
    def work() -> None:
        with Show(quiet=True).working() as progress:
            progress.saved(Path("results/x"))
            progress.note("model 2 of 2: y")
            raise KeyboardInterrupt

    with pytest.raises(InterruptedWork, match="interrupted; session: results/x"):
        work()


def test_interruption_of_several_models_shows_those_that_are_done(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def one(model: str, options: Options, progress: object) -> Session:
        if model == "second.onnx":
            raise KeyboardInterrupt
        return samples.complete()

    def work(show: Show) -> None:
        done: list[Session] = []
        with show.working(done) as progress:
            bench.bench_models(["first.onnx", "second.onnx"], Options(), progress, done=done)

    monkeypatch.setattr(bench, "analyze", one)
    with pytest.raises(InterruptedWork):
        work(Show(json=True))
    said = capsys.readouterr()
    assert "resnet50" in said.err
    assert "48.2 ms" in said.err
    assert said.out == ""


@pytest.mark.parametrize(
    ("session", "shown"),
    [
        (samples.interrupted(), True),
        (
            samples.session(samples.result("torch", None, status="interrupted"), complete=False),
            False,
        ),
        (samples.complete(), False),
    ],
)
def test_interruption_shows_the_model_in_progress_as_far_as_it_was_measured(
    session: Session, shown: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def work() -> None:
        with Show().working() as progress:
            save(session, tmp_path)
            progress.saved(tmp_path)
            raise KeyboardInterrupt

    with pytest.raises(InterruptedWork, match="interrupted; session:"):
        work()
    assert ("48.0 ms" in capsys.readouterr().err) is shown


def test_without_records_the_measured_winners_of_a_gpu_are_left_out_too() -> None:
    assert Options.of(db="none").compile.overrides == {"records": False}
    assert Options.of(db="a.jsonl").compile.overrides == {}
    given = {"winograd": False}
    both = Options.of(db="none", overrides=given).compile.overrides
    assert (both, given) == ({"records": False, "winograd": False}, {"winograd": False})


def test_a_compile_plan_names_no_backend_that_it_will_not_use(tmp_path: Path) -> None:
    (tmp_path / "net.onnx").touch()
    options = Options(targets=("cuda:sm_90",), db="none")
    lines = compile_lines(str(tmp_path / "net.onnx"), Path("net.artifact"), options)
    words = {line.split()[0]: line.split(maxsplit=1)[1] for line in lines}
    assert (words["target"], words["precision"]) == ("cuda:sm_90", "float32")
    assert (words["pipeline"], words["artifact"]) == ("tvmscope", "net.artifact")
    assert not any(name in " ".join(lines) for name in ("backend", "onnxruntime", "torch"))


def test_progress_is_plain_lines_without_a_terminal() -> None:
    stream = io.StringIO()
    with showing(Console(file=stream)) as progress:
        progress.stage("load", "resnet50")
        progress.step(1, 2, "half")
        progress.note("a [bold]\x1bnote")
        assert progress.folder is None
        progress.saved(Path("results/x"))
        assert progress.folder == Path("results/x")
    said = "[0 s] load: resnet50\na [bold]\\x1bnote\nsession: results/x\n"
    assert stream.getvalue() == said


def test_progress_is_a_bar_on_a_terminal() -> None:
    stream = io.StringIO()
    with showing(Console(file=stream, force_terminal=True, width=100)) as progress:
        assert isinstance(progress, Bars)
        progress.stage("measure", "[x]")
        progress.step(1, 4, "round 1")
        progress.bar.refresh()
    assert "measure" in stream.getvalue()
    assert "25%" in stream.getvalue()


def test_messages_fall_back_to_english() -> None:
    assert _("no such message") == "no such message"
    assert _("") == ""
    assert plural("{n} core", "{n} cores", 1) == "{n} core"
