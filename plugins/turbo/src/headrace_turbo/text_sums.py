"""The polynomials of texts for the hash of keys: what ``headrace_accelerators`` offers as ``text_sums``."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np
from headrace.flow.key_hashes import text_sums as plain_text_sums

from headrace_turbo.library import library

if TYPE_CHECKING:
    from numpy.typing import NDArray


def faster_text_sums() -> Callable[[NDArray[np.uint8], NDArray[np.int64]], NDArray[np.uint64]] | None:
    """Return the sums of the kernel; None where there is no kernel, or an older one without them."""
    kernel = library()
    if kernel is None or not hasattr(kernel, "headrace_turbo_text_sums"):
        return None
    write = kernel.headrace_turbo_text_sums

    def text_sums(data: NDArray[np.uint8], offsets: NDArray[np.int64]) -> NDArray[np.uint64]:
        data, offsets = np.ascontiguousarray(data), np.ascontiguousarray(offsets)
        sums = np.empty(max(0, len(offsets) - 1), dtype=np.uint64)
        if write(data.ctypes.data, len(data), offsets.ctypes.data, len(sums), sums.ctypes.data):
            return sums
        return plain_text_sums(data, offsets)  # the places are not in the data: it fails as headrace's own does

    return text_sums
