"""Which rows of a batch to send when several concern one document."""

from __future__ import annotations

import numpy as np
import polars as pl
from numpy.typing import NDArray


def chosen(identities: pl.Series | None, count: int, *, first: bool) -> NDArray[np.bool_]:
    """Return which rows to send: of those that concern the same document only the first, or the last."""
    if identities is None:
        return np.ones(count, dtype=np.bool_)
    mask = identities.is_first_distinct() if first else identities.is_last_distinct()
    return mask.to_numpy()
