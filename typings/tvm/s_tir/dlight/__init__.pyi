from tvm.ir.transform import Pass
from tvm.s_tir import Schedule
from tvm.s_tir.dlight import analysis as analysis
from tvm.s_tir.dlight import gpu as gpu
from tvm.target import Target
from tvm.tirx import PrimFunc

class ScheduleRule:
    def apply(
        self, func: PrimFunc, target: Target, tunable: bool
    ) -> Schedule | list[Schedule] | None: ...

class ApplyDefaultSchedule(Pass):
    def __init__(self, *rules: ScheduleRule) -> None: ...
