"""Groups of rows with equal keys and the sums of their numbers: what ``headrace_accelerators`` offers as ``group_sums``."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from headrace_turbo.library import library

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Groups = tuple[NDArray[np.uint32], Sequence[NDArray[np.int64]]]

_FAILED = ctypes.c_size_t(-1).value


def faster_group_sums() -> Callable[[Sequence[pl.Series], Sequence[pl.Series | None]], Groups | None] | None:
    """Return the function of the kernel; None where there is no kernel, or an older one without it.

    It takes keys of String and Int64 and numbers of Int64, all of one length and without NULL.
    """
    kernel = library()
    if kernel is None or not hasattr(kernel, "headrace_turbo_group"):
        return None
    group, add = kernel.headrace_turbo_group, kernel.headrace_turbo_sum

    def group_sums(keys: Sequence[pl.Series], numbers: Sequence[pl.Series | None]) -> Groups | None:
        rows = len(keys[0])
        if any(each is not None and len(each) != rows for each in (*keys, *numbers)):
            raise ValueError("columns of keys and numbers are not of one length")
        held = [_Key(key) for key in keys]
        told = np.array([number for key in held for number in key.description], dtype=np.uint64)
        firsts, groups = np.empty(rows, dtype=np.uint32), np.empty(rows, dtype=np.uint32)
        count = group(told.ctypes.data, len(held), rows, firsts.ctypes.data, groups.ctypes.data)
        if count == _FAILED:
            return None
        columns = [None if each is None else np.ascontiguousarray(each.to_numpy()) for each in numbers]
        places = np.array([0 if each is None else each.ctypes.data for each in columns], dtype=np.uint64)
        made = np.empty((len(columns), count), dtype=np.int64)
        if not add(groups.ctypes.data, rows, count, places.ctypes.data, len(columns), made.ctypes.data):
            return None
        return firsts[:count], list(made)

    return group_sums


class _Key:
    """A column of keys as the kernel takes it, for as long as it is in use."""

    def __init__(self, key: pl.Series) -> None:
        if key.dtype != pl.String:
            self._values = np.ascontiguousarray(key.to_numpy())
            self.description = [self._values.ctypes.data, 0]
            return
        # Views of polars are those of Arrow: nothing is copied.
        array = key.rechunk().to_arrow(compat_level=pl.CompatLevel.newest())
        _, views, *self._buffers = array.buffers()
        self._views = views
        self.description = [views.address + array.offset * _VIEW_BYTES, 1 + len(self._buffers)]
        for buffer in self._buffers:
            self.description += [0, 0] if buffer is None else [buffer.address, buffer.size]


_VIEW_BYTES = 16
