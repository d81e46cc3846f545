from collections.abc import Mapping, Sequence
from typing import Any

from tvm.ir import IRModule
from tvm.ir import transform as _transform
from tvm.relax import ExecBuilder
from tvm.runtime import Executable, Module
from tvm.target import Target

def _vmcodegen(builder: ExecBuilder, mod: IRModule, exec_mode: str = "bytecode") -> IRModule: ...
def _vmlink(
    builder: ExecBuilder,
    target: str | Target | None,
    tir_mod: IRModule | None = None,
    tir_pipeline: str | _transform.Pass | None = "default",
    ext_libs: Sequence[Module] | None = None,
    params: Mapping[str, Any] | None = None,
    *,
    system_lib: bool | None = None,
) -> Executable: ...
