from collections.abc import Sequence

from tvm.runtime import Object

class RunnerResult(Object):
    run_secs: Sequence[float] | None
    error_msg: str | None
    def __init__(self, run_secs: Sequence[float] | None, error_msg: str | None) -> None: ...
