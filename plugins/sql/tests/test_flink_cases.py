"""Queries with the rows that Flink 2.3 gives for them, over the small tables of ``flink/data``.

``flink/queries.sql`` holds the texts, each behind a line ``-- name: …``; ``flink/rows.json.xz`` the rows, each as JSON. Flink ran in
streaming mode with parallelism 1 and a watermark after every row. To add a case, add its text and its rows.
"""

from __future__ import annotations

import datetime
import json
import lzma
import re
from decimal import Decimal
from pathlib import Path
from typing import Any

import headrace as hr
import pytest

FOLDER = Path(__file__).parent / "flink"
TABLES = (FOLDER / "tables.sql").read_text(encoding="utf-8")


def queries() -> dict[str, str]:
    """Return the texts by their names."""
    parts = re.split(r"^-- name: (\S+)\n", (FOLDER / "queries.sql").read_text(encoding="utf-8"), flags=re.M)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


QUERIES = queries()
ROWS = json.loads(lzma.decompress((FOLDER / "rows.json.xz").read_bytes()))


def plain(value: Any) -> Any:
    """Return a value as it stands in ``rows.json.xz``."""
    if isinstance(value, datetime.datetime):
        return value.strftime("%Y-%m-%d %H:%M:%S.%f")[:-3]
    if isinstance(value, datetime.date | datetime.time | Decimal):
        return str(value)
    if isinstance(value, float):
        return "nan" if value != value else float(f"{value:.9g}")
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, dict):
        return [plain(each) for each in value.values()]
    if isinstance(value, list):
        if value and all(isinstance(each, dict) and set(each) == {"key", "value"} for each in value):
            return sorted((plain(each) for each in value), key=repr)
        return [plain(each) for each in value]
    return value


@pytest.mark.parametrize("name", QUERIES)
def test_a_query_gives_the_rows_that_flink_gives(name: str) -> None:
    text = f"{TABLES}\n{QUERIES[name]}".replace("${DATA}", str(FOLDER / "data"))
    frame = hr.sql(text).collect()
    assert sorted(json.dumps([plain(each) for each in row]) for row in frame.iter_rows()) == ROWS[name]
