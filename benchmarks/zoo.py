"""Which published models compile and verify: torchvision's by name, transformers' in small sizes.

    python benchmarks/zoo.py RESULTS.jsonl [--write] [NAME ...]

Each model is exported, compiled in this process and compared with PyTorch; a line per model is
appended to RESULTS.jsonl, and models that have a line are left out. `--write` makes the section of
docs/coverage.md from all lines. Without names: all of torchvision's models for classification,
segmentation and detection, and the transformers listed here. Weights are random.
"""

from __future__ import annotations

import argparse
import json
import time
import warnings
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import torch

from tvmscope.benchmark.differences import Array
from tvmscope.benchmark.noise import Noise
from tvmscope.benchmark.verify import mismatch
from tvmscope.compiler import in_memory
from tvmscope.compiler.frontends.torch import importer
from tvmscope.core.options import CompileOptions, LoadOptions
from tvmscope.messages import render
from tvmscope.models import flat
from tvmscope.models.loaders.load import load_torch
from tvmscope.models.prepare import prepare
from tvmscope.models.resolve import classify
from tvmscope.models.sensitivity import estimate
from tvmscope.runtime.torchvision_operators import make_importable

PAGE = Path(__file__).parent.parent / "docs" / "coverage.md"
HEADING = "# Published models"
TOLERANCE = 1e-4
_MOST_NAMED = 6
_SMALL = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "vocab_size": 99}
_WIDE = {**_SMALL, "intermediate_size": 64}
_GPT = {"n_embd": 32, "n_layer": 2, "n_head": 2, "vocab_size": 99, "n_positions": 64}
TRANSFORMERS: dict[str, tuple[str, dict[str, Any], str]] = {
    "albert": ("Albert", {**_WIDE, "embedding_size": 16}, "text"),
    "bert": ("Bert", _WIDE, "text"),
    "bloom": ("Bloom", {"hidden_size": 32, "n_layer": 2, "n_head": 2, "vocab_size": 99}, "text"),
    "camembert": ("Camembert", {**_WIDE, "max_position_embeddings": 64}, "text"),
    "convnext": ("ConvNext", {"hidden_sizes": [8, 16, 24, 32], "depths": [1, 1, 1, 1]}, "image"),
    "deberta-v2": ("DebertaV2", _WIDE, "text"),
    "deit": ("DeiT", {**_WIDE, "image_size": 32, "patch_size": 8}, "image"),
    "distilbert": (
        "DistilBert",
        {"dim": 32, "n_layers": 2, "n_heads": 2, "hidden_dim": 64, "vocab_size": 99},
        "text",
    ),
    "electra": ("Electra", {**_WIDE, "embedding_size": 16}, "text"),
    "gemma": ("Gemma", {**_WIDE, "num_key_value_heads": 1, "head_dim": 16}, "text"),
    "gpt2": ("GPT2", _GPT, "text"),
    "gpt-neox": ("GPTNeoX", _WIDE, "text"),
    "llama": ("Llama", {**_WIDE, "num_key_value_heads": 1}, "text"),
    "mistral": ("Mistral", {**_WIDE, "num_key_value_heads": 1, "head_dim": 16}, "text"),
    "mpnet": ("MPNet", _WIDE, "text"),
    "opt": (
        "OPT",
        {**_SMALL, "ffn_dim": 64, "word_embed_proj_dim": 32, "max_position_embeddings": 64},
        "text",
    ),
    "phi": ("Phi", _WIDE, "text"),
    "qwen2": ("Qwen2", {**_WIDE, "num_key_value_heads": 1}, "text"),
    "roberta": ("Roberta", {**_WIDE, "max_position_embeddings": 64}, "text"),
    "segformer": (
        "Segformer",
        {
            "hidden_sizes": [8, 16, 24, 32],
            "depths": [1, 1, 1, 1],
            "num_attention_heads": [1, 2, 2, 2],
        },
        "image",
    ),
    "squeezebert": ("SqueezeBert", {**_WIDE, "embedding_size": 32}, "text"),
    "vit": ("ViT", {**_WIDE, "image_size": 32, "patch_size": 8}, "image"),
}


def names() -> Iterator[str]:
    """All models, small ones first."""
    make_importable()
    from torchvision import models
    from torchvision.models import detection, segmentation

    yield from (f"hf:{name}" for name in TRANSFORMERS)
    yield from (f"torchvision:{name}" for name in models.list_models(module=models))
    for kind in (segmentation, detection):
        yield from (f"torchvision:{name}" for name in models.list_models(module=kind))


