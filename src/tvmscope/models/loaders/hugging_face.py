"""Loads a Hugging Face model, from a local folder or by name, and makes inputs for it."""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import Any

import torch

from tvmscope.core.model import TensorSpec
from tvmscope.core.options import LoadOptions
from tvmscope.errors import ImportModelError, one_line
from tvmscope.messages import msg
from tvmscope.models.api import TorchModel, random_note, require
from tvmscope.models.download import reachable
from tvmscope.models.inputs import seeded
from tvmscope.models.loaders.random_weights import fill_zero_weights
from tvmscope.models.resolve import Source
from tvmscope.runtime.torchvision_operators import make_importable

_LENGTH = 128
_WEIGHT_FILES = ("*.safetensors", "*.bin", "*.safetensors.index.json", "*.bin.index.json")


def load(source: Source, options: LoadOptions) -> TorchModel:
    """Load the bare model (AutoModel); a folder with only a config gets seeded random weights.

    Code that comes with a model is never run.
    """
    make_importable()
    require("transformers")
    from huggingface_hub.constants import ENDPOINT
    from transformers import AutoConfig, AutoModel
    from transformers.utils import logging

    logging.disable_progress_bar()
    local = Path(source.ref).is_dir()
    # without a network the hub's client retries for half a minute; its cache may still suffice
    only_local = local or options.offline or not reachable(ENDPOINT)
    try:
        config = AutoConfig.from_pretrained(source.ref, local_files_only=only_local)
        config.use_cache = False  # a cache is state, not an output to compare
        if local and not any(any(Path(source.ref).glob(p)) for p in _WEIGHT_FILES):
            return _random(AutoModel, config, options)
        module = AutoModel.from_pretrained(
            source.ref, config=config, dtype=torch.float32, local_files_only=only_local
        )
    except (OSError, ValueError, ImportError) as e:
        where = msg("the folder") if local else msg("the name, the network and any access rights")
        raise ImportModelError(
            msg(
                "'{source}' cannot be loaded ({reason}); check {where}, or download it and "
                "give hf:FOLDER",
                source=source.text,
                reason=one_line(e),
                where=where,
            )
        ) from e
    kwargs = example_inputs(module, options.seed)
    return TorchModel(module=module.eval(), kwargs=kwargs, weights="pretrained")


def _random(auto: Any, config: Any, options: LoadOptions) -> TorchModel:
    torch.manual_seed(options.seed)
    module = auto.from_config(config, dtype=torch.float32).eval()
    fill_zero_weights(module, options.seed)
    return TorchModel(
        module=module,
        kwargs=example_inputs(module, options.seed),
        weights="random",
        notes=(random_note(msg("the folder holds no weights")),),
    )


def example_inputs(module: Any, seed: int) -> dict[str, torch.Tensor]:
    """Return inputs by name for a text or image model, from its config."""
    config, main = module.config, module.main_input_name
    takes = inspect.signature(module.forward).parameters
    if main == "pixel_values":
        size = getattr(config, "image_size", 224)
        sides = tuple(size) if isinstance(size, list | tuple) else (size, size)
        shape = (1, getattr(config, "num_channels", 3), *sides)
        return {main: torch.from_numpy(seeded(TensorSpec(main, shape, "float32"), seed))}
    if main != "input_ids":
        raise ImportModelError(
            msg(
                "{name} takes '{main}', for which no inputs can be generated; write a function "
                "that returns (module, inputs) and give file.py:function",
                name=type(module).__name__,
                main=main,
            )
        )
    text = config.get_text_config()
    length = min(_LENGTH, getattr(text, "max_position_embeddings", None) or _LENGTH)
    names = ["input_ids", *(["attention_mask"] if "attention_mask" in takes else [])]
    if config.is_encoder_decoder and "decoder_input_ids" in takes:
        names.append("decoder_input_ids")
    specs = [TensorSpec(name, (1, length), "int64") for name in names]
    return {s.name: torch.from_numpy(seeded(s, seed, text.vocab_size)) for s in specs}
