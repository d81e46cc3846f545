from tvm.ir.transform import Pass

class DispatchSampling(Pass):
    def __init__(self) -> None: ...

class DispatchSortScan(Pass):
    def __init__(self) -> None: ...
