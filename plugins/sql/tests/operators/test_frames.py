"""What can be registered as a table."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import duckdb
import headrace as hr
import polars as pl
import pytest
from headrace.foundation.errors import OptionError

FRAME = pl.DataFrame({"a": [1, 2], "s": ["x", None]})


@pytest.mark.parametrize("kind", ["polars", "lazy", "arrow", "duckdb", "parquet", "pandas"])
def test_rows_of_many_kinds_are_read(kind: str, tmp_path: Path) -> None:
    FRAME.write_parquet(tmp_path / "t.parquet")
    made: dict[str, Any] = {
        "polars": lambda: FRAME,
        "lazy": lambda: FRAME.lazy(),
        "arrow": lambda: FRAME.to_arrow(),
        "duckdb": lambda: duckdb.sql("SELECT * FROM (VALUES (1::BIGINT, 'x'), (2, NULL)) AS t(a, s)"),
        "parquet": lambda: tmp_path / "t.parquet",
        "pandas": lambda: pytest.importorskip("pandas") and FRAME.to_pandas(),
    }
    hr.register("t", made[kind]())
    assert sorted(hr.sql("SELECT a, s FROM t").collect().rows()) == [(1, "x"), (2, None)]


def test_what_is_no_frame_is_refused() -> None:
    with pytest.raises(OptionError, match="list is not a frame"):
        hr.register("t", [1, 2])
