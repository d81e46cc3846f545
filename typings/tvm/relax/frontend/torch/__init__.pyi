from collections.abc import Callable
from typing import Any

import torch
from tvm.ir import IRModule

def from_exported_program(
    exported_program: torch.export.ExportedProgram,
    *,
    keep_params_as_input: bool = False,
    unwrap_unit_return_tuple: bool = False,
    no_bind_return_tuple: bool = False,
    custom_convert_map: dict[str, Callable[..., Any]] | None = None,
    run_ep_decomposition: bool = True,
) -> IRModule: ...
