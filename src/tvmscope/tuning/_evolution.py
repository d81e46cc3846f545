"""MetaSchedule's evolutionary search in a worker process: proposes traces, learns from times.

TVM's own tuner would also build and measure; here it only proposes, so that every candidate goes
through our builders, our runner and our records. What was measured in earlier runs is told again
when a task begins, which brings back its population and its cost model.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tvmscope.compiler import tvm_compat
from tvmscope.core.target import Target

Times = Mapping[str, tuple[float, ...] | None]
"""Seconds by trace; None where it failed."""

_POPULATION = 128
"""A quarter of TVM's: a generation takes a second or two, which is what a batch of builds takes."""
_FRESH = 32
_ENDLESS = 1 << 30
_KNOWN_MOST = 256
"""Earlier trials that are replayed when a task begins, the fastest: a replay takes some 20 ms."""


class Evolution:
    """The search of one task."""

    def __init__(
        self, file: Path, target: Target, *, seed: int, count: int, threads: int, known: Times
    ) -> None:
        self.tvm = tvm_compat.import_tvm(torch=False)
        tvm_compat.import_tensor_intrinsics()
        from tvm.s_tir import meta_schedule as ms

        from tvmscope.compiler.targets import to_tvm

        self.ms = ms
        text = file.read_text(encoding="utf-8")
        function = self.tvm.ir.load_json(text).with_attr("global_symbol", "main")
        self.target = self.tvm.target.Target(to_tvm(target))
        self.context = ms.TuneContext(
            mod=self.tvm.IRModule({"main": function}),
            target=self.target,
            space_generator="post-order-apply",
            search_strategy=ms.search_strategy.EvolutionarySearch(
                population_size=_POPULATION, init_min_unmeasured=_FRESH
            ),
            num_threads=threads,
            rand_state=seed + 1,  # 0 would mean a random one
        )
        self.args = ms.arg_info.ArgInfo.from_prim_func(function)
        self.database = ms.database.MemoryDatabase()
        self.workload = self.database.commit_workload(self.context.mod)
        self.model = ms.cost_model.CostModel.create("xgb", num_tuning_cores=threads)
        self._pending: dict[str, Any] = {}
        self.learn({trace: self._candidate(trace) for trace in _fastest(known)}, known)
        self.context.pre_tuning(
            max_trials=_ENDLESS,
            num_trials_per_iter=count,
            database=self.database,
            cost_model=self.model,
        )

    def propose(self) -> list[str]:
        """The next generation as JSON traces; empty where the space is exhausted."""
        found = self.context.generate_measure_candidates() or []
        self._pending = {_text(candidate.sch.trace): candidate for candidate in found}
        self._order = list(found)
        return list(self._pending)

    def tell(self, times: Times) -> None:
        """What became of the last generation."""
        results = [self._result(times.get(_text(c.sch.trace))) for c in self._order]
        self.context.notify_runner_results(self._order, results)
        self._record(self._pending, times)

    def learn(self, candidates: Mapping[str, Any], times: Times) -> None:
        """Tell the cost model and the population about trials of earlier runs."""
        if candidates:
            results = [self._result(times[trace]) for trace in candidates]
            self.model.update(self.context, list(candidates.values()), results)
            self._record(candidates, times)

    def _record(self, candidates: Mapping[str, Any], times: Times) -> None:
        for trace, candidate in candidates.items():
            seconds = times.get(trace)
            if seconds:
                record = self.ms.database.TuningRecord(
                    candidate.sch.trace, self.workload, list(seconds), self.target, self.args
                )
                self.database.commit_tuning_record(record)

    def _result(self, seconds: tuple[float, ...] | None) -> Any:
        if seconds:
            return self.ms.runner.RunnerResult(list(seconds), None)
        return self.ms.runner.RunnerResult(None, "failed")

    def _candidate(self, trace: str) -> Any:
        from tvm import s_tir

        sch = s_tir.Schedule(self.context.mod)
        s_tir.schedule.Trace.apply_json_to_schedule(json.loads(trace), sch)
        return self.ms.search_strategy.MeasureCandidate(sch, self.args)


_SEARCHES: dict[str, Evolution] = {}


def propose(
    key: str, file: Path, target: Target, seed: int, count: int, threads: int, known: Times
) -> list[str]:
    """The next generation of the task `key`, whose search begins with the first call."""
    if key not in _SEARCHES:
        _SEARCHES[key] = Evolution(
            file, target, seed=seed, count=count, threads=threads, known=known
        )
    return _SEARCHES[key].propose()


def tell(key: str, times: Times) -> None:
    """What became of the generation that was proposed last."""
    _SEARCHES[key].tell(times)


def _fastest(known: Times) -> list[str]:
    measured = {trace: min(seconds) for trace, seconds in known.items() if seconds}
    return sorted(measured, key=measured.__getitem__)[:_KNOWN_MOST]


def _text(trace: Any) -> str:
    return json.dumps(_plain(trace.as_json()), separators=(",", ":"))


def _plain(value: Any) -> Any:
    """TVM's containers and integers as Python's."""
    if value is None or isinstance(value, str | bool | float | int):
        return value
    if hasattr(value, "value"):
        return value.value
    if hasattr(value, "items"):
        return {str(k): _plain(v) for k, v in value.items()}
    return [_plain(v) for v in value]
