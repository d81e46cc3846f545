"""Models as ONNX files that are small enough to carry: their weights are drawn anew over there.

    python scripts/cpu_models.py pack FOLDER [MODEL ...]   where the models can be exported
    python scripts/cpu_models.py grow FOLDER               where they are measured; needs numpy only

Speed does not depend on the values of weights, as long as they are ordinary numbers: each tensor
keeps its mean and its spread. `pack` writes MODEL.onnx, whose weights lie in MODEL.weights, and
MODEL.json, which `grow` makes the weights from.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

MODELS = ("resnet50", "efficientnet_lite0", "mobilenet_v2", "minilm", "vit_b_16", "yolov4_tiny")
_LEAST_BYTES = 4096
"""Smaller tensors stay in the model: many of them are no weights."""


def pack(folder: Path, models: tuple[str, ...]) -> None:
    """Export models, and leave their weights out."""
    folder.mkdir(parents=True, exist_ok=True)
    for model in models:
        with TemporaryDirectory() as scratch:
            file = Path(scratch) / "model.onnx"
            words = ["-m", "tvmscope", "export", model, "--output", str(file)]
            subprocess.run([sys.executable, *words], check=True)
            _strip(file, folder, model)
        print(model, f"{(folder / f'{model}.onnx').stat().st_size / 1024:.0f} KiB", flush=True)


def _strip(file: Path, folder: Path, name: str) -> None:
    import onnx
    from onnx import external_data_helper, numpy_helper

    graph = onnx.load(str(file))
    tensors: list[dict[str, float]] = []
    offset = 0
    for tensor in external_data_helper._get_all_tensors(graph):
        if tensor.data_type != onnx.TensorProto.FLOAT:
            continue
        values = numpy_helper.to_array(tensor)
        if values.nbytes < _LEAST_BYTES:
            continue
        mean, spread = float(values.mean()), float(values.std())
        tensors.append({"count": values.size, "mean": mean, "spread": spread})
        tensor.ClearField("float_data")
        tensor.raw_data = b"0"  # what the next line wants to see
        external_data_helper.set_external_data(
            tensor, f"{name}.weights", offset=offset, length=values.nbytes
        )
        tensor.ClearField("raw_data")
        offset += values.nbytes
    (folder / f"{name}.onnx").write_bytes(graph.SerializeToString())
    (folder / f"{name}.json").write_text(json.dumps(tensors))


def grow(folder: Path) -> None:
    """Draw the weights of every model in a folder."""
    for file in sorted(folder.glob("*.json")):
        random = np.random.default_rng(0)
        with file.with_suffix(".weights").open("wb") as out:
            for tensor in json.loads(file.read_text()):
                values = random.standard_normal(int(tensor["count"]), dtype=np.float32)
                out.write((values * tensor["spread"] + tensor["mean"]).astype("<f4").tobytes())


if __name__ == "__main__":
    verb, where, *names = sys.argv[1:]
    if verb == "pack":
        pack(Path(where), tuple(names) or MODELS)
    else:
        grow(Path(where))
