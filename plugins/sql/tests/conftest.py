"""Every test begins with nothing defined."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import headrace as hr
import polars as pl
import pytest
from headrace_sql import api


@pytest.fixture(autouse=True)
def nothing_defined() -> Iterator[None]:
    api.forget()
    yield
    api.forget()


@pytest.fixture
def rows_of_two_frames() -> Callable[[str], list[tuple[Any, ...]]]:
    """Return what gives the sorted rows of a query over two small frames, ``a`` and ``b``."""
    hr.register("a", pl.DataFrame({"k": ["x", "y", None], "v": [1, 2, 3], "w": [10, 20, 30]}))
    hr.register("b", pl.DataFrame({"k": ["x", "z", "x"], "v": [1, 5, 6], "n": ["A", "B", "C"]}))
    return lambda text: sorted(hr.sql(text).collect().rows(), key=repr)
