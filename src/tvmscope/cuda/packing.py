"""Packs weights in a kernel's layout, once, when a model is compiled."""

from __future__ import annotations

from typing import Any

import numpy as np

from tvmscope.cuda.config import Config
from tvmscope.cuda.units import Conv2d, Unit

Array = np.ndarray[Any, np.dtype[Any]]


def pack_weight(unit: Unit, config: Config, weight: Array) -> Array:
    """Return the unit's weight ([oc, r, s, c / groups] or [k, n]) in the layout of `config`."""
    matrix = weight.reshape(weight.shape[0], -1)  # convolutions: [oc, k]
    n_by_k = matrix if isinstance(unit, Conv2d) else matrix.T
    return np.ascontiguousarray(n_by_k if config.layout == "nk" else n_by_k.T)