def load(name: str) -> tuple[torch.nn.Module, tuple[Any, ...], dict[str, Any]]:
    """A module with inputs."""
    family, _, rest = name.partition(":")
    if family == "torchvision":
        loaded = load_torch(classify(name), LoadOptions(offline=True))
        return loaded.module, loaded.args, dict(loaded.kwargs)
    make_importable()  # transformers imports torchvision where it is installed
    import transformers

    kind, settings, task = TRANSFORMERS[rest]
    torch.manual_seed(0)
    config = getattr(transformers, f"{kind}Config")(**settings, use_cache=False)
    module = getattr(transformers, f"{kind}Model")(config).eval()
    if task == "image":
        return module, (torch.randn(1, 3, 32, 32),), {}
    return module, (torch.randint(3, 99, (1, 16)),), {}


def verified(name: str) -> dict[str, Any]:
    """A line of results."""
    start = time.process_time()
    line: dict[str, Any] = {"name": name}
    try:
        module, args, kwargs = load(name)
        module.requires_grad_(False)
        call = flat.flat_call(module, args, kwargs)
        wanted = flat.flatten(call.module(*call.tensors))
        exportable = flat.flat_outputs(call)
        with torch.no_grad():
            program = torch.export.export(exportable.module, call.tensors, strict=False)
        imported = importer.translate(importer.decomposed(program), name, fallback=True)
        line["fallback"] = [op for part, _ in imported.fallbacks for op in part.operators]
        line["parts"] = len(imported.fallbacks)
        run = in_memory.compile_here(imported, CompileOptions())
        found = run([flat.to_numpy(tensor) for tensor in call.tensors])
        wrong = {}
        for ours, (output, theirs) in zip(found, wanted.items(), strict=True):
            problem = mismatch(ours, flat.to_numpy(theirs), TOLERANCE)
            if problem is not None:
                line["problem"] = f"{output}: {render(problem)}"
                wrong[output] = ours, flat.to_numpy(theirs)
        if wrong and name.startswith("torchvision:") and _within_noise(name, wrong):
            line["noisy"] = line.pop("problem")
    except Exception as e:  # any part of a model may fail: that is the result
        line["problem"] = f"{type(e).__name__}: {' '.join(str(e).split())[:200]}"
    return line | {"cpu_s": round(time.process_time() - start, 1)}


def _within_noise(name: str, wrong: Mapping[str, tuple[Array, Array]]) -> bool:
    """Whether PyTorch's own rounding changes these outputs as much."""
    with TemporaryDirectory() as folder:
        prepare(name, folder, LoadOptions(offline=True, need_onnx=False))
        estimate(folder, f"{folder}/noise.npz", float(np.finfo(np.float32).eps))
        noise = Noise.read(Path(folder) / "noise.npz")
        return all(
            ours.shape == theirs.shape and noise.covers(output, ours, theirs)
            for output, (ours, theirs) in wrong.items()
        )


def _result(line: Mapping[str, Any]) -> str:
    if "noisy" in line:
        return f"within its own rounding noise ({line['noisy']})"
    return str(line.get("problem", "verified"))


def _named(operators: Sequence[str], parts: int) -> str:
    """A detection model's parts in PyTorch have hundreds: all that selects boxes."""
    if len(operators) > _MOST_NAMED and parts > 1:
        return f"{len(operators)} in {parts} parts, from {operators[0]} on"
    if len(operators) > _MOST_NAMED:
        return f"{len(operators)}, from {operators[0]} on"
    return ", ".join(operators) or "none"


def section(lines: list[dict[str, Any]]) -> str:
    """Of docs/coverage.md."""
    good = [line for line in lines if not line.keys() & {"problem", "noisy"}]
    noisy = [line for line in lines if "noisy" in line]
    rows = [
        f"| `{line['name']}` | {_result(line)} | "
        f"{_named(line.get('fallback', ()), line.get('parts', 1))} |"
        for line in lines
    ]
    return "\n".join(
        [
            HEADING,
            "",
            "`benchmarks/zoo.py` exports, compiles and verifies models with random weights",
            f"against PyTorch (max|a-b| / max|ref| at most {TOLERANCE:g}). Tried: {len(lines)},",
            f"verified: {len(good)}, within their own rounding noise: {len(noisy)}.",
            "`hf:` names architectures of transformers in small sizes.",
            "",
            "| model | result | operators in PyTorch |",
            "|---|---|---|",
            *rows,
            "",
        ]
    )


def main() -> None:
    """Verify what has no line yet."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("results", type=Path)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--write", action="store_true")
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    text = given.results.read_text() if given.results.exists() else ""
    lines = [json.loads(line) for line in text.splitlines()]
    known = {line["name"] for line in lines}
    for name in given.names or ([] if given.write else list(names())):
        if name in known:
            continue
        line = verified(name)
        lines.append(line)
        print(json.dumps(line), flush=True)
        with given.results.open("a") as stream:
            stream.write(json.dumps(line) + "\n")
    if given.write:
        before = PAGE.read_text().partition(f"\n{HEADING}")[0].rstrip("\n")
        PAGE.write_text(f"{before}\n\n{section(lines)}")


if __name__ == "__main__":
    main()
