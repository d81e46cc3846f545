from collections.abc import Callable
from typing import Any

import torch
from tvm.ir import IRModule
from tvm.relax import BlockBuilder, Expr, Var

class ExportedProgramImporter:
    block_builder: BlockBuilder
    convert_map: dict[str, Callable[[torch.fx.Node], Var]]
    env: dict[torch.fx.Node, Expr]
    def retrieve_args(self, node: torch.fx.Node) -> Any: ...
    def create_convert_map(self) -> dict[str, Callable[[torch.fx.Node], Var]]: ...
    def from_exported_program(
        self,
        exported_program: torch.export.ExportedProgram,
        keep_params_as_input: bool,
        unwrap_unit_return_tuple: bool,
        no_bind_return_tuple: bool,
        custom_convert_map: dict[str, Callable[..., Any]] | None,
    ) -> IRModule: ...
    def _index_put(self, node: torch.fx.Node) -> Var: ...
    def _index_tensor(self, node: torch.fx.Node) -> Var: ...
    def _translate_fx_graph(
        self,
        graph_module: Any,
        nodes: Any,
        inputs_vars: Any,
        custom_ops: set[str] | None = None,
    ) -> Any: ...
    @staticmethod
    def _flatten_output_args(output_args: Any) -> tuple[Expr, ...]: ...
    def _check_unsupported_func_type(self, nodes: Any) -> None: ...
    def _scatter(self, node: torch.fx.Node) -> Var: ...
