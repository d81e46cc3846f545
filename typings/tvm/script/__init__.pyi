from typing import Any

from tvm.tirx import PrimFunc

tirx: Any

def from_source(program: str, extra_vars: dict[str, Any] | None = None) -> PrimFunc: ...
