"""Darknet's [yolo] layer: decodes a head's numbers to boxes, relative to the input's size."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor, nn

from tvmscope.messages import msg
from tvmscope.models.darknet.cfg import Section, anchors

_Constants = tuple[tuple[Tensor, Tensor], Tensor]
"""Factor and corners of the cells, and the anchors relative to the input."""


class Yolo(nn.Module):
    """Decodes `B x A(5+C) x H x W` to `B x AHW x (5+C)`: centre, size, objectness, classes.

    Centres and sizes are relative to the input (as in darknet), which keeps all values near 1: one
    tolerance then suits boxes and scores alike.
    """

    def __init__(self, layer: Section, channels: int, form: str) -> None:
        super().__init__()
        (found,) = anchors([layer])
        self.numbers = 5 + layer.whole("classes", 20)
        if channels != len(found.sizes) * self.numbers:
            raise layer.problem(
                msg(
                    "{count} anchors x (5 + {classes} classes) need {wanted} channels, the layer "
                    "before gives {channels}",
                    count=len(found.sizes),
                    classes=self.numbers - 5,
                    wanted=len(found.sizes) * self.numbers,
                    channels=channels,
                )
            )
        self.anchors, self.form = found, form
        self._placed: dict[tuple[object, ...], _Constants] = {}

    def forward(self, x: Tensor, input_size: tuple[int, int]) -> Tensor:
        """Decode; `input_size` is the height and width of the network's input image."""
        if self.form == "raw":
            return x
        batch, _, height, width = x.shape
        x = x.view(batch, -1, self.numbers, height, width).permute(0, 1, 3, 4, 2)
        decode = self._assign if self.form == "scatter" else self._concatenate
        boxes = decode(x, *self._constants(x, (height, width), input_size))
        return boxes.reshape(batch, -1, self.numbers)

    def _constants(
        self, x: Tensor, grid: tuple[int, int], input_size: tuple[int, int]
    ) -> _Constants:
        """Return cells and anchors, on the device and in the precision of `x`.

        Copies for a GPU are kept, since a CUDA graph cannot capture a copy from the host. They are
        no buffers: a model's digest must not depend on earlier input sizes.
        """
        if x.device.type == "cpu" and x.dtype == torch.float32:
            return self._cells(*grid), self._shares(input_size)
        key = (*grid, *input_size, x.device, x.dtype)
        if key not in self._placed:
            factor, corners = self._cells(*grid)
            shares = self._shares(input_size)
            self._placed[key] = (factor.to(x), corners.to(x)), shares.to(x)
        return self._placed[key]

    def _cells(self, height: int, width: int) -> tuple[Tensor, Tensor]:
        """Return factor and corner: for the sigmoid s of a centre, s * factor + corner is its
        position relative to the input.

        They are made with numpy, so that an exported graph has the result, not the arithmetic.
        """
        grid, reach = np.array([width, height]), self.anchors.scale_xy
        corners = np.stack(np.meshgrid(np.arange(width), np.arange(height)), -1)
        return _constant(reach / grid), _constant((corners - (reach - 1) / 2) / grid)

    def _shares(self, input_size: tuple[int, int]) -> Tensor:
        """Return the anchors relative to the input, one row for each."""
        shares = np.array(self.anchors.sizes) / np.array(input_size[::-1])
        return _constant(shares[:, None, None, :])

    def _concatenate(self, x: Tensor, cells: tuple[Tensor, Tensor], shares: Tensor) -> Tensor:
        factor, corners = cells
        centres = x[..., :2].sigmoid() * factor + corners
        return torch.cat((centres, x[..., 2:4].exp() * shares, x[..., 4:].sigmoid()), -1)

    def _assign(self, x: Tensor, cells: tuple[Tensor, Tensor], shares: Tensor) -> Tensor:
        """Do the same by assignment into slices, like many published models."""
        factor, corners = cells
        y = x.sigmoid()
        y[..., 0:2] = y[..., 0:2] * factor + corners
        y[..., 2:4] = x[..., 2:4].exp() * shares
        return y


def _constant(values: np.ndarray) -> Tensor:
    return torch.from_numpy(values.astype(np.float32))
