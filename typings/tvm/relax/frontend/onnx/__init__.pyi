import onnx
from tvm.ir import IRModule

def from_onnx(
    model: onnx.ModelProto,
    shape_dict: dict[str, list[int]] | None = None,
    dtype_dict: str | dict[str, str] | None = "float32",
    opset: int | None = None,
    keep_params_in_input: bool = False,
    sanitize_input_names: bool = True,
) -> IRModule: ...
