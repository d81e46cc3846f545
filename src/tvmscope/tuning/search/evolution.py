"""MetaSchedule's evolutionary search in a worker process: proposes traces, learns from times.

TVM's own tuner would also build and measure; here it only proposes, so that every candidate goes
through our builders, our runner and our records. Measurements of earlier runs are passed in again
when a task begins, which restores its population and its cost model. So are the results of a rule's
own parameters: on a CPU the best of these seed the first population, and their tiles are varied. On
a GPU they only train the cost model: a schedule there keeps values in the registers of the thread
that reads them later, so that a tile varied alone gives wrong results.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from tvmscope.core.target import Target
from tvmscope.core.tuning import Candidate
from tvmscope.errors import TuneError, one_line
from tvmscope.messages import Text, msg
from tvmscope.runtime import tvm_compat

if TYPE_CHECKING:
    from tvm.ir import IRModule
    from tvm.s_tir import Schedule
    from tvm.s_tir.meta_schedule.runner import RunnerResult
    from tvm.s_tir.meta_schedule.search_strategy import MeasureCandidate
    from tvm.s_tir.schedule import Trace

Times = Mapping[str, tuple[float, ...] | None]
"""Seconds by trace; None if it failed."""
FirstLayer = Sequence[tuple[Candidate, float]]
"""Candidates of a rule and their seconds, the fastest first."""

_POPULATION = 128
"""A quarter of TVM's: a generation takes a second or two, about as long as a batch of builds."""
_FRESH = 32
_ENDLESS = 1 << 30
_KNOWN_MOST = 256
"""The most earlier trials that are replayed when a task begins, the fastest; each takes 20 ms."""
_SEEDS = 4
"""A rule's candidates in the first population; making one takes some 0.3 s."""
_TOLD = 32
"""A rule's candidates that train the cost model."""
_WARMUP = 32
"""The number of trials after which the cost model ranks; before, all candidates are equal."""
_AGAIN = 4
"""Generations in a row that may contain only what a rule has tried."""


@dataclass(frozen=True, kw_only=True)
class Begin:
    """The initial data of one task's search; they cross the process boundary."""

    file: Path
    """The function before scheduling."""
    target: Target
    seed: int
    count: int
    """Candidates per generation."""
    threads: int
    known: Times
    first_layer: FirstLayer = ()


@dataclass(frozen=True)
class Generation:
    """The proposals, and the errors with seeds when the search began."""

    traces: tuple[str, ...]
    remark: Text | None = None


