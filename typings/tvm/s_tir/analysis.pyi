from collections.abc import Mapping, Sequence

from tvm.ir import TensorRegion
from tvm.s_tir import SBlock
from tvm.tirx import Buffer

def get_sblock_read_write_region(
    block: SBlock, buffer_var_map: Mapping[Buffer, Buffer]
) -> tuple[Sequence[TensorRegion], Sequence[TensorRegion]]: ...
