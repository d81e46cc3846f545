from tvm.runtime import Object
from tvm.s_tir import Schedule

class Postproc(Object):
    def apply(self, sch: Schedule) -> bool: ...
