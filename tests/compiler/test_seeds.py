"""MetaSchedule begins with what the rules have found, varies its tiles, and repeats none of it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tvm
import tvm_ffi

from tvmscope.compiler.tunable import extract, traces
from tvmscope.core.target import Target
from tvmscope.core.tuning import Candidate, Lowering, TuningTask
from tvmscope.tuning.search import evolution
from tvmscope.tuning.search.evolution import Begin, Evolution

RULES = ("conv2d", "winograd", "matmul")
_MS = "meta_schedule."


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """A population that is evolved in seconds."""
    monkeypatch.setattr(evolution, "_POPULATION", 16)
    monkeypatch.setattr(evolution, "_FRESH", 8)


def _module(function: Path) -> tvm.IRModule:
    return tvm.IRModule({"main": extract.read_function(function)})


def _begin(task: TuningTask, lowering: Lowering, host: Target, **more: Any) -> Begin:
    fitting = [c for c in task.candidates if task.lowering_for(c) == lowering][:6]
    return Begin(
        file=Path(lowering.function),
        target=host,
        seed=0,
        count=6,
        threads=2,
        known={},
        **{"first_layer": [(c, 1e-3 + 1e-5 * n) for n, c in enumerate(fitting)], **more},
    )


def _is_of_a_rule(trace: str) -> bool:
    """MetaSchedule's own schedules note what its postprocessors are to do; rules' do not."""
    return not any(step[0] == "Annotate" and _MS in str(step) for step in json.loads(trace)[0])


def _outputs(library: Path, function: Path) -> np.ndarray[Any, Any]:
    rng = np.random.default_rng(0)
    shapes = extract.arguments(function)
    args = [tvm.runtime.tensor(rng.standard_normal(s).astype(d)) for s, d in shapes]
    tvm.runtime.load_module(str(library))["main"](*args)
    return args[-1].numpy()


_GENERATIONS = 6


@pytest.mark.parametrize("rule", RULES)
def test_a_rules_schedule_is_the_same_when_its_tiles_are_drawn(
    tasks: list[TuningTask], host: Target, rule: str
) -> None:
    task = next(t for t in tasks if t.rule == rule)
    for lowering in task.lowerings:
        function = Path(lowering.function)
        trace, lines = extract.trace_of(function, Candidate(params=lowering.params), host)
        drawn = traces.with_choices(trace, _module(function))
        assert any("split" in line for line in lines)
        assert "SamplePerfectTile" not in trace
        assert "SamplePerfectTile" in drawn
        same = traces.applied(drawn, _module(function)).mod
        assert tvm_ffi.structural_equal(same, traces.applied(trace, _module(function)).mod)


def test_every_rules_schedule_can_be_replayed_as_a_seed(
    tasks: list[TuningTask], host: Target
) -> None:
    for task in tasks:
        function = Path(task.lowerings[0].function)
        trace, _ = extract.trace_of(function, Candidate(), host)
        traces.with_choices(trace, _module(function))


@pytest.mark.parametrize("rule", RULES)
def test_generations_vary_the_tiles_of_the_seeds_and_compute_the_same(
    tasks: list[TuningTask], host: Target, tmp_path: Path, rule: str
) -> None:
    task = next(t for t in tasks if t.rule == rule)
    begin = _begin(task, task.lowerings[-1], host)
    search = Evolution(begin)
    assert search.remark is None
    tried = {tvm_ffi.structural_hash(_scheduled(c, begin.file, host)) for c, _ in begin.first_layer}
    earlier, proposed = set[str](), list[str]()
    for _ in range(_GENERATIONS):  # chance decides which of them have descendants
        proposed = search.propose()
        assert proposed
        assert not earlier & set(proposed)
        if any(_is_of_a_rule(trace) for trace in proposed):
            break
        earlier |= set(proposed)
        search.tell(dict.fromkeys(proposed, (2e-3,)))
    assert any(_is_of_a_rule(trace) for trace in proposed)
    extract.build_plain(begin.file, host, tmp_path / "plain.so")
    expected = _outputs(tmp_path / "plain.so", begin.file)
    for number, trace in enumerate(proposed):
        candidate = Candidate(params=task.lowerings[-1].params, trace=trace)
        library = tmp_path / f"{number}.so"
        extract.build_candidate(begin.file, candidate, host, library)
        found = _outputs(library, begin.file)
        assert np.abs(found - expected).max() <= 1e-4 * np.abs(expected).max(), trace
        assert tvm_ffi.structural_hash(_scheduled(candidate, begin.file, host)) not in tried
    search.tell(dict.fromkeys(proposed, (2e-3,)))
    again = search.propose()
    assert again
    assert not set(again) & set(proposed)


def _scheduled(candidate: Candidate, function: Path, host: Target) -> Any:
    return extract._taken(function, candidate, host)[1].mod["main"].body


def test_a_seed_is_never_proposed_though_it_is_the_best(
    tasks: list[TuningTask], host: Target
) -> None:
    task = next(t for t in tasks if t.rule == "conv2d")
    begin = _begin(task, task.lowerings[0], host)
    search = Evolution(begin)
    module = _module(begin.file)
    seeds = {tvm_ffi.structural_hash(search._processed(t).mod) for t in _traces(begin, host)}
    assert seeds <= set(search._of_rule)
    for _ in range(2):
        proposed = search.propose()
        found = {tvm_ffi.structural_hash(traces.applied(t, module).mod) for t in proposed}
        assert not found & seeds
        search.tell(dict.fromkeys(proposed))


def _traces(begin: Begin, host: Target) -> list[str]:
    return [extract.trace_of(begin.file, c, host)[0] for c, _ in begin.first_layer]


def test_a_candidate_without_a_trace_is_left_out_and_named(
    tasks: list[TuningTask], host: Target, monkeypatch: pytest.MonkeyPatch
) -> None:
    task = next(t for t in tasks if t.rule == "matmul")
    good = extract.trace_of

    def trace_of(function: Path, candidate: Candidate, target: Target) -> tuple[str, list[str]]:
        if candidate.params:
            raise RuntimeError("no such trace")
        return good(function, candidate, target)

    monkeypatch.setattr(extract, "trace_of", trace_of)
    search = Evolution(_begin(task, task.lowerings[0], host))
    assert "no such trace" in str(search.remark)
    assert len(search._of_rule) == 1


def test_a_search_whose_seeds_are_refused_goes_on_without_them(
    tasks: list[TuningTask], host: Target, monkeypatch: pytest.MonkeyPatch
) -> None:
    task = next(t for t in tasks if t.rule == "matmul")
    good = Evolution.propose

    def propose(self: Evolution) -> list[str]:
        if self.begin.first_layer:
            raise RuntimeError("it does not fit")
        return good(self)

    monkeypatch.setattr(Evolution, "propose", propose)
    found = evolution.propose("refused", _begin(task, task.lowerings[0], host))
    assert "it does not fit" in str(found.remark)
    assert found.traces
    assert not any(map(_is_of_a_rule, found.traces))
