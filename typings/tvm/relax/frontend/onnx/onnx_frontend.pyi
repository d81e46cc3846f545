from typing import Any

import onnx
from tvm.ir import IRModule
from tvm.relax import BlockBuilder, Expr

class onnx_input(list[Any]): ...

class ONNXGraphImporter:
    bb: BlockBuilder
    opset: int
    _nodes: dict[str, Any]
    _inputs: dict[str, Any]
    def __init__(
        self,
        shape_dict: dict[str, list[int]],
        dtype_dict: str | dict[str, str],
        keep_params_in_input: bool = False,
        sanitize: bool = True,
    ) -> None: ...
    def from_onnx(self, graph: onnx.GraphProto, opset: int) -> IRModule: ...
    def _parse_graph_input(self, graph: onnx.GraphProto) -> None: ...
    def _parse_graph_initializers(self, graph: onnx.GraphProto) -> None: ...
    def _convert_operator(
        self, op_name: str, inputs: list[Expr], attrs: dict[str, Any], opset: int
    ) -> Expr: ...

def _get_convert_map() -> dict[str, Any]: ...
