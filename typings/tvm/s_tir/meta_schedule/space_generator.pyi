from collections.abc import Sequence
from typing import Any

from tvm.runtime import Object
from tvm.s_tir.meta_schedule.postproc import Postproc

class SpaceGenerator(Object):
    sch_rules: Sequence[Any] | None
    postprocs: Sequence[Postproc]  # None until a context has been given its target
