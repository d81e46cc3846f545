"""ONNX's backend interface: `prepare`, `run_model` and `supports_device` on compiled models.

ONNX's own test runner drives tvmscope through it:

    onnx.backend.test.BackendTest(tvmscope.onnx_backend, __name__)

A graph without fixed shapes is compiled at its first run, once for every set of shapes, and of
values of inputs that decide on shapes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from onnx.backend.base import Backend, BackendRep, Device, DeviceType, namedtupledict

from tvmscope.core.options import CompileOptions
from tvmscope.errors import UsageError
from tvmscope.messages import msg

if TYPE_CHECKING:
    import onnx

    from tvmscope.compiler.in_memory import Run

Array = np.ndarray[Any, Any]


class TvmscopeRep(BackendRep):
    """A model that is ready to run."""

    def __init__(self, model: onnx.ModelProto, options: CompileOptions) -> None:
        held = {tensor.name for tensor in model.graph.initializer}
        self.model = model
        self.names = [value.name for value in model.graph.input if value.name not in held]
        self.outputs = [value.name for value in model.graph.output]
        self._options = options
        self._built: dict[Any, Run] = {}

    def run(self, inputs: Any, **kwargs: Any) -> tuple[Any, ...]:
        """Return the outputs for inputs by position or by name; the first call compiles."""
        arrays = self._arrays(inputs)
        key = self._key(arrays)
        if key not in self._built:
            self._built[key] = self._compile(arrays)
        results = self._built[key]([arrays[name] for name in self.names])
        made: tuple[Any, ...] = namedtupledict("Outputs", self.outputs)(*results)
        return made

    def _arrays(self, inputs: Any) -> dict[str, Array]:
        if not isinstance(inputs, dict):
            values = inputs if isinstance(inputs, list | tuple) else [inputs]
            inputs = dict(zip(self.names, values, strict=False))
        for name in self.names:
            if not isinstance(inputs.get(name), np.ndarray | np.generic | int | float):
                raise UsageError(msg("input '{name}' must be a numpy array", name=name))
        return {name: np.asarray(inputs[name]) for name in self.names}

    def _key(self, arrays: dict[str, Array]) -> Any:
        from tvmscope.compiler.frontends.onnx.specialise import deciding_inputs

        fixed = deciding_inputs(self.model.graph, arrays)
        return (
            tuple((array.shape, str(array.dtype)) for array in arrays.values()),
            tuple((name, value.tobytes()) for name, value in fixed.items()),
        )

    def _compile(self, arrays: dict[str, Array]) -> Run:
        from tvmscope.runtime import tvm_compat

        tvm_compat.import_tvm(torch=False)
        import onnx

        from tvmscope.compiler import in_memory
        from tvmscope.compiler.frontends.onnx.importer import translate

        model = onnx.ModelProto()
        model.CopyFrom(self.model)  # importing writes names and sizes into it
        name = self.model.graph.name or "model"
        imported = translate(model, arrays, name, fallback=self._options.fallback)
        return in_memory.compile_here(imported, self._options)


class TvmscopeBackend(Backend):
    """Compiles with the default options; `options` of `prepare` are fields of `CompileOptions`."""

    @classmethod
    def supports_device(cls, device: str) -> bool:
        """Models run on the CPU."""
        return bool(Device(device).type == DeviceType.CPU)

    @classmethod
    def prepare(cls, model: onnx.ModelProto, device: str = "CPU", **kwargs: Any) -> TvmscopeRep:
        """Check the model; it is compiled when its shapes are known."""
        if not cls.supports_device(device):
            raise UsageError(msg("device {device} is not supported; use CPU", device=device))
        return TvmscopeRep(model, CompileOptions(**kwargs))

    @classmethod
    def run_model(
        cls, model: onnx.ModelProto, inputs: Any, device: str = "CPU", **kwargs: Any
    ) -> tuple[Any, ...]:
        """Prepare and run."""
        return cls.prepare(model, device, **kwargs).run(inputs)


prepare = TvmscopeBackend.prepare
run_model = TvmscopeBackend.run_model
supports_device = TvmscopeBackend.supports_device