class Evolution:
    """The search of one task."""

    def __init__(self, begin: Begin) -> None:
        tvm_compat.import_tvm(torch=False)
        tvm_compat.import_tensor_intrinsics()
        import tvm
        from tvm.s_tir import meta_schedule as ms

        from tvmscope.compiler.targets import to_tvm

        self.ms = ms
        self.begin = begin
        text = begin.file.read_text(encoding="utf-8")
        function = tvm.ir.load_json(text).with_attr("global_symbol", "main")
        self.target = tvm.target.Target(to_tvm(begin.target))
        self.module = tvm.IRModule({"main": function})
        self.context = ms.TuneContext(
            mod=self.module,
            target=self.target,
            space_generator="post-order-apply",
            search_strategy=ms.search_strategy.EvolutionarySearch(
                population_size=_POPULATION, init_min_unmeasured=_FRESH
            ),
            num_threads=begin.threads,
            rand_state=begin.seed + 1,  # 0 would mean a random one
        )
        self.args = ms.arg_info.ArgInfo.from_prim_func(function)
        self.database = ms.database.MemoryDatabase()
        self.workload = self.database.commit_workload(self.module)
        self.model = ms.cost_model.CostModel.create(
            "xgb", num_tuning_cores=begin.threads, num_warmup_samples=_WARMUP
        )
        self.remark: Text | None = None
        self._seeds = _SEEDS if begin.target.kind == "llvm" else 0
        self._pending: dict[str, MeasureCandidate] = {}
        self._order: list[MeasureCandidate] = []
        self._of_rule: dict[int, tuple[float, ...]] = {}
        """Seconds of the schedules that a rule has tried, by the hash of the scheduled module."""
        self.learn({t: self._candidate(t) for t in _fastest(begin.known)}, begin.known)
        seeds = self._sow(begin.first_layer)
        self.context.pre_tuning(
            max_trials=_ENDLESS,
            num_trials_per_iter=begin.count,
            design_spaces=[*self.context.generate_design_space(), *seeds],
            database=self.database,
            cost_model=self.model,
        )

    def _sow(self, first_layer: FirstLayer) -> list[Schedule]:
        """Pass on the trials of a rule; return the schedules of the first population."""
        told: dict[str, MeasureCandidate] = {}
        times: dict[str, tuple[float, ...]] = {}
        seeds: list[Schedule] = []
        for index, (candidate, seconds) in enumerate(first_layer[:_TOLD]):
            try:
                trace = self._seed_trace(candidate, varied=index < self._seeds)
                sch = self._processed(trace)
            except Exception as e:  # TVM raises many types; the others can still be seeds
                seed = str(candidate.params) if candidate.params else msg("the untuned schedule")
                self.remark = self.remark or msg("{seed}: {reason}", seed=seed, reason=one_line(e))
                continue
            told[trace] = self.ms.search_strategy.MeasureCandidate(sch, self.args)
            times[trace] = self._of_rule[_hash(sch.mod)] = (seconds,)
            if index < self._seeds:
                seeds.append(self._candidate(trace).sch)
        if told:
            results = [self._result(times[trace]) for trace in told]
            self.model.update(self.context, list(told.values()), results)
            self._record(dict(list(told.items())[: len(seeds)]), times)
        return seeds

    def _seed_trace(self, candidate: Candidate, *, varied: bool) -> str:
        from tvmscope.compiler.tunable import extract, traces

        trace, _ = extract.trace_of(self.begin.file, candidate, self.begin.target)
        return traces.with_choices(trace, self.module) if varied else trace

    def _processed(self, trace: str) -> Schedule:
        """Return a schedule as the search would propose it; raise if that is refused."""
        sch = self._candidate(trace).sch
        sch.enter_postproc()
        space = self.context.space_generator
        assert space is not None  # it was set when the context was made
        for step in space.postprocs:
            if not step.apply(sch):
                raise TuneError(msg("{step} refuses it", step=type(step).__name__))
        return sch

    def propose(self) -> list[str]:
        """Return the next generation as JSON traces; empty if the space is exhausted."""
        for _ in range(_AGAIN):
            self._order = list(self.context.generate_measure_candidates() or [])
            self._pending = {
                _text(candidate.sch.trace): candidate
                for candidate in self._order
                if _hash(candidate.sch.mod) not in self._of_rule
            }
            if self._pending or not self._order:
                break
            self.tell({})
        return list(self._pending)

    def tell(self, times: Times) -> None:
        """Report the results of the last generation."""
        results = [
            self._result(times.get(_text(c.sch.trace)) or self._of_rule.get(_hash(c.sch.mod)))
            for c in self._order
        ]
        self.context.notify_runner_results(self._order, results)
        self.learn({t: c for t, c in self._pending.items() if t in times}, times)

    def learn(self, candidates: Mapping[str, MeasureCandidate], times: Times) -> None:
        """Train the cost model and extend the population with trials."""
        if candidates:
            results = [self._result(times[trace]) for trace in candidates]
            self.model.update(self.context, list(candidates.values()), results)
            self._record(candidates, times)

    def _record(self, candidates: Mapping[str, MeasureCandidate], times: Times) -> None:
        for trace, candidate in candidates.items():
            seconds = times.get(trace)
            if seconds:
                record = self.ms.database.TuningRecord(
                    candidate.sch.trace, self.workload, list(seconds), self.target, self.args
                )
                self.database.commit_tuning_record(record)

    def _result(self, seconds: tuple[float, ...] | None) -> RunnerResult:
        if seconds:
            return self.ms.runner.RunnerResult(list(seconds), None)
        return self.ms.runner.RunnerResult(None, "failed")

    def _candidate(self, trace: str) -> MeasureCandidate:
        from tvmscope.compiler.tunable import traces

        sch = traces.applied(trace, self.module)
        return self.ms.search_strategy.MeasureCandidate(sch, self.args)


_SEARCHES: dict[str, Evolution] = {}


def propose(key: str, begin: Begin) -> Generation:
    """Return the next generation of the task `key`, whose search begins with the first call."""
    try:
        if key not in _SEARCHES:
            _SEARCHES[key] = Evolution(begin)
        search = _SEARCHES[key]
        proposed = search.propose()
    except Exception as e:  # TVM raises many types; without seeds the search may still work
        if not begin.first_layer or (key in _SEARCHES and not _SEARCHES[key].begin.first_layer):
            raise
        remark = msg("a variant of a rule's schedule was refused: {reason}", reason=one_line(e))
        _SEARCHES[key] = search = Evolution(replace(begin, first_layer=()))
        search.remark, proposed = remark, search.propose()
    return Generation(tuple(proposed), search.remark)


def tell(key: str, times: Times) -> None:
    """Report the results of the last generation."""
    _SEARCHES[key].tell(times)


def _fastest(known: Times) -> list[str]:
    measured = {trace: min(seconds) for trace, seconds in known.items() if seconds}
    return sorted(measured, key=measured.__getitem__)[:_KNOWN_MOST]


def _text(trace: Trace) -> str:
    from tvmscope.compiler.tunable import traces

    return traces.text(trace)


def _hash(module: IRModule) -> int:
    from tvm_ffi import structural_hash

    return int(structural_hash(module))
