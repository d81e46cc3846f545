from collections.abc import Sequence
from typing import Any, Literal

from tvm.ir import IRModule
from tvm.runtime import Object
from tvm.s_tir import Schedule
from tvm.s_tir.meta_schedule import arg_info as arg_info
from tvm.s_tir.meta_schedule import cost_model as cost_model
from tvm.s_tir.meta_schedule import database as database
from tvm.s_tir.meta_schedule import runner as runner
from tvm.s_tir.meta_schedule import search_strategy as search_strategy
from tvm.s_tir.meta_schedule import space_generator as space_generator
from tvm.s_tir.meta_schedule.cost_model import CostModel as _CostModel
from tvm.s_tir.meta_schedule.database import Database as _Database
from tvm.s_tir.meta_schedule.runner import RunnerResult as _RunnerResult
from tvm.s_tir.meta_schedule.search_strategy import MeasureCandidate as _MeasureCandidate
from tvm.s_tir.meta_schedule.search_strategy import SearchStrategy as _SearchStrategy
from tvm.s_tir.meta_schedule.space_generator import SpaceGenerator as _SpaceGenerator
from tvm.target import Target

class TuneContext(Object):
    mod: IRModule | None
    target: Target | None
    space_generator: _SpaceGenerator | None
    search_strategy: _SearchStrategy | None
    task_name: str
    def __init__(
        self,
        mod: IRModule | None = None,
        *,
        target: Target | str | None = None,
        space_generator: _SpaceGenerator | str | None = None,
        search_strategy: _SearchStrategy | str | None = None,
        task_name: str = "main",
        rand_state: int = -1,
        num_threads: int | Literal["physical", "logical"] = "physical",
        logger: Any = None,
    ) -> None: ...
    def generate_design_space(self) -> list[Schedule]: ...
    def pre_tuning(
        self,
        max_trials: int,
        num_trials_per_iter: int = 64,
        design_spaces: Sequence[Schedule] | None = None,
        database: _Database | None = None,
        cost_model: _CostModel | None = None,
    ) -> None: ...
    def post_tuning(self) -> None: ...
    def generate_measure_candidates(self) -> list[_MeasureCandidate] | None: ...
    def notify_runner_results(
        self,
        measure_candidates: Sequence[_MeasureCandidate],
        results: Sequence[_RunnerResult],
    ) -> None: ...
