from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
from tvm.runtime import Object
from tvm.s_tir.meta_schedule import TuneContext
from tvm.s_tir.meta_schedule.runner import RunnerResult
from tvm.s_tir.meta_schedule.search_strategy import MeasureCandidate

class CostModel(Object):
    def update(
        self,
        context: TuneContext,
        candidates: Sequence[MeasureCandidate],
        results: Sequence[RunnerResult],
    ) -> None: ...
    def predict(
        self, context: TuneContext, candidates: Sequence[MeasureCandidate]
    ) -> np.ndarray[Any, Any]: ...
    @staticmethod
    def create(
        kind: Literal["xgb", "mlp", "random", "none"], *args: Any, **kwargs: Any
    ) -> CostModel: ...
