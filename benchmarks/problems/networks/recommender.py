"""Embeddings, their pairwise products and an MLP."""

import torch
from torch import nn


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.tables = nn.ModuleList(nn.Embedding(50, 16) for _ in range(3))
        self.dense = nn.Sequential(nn.Linear(8, 16), nn.ReLU())
        self.top = nn.Sequential(nn.Linear(16 + 6, 32), nn.ReLU(), nn.Linear(32, 1))

    def forward(self, dense: torch.Tensor, sparse: torch.Tensor) -> torch.Tensor:
        bottom = self.dense(dense)
        rows = torch.stack([bottom, *(t(sparse[:, i]) for i, t in enumerate(self.tables))], dim=1)
        products = rows @ rows.transpose(1, 2)
        first, second = torch.triu_indices(4, 4, offset=1)
        return torch.sigmoid(self.top(torch.cat((bottom, products[:, first, second]), dim=1)))


def get_inputs() -> list[torch.Tensor]:
    return [torch.randn(16, 8), torch.randint(0, 50, (16, 3))]
