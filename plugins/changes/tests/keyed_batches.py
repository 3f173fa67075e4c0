"""Records with keys, as a source gives them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from headrace.flow.messages import Bodies, RawBatch, ReadPosition


def keyed_batch(records: Sequence[tuple[bytes | None, bytes]]) -> RawBatch:
    """Return a batch of (key, body)."""
    return RawBatch(
        np.arange(len(records)),
        ReadPosition(len(records)),
        bodies=Bodies.of([body for _, body in records]),
        keys=[key for key, _ in records],
    )
