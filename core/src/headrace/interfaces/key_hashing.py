"""The hash of keys as every caller takes it: in compiled code where a plug-in offers that."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import TYPE_CHECKING

from headrace.flow import key_hashes as plain
from headrace.interfaces.accelerators import accelerated

if TYPE_CHECKING:
    import numpy as np
    import polars as pl
    from numpy.typing import NDArray


def key_hashes(frame: pl.DataFrame, keys: Sequence[str]) -> NDArray[np.uint64]:
    """Return one 64-bit hash per row over the key columns, the same in every process and version: see ``flow.key_hashes``.

    Shuffles, shards and state call it for their keys. Raises PlanError for a column of a type that cannot be a key.
    """
    return plain.key_hashes(frame, keys, _fastest_sums())


@functools.cache
def _fastest_sums() -> plain.TextSums:
    return accelerated("text_sums", plain.text_sums)
