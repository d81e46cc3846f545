"""The terminal tables: content, order, width and safety."""

from __future__ import annotations

import io
from dataclasses import replace

import pytest
from rich.console import Console

from support import samples
from tvmscope.report.formats import console, html, markdown
from tvmscope.report.sections import view
from tvmscope.report.sections.verdict import verdicts


def text(name: str, width: int = 120) -> str:
    return console.to_text([samples.ALL[name]()], width)


@pytest.mark.parametrize("name", samples.ALL)
@pytest.mark.parametrize("width", [40, 80, 120, 200])
def test_every_session_fits_the_terminal(name: str, width: int) -> None:
    assert all(len(line) <= width for line in text(name, width).splitlines())


def test_rows_are_sorted_by_median() -> None:
    lines = text("complete").splitlines()
    names = [line.split()[0] for line in lines[2:7]]
    assert names == ["tvmscope", "openvino", "onnxruntime", "torch", "tvm"]


def test_speedup_has_interval_and_verdict() -> None:
    assert "1.14x [1.14, 1.14] faster" in text("complete")


def test_mean_and_deviation_stand_beside_the_median_where_there_is_room() -> None:
    assert "48.2 ms ± 387 us" in text("complete")
    assert "±" not in text("complete", 80)
    assert "48.2 ms ± 387 us" in markdown.render([samples.complete()])
    assert "48.2 ms ± 387 us" in html.render([samples.complete()])


def test_an_undecided_speedup_does_not_contradict_the_medians_beside_it() -> None:
    """Seen on a busy machine: a speed-up of 1.13 over rounds, and the larger median."""
    ours, peer = samples.result("tvmscope", 0.0717), samples.result("torch", 0.0664)
    session = samples.session(ours, peer)
    (comparison,) = session.comparisons
    doubtful = replace(comparison, speedup=1.13, ci95=(0.91, 1.31), verdict="undecided")
    session = replace(session, comparisons=(doubtful,))
    (headline,) = view.headlines(session)
    assert "cannot be distinguished: [0.91, 1.31]" in headline
    assert "1.13" not in console.to_text([session], 120)
    (verdict,) = verdicts(session, None)
    assert (verdict.tone, verdict.ratio) == ("undecided", "")
    same_side = replace(doubtful, speedup=0.93)
    assert "0.93x [0.91, 1.31]" in console.to_text(
        [replace(session, comparisons=(same_side,))], 120
    )
    decided = replace(doubtful, verdict="faster", ci95=(1.05, 1.31))
    assert "1.13x [1.05, 1.31]" in console.to_text([replace(session, comparisons=(decided,))], 120)


def test_headline_is_undecided_when_the_difference_is_too_small() -> None:
    assert "tvmscope and openvino, the fastest other backend, cannot be distinguished" in text(
        "complete"
    )


def test_wrong_row_stands_below_without_speedup() -> None:
    shown = text("wrong_result")
    assert "tvmscope wrong (11.0 ms): output 'logits'" in shown
    assert "faster" not in shown


def test_reason_is_shown_for_failed_and_unavailable_rows() -> None:
    assert "openvino failed: killed by signal 11" in text("failed_backend")
    assert "openvino unavailable: pip install 'tvmscope[openvino]'" in text("unavailable")


def test_random_weights_and_interruption_are_marked() -> None:
    assert "RANDOM weights" in text("random_weights")
    assert "interrupted" in text("interrupted")


def test_targets_share_one_table() -> None:
    shown = text("several_targets")
    assert shown.index("cpu:znver4  48.0 ms") < shown.index("cuda:sm_90   940 us")
    assert "905 us on the device" in shown


def test_throughput_is_items_per_second_beside_the_latency() -> None:
    rows = [line.split() for line in text("throughput").splitlines()[1:4]]
    assert rows[0][:3] == ["backend", "median", "95"]
    assert "items/s" in rows[0]
    assert rows[1][:3] == ["tvmscope", "320", "ms"]
    assert "25.0" in rows[1]
    assert "20.0" in rows[2]
    assert "items/s" not in text("complete")


def test_foreign_text_cannot_reach_the_terminal() -> None:
    shown = text("hostile_names")
    assert "\x1b" not in shown
    assert "[bold]" in shown  # shown literally, not taken as markup
    assert "y" * 201 not in shown


def test_bars_are_proportional_until_one_row_dwarfs_the_others() -> None:
    near = [view.ResultLine(samples.result("a", 0.01)), view.ResultLine(samples.result("b", 0.02))]
    far = [view.ResultLine(samples.result("a", 0.01)), view.ResultLine(samples.result("b", 1.0))]
    assert console.fraction(0.01, near) == pytest.approx(0.5, rel=1e-3)
    assert 0.1 < console.fraction(0.01, far) < 0.2
    assert "time (log)" in text("complete")
    assert "time (log)" not in text("failed_backend")


def test_percentiles_are_dashes_without_enough_samples() -> None:
    stream = io.StringIO()
    Console(file=stream, width=140).print(console.render(samples.complete(), ("p99",)))
    assert "p99" in stream.getvalue()
    assert " -  " in stream.getvalue()


def test_ascii_terminal_gets_ascii_bars() -> None:
    raw = io.BytesIO()
    stream = io.TextIOWrapper(raw, encoding="ascii", errors="replace")
    Console(file=stream, width=120).print(console.render(samples.complete()))
    stream.flush()
    assert b"####" in raw.getvalue()


def test_summary_has_a_row_per_model_and_the_geometric_mean() -> None:
    sessions = [samples.complete(), samples.several_targets(), samples.failed_model()]
    shown = console.to_text(sessions)
    assert "broken    failed" in shown
    assert "no importer for 'aten::amax'" in shown
    assert "geometric mean over 2 models: 2.53x" in shown


def test_the_findings_that_are_worth_most_come_with_the_table() -> None:
    found = [
        replace(samples.FINDING, title=f"cause {i}", saving_s=1e-3 / i, severity=severity)
        for i, severity in enumerate(("high", "medium", "low", "low", "info"), start=1)
    ]
    page = console.to_text([replace(samples.complete(), findings=tuple(found))])
    assert "cause 1: about 1.00 ms [not-vectorized]" in page
    assert "cause 4" not in page
    assert "4 findings; tvmscope explain lists them" in page
