from collections.abc import Sequence

from tvm.runtime import Object
from tvm.s_tir import Schedule
from tvm.s_tir.meta_schedule.arg_info import ArgInfo

class MeasureCandidate(Object):
    sch: Schedule
    args_info: Sequence[ArgInfo]
    def __init__(self, sch: Schedule, args_info: Sequence[ArgInfo]) -> None: ...

class SearchStrategy(Object): ...

class EvolutionarySearch(SearchStrategy):
    def __init__(
        self,
        *,
        population_size: int = 512,
        init_measured_ratio: float = 0.2,
        init_min_unmeasured: int = 50,
        max_fail_count: int = 5,
        genetic_num_iters: int = 4,
        genetic_mutate_prob: float = 0.85,
        genetic_max_fail_count: int = 10,
        eps_greedy: float = 0.05,
    ) -> None: ...
