"""Examples that rsqldb documents, from their own texts: only where the tables lie is changed.

The texts and their expected results are not part of this project. ``HEADRACE_RSQLDB`` names a checkout of github.com/alibaba/rsqldb
(branch oldVersion), ``HEADRACE_RSQLDB_EXPECTED`` a directory with ``r_NAME.jsonl.xz`` and ``r_NAME.meta.json``.
"""

from __future__ import annotations

import json
import lzma
import os
import re
from decimal import Decimal
from pathlib import Path
from typing import Any

import headrace as hr
import pytest

from tests.sql import golden

CHECKOUT, EXPECTED = os.environ.get("HEADRACE_RSQLDB"), os.environ.get("HEADRACE_RSQLDB_EXPECTED")
EXAMPLES = {
    "condition": "function/condition.sql",
    "function": "function/function.sql",
    "rocketmq": "rocketmq.sql",
    "innerJoin": "join/innerJoin.sql",
    "dimJoin": "join/dimJoin/dimJoinWithMysql.sql",
    "tumble": "window/tumble_eventTime.sql",
    "session": "window/session_eventTime.sql",
    "emit": "emit/emit.sql",
}

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not CHECKOUT or not EXPECTED, reason="HEADRACE_RSQLDB and HEADRACE_RSQLDB_EXPECTED are not set"),
]


def text_of(name: str, data: Path) -> str:
    """Return the script of an example, whose tables are files."""
    text = Path(str(CHECKOUT), "rsqldb-disk", "client", EXAMPLES[name]).read_text(encoding="utf-8")

    def moved(found: re.Match[str]) -> str:
        if not re.search(r"(?i)type\s*=\s*'(rocketmq|db)'", found[0]):
            return found[0]
        file = data / "blink" / f"{found[1].strip('`')}.ndjson"
        return re.sub(
            r"(?is)\)\s*with\s*\(.*", f") WITH (type = 'file', filePath = '{file}', format = 'json');", found[0]
        )

    return re.sub(r"(?is)create\s+table\s+(\S+)[^;]*;", moved, text)


def check(name: str, data: Path, backend: str, **options: Any) -> None:
    """Run an example and compare its rows with the expected ones."""
    # Its own INSERTs go by the names of columns, Flink's by their places.
    job = hr.sql(text_of(name, data), pipeline=f"r_{name}", dialect="blink", insert_by_name=name == "function")
    frame = job.collect(backend=backend, **options)
    meta = json.loads(Path(str(EXPECTED), f"r_{name}.meta.json").read_text())
    with lzma.open(Path(str(EXPECTED), f"r_{name}.jsonl.xz"), "rt", encoding="utf-8") as lines:
        rows = [json.loads(line, parse_float=Decimal) for line in lines if line.strip()]
    if isinstance(frame, dict):
        frame = frame[meta["sink"]]
    assert golden.differing(rows, frame, meta["columns"]) == ""


@pytest.mark.parametrize("name", EXAMPLES)
def test_an_example_gives_what_flink_gives(name: str, data: Path) -> None:
    check(name, data, "light")


@pytest.mark.parametrize("size", [1, 7, 1000])
@pytest.mark.parametrize("name", EXAMPLES)
def test_batches_change_nothing(name: str, size: int, data: Path) -> None:
    check(name, data, "light", max_batch_records=size)


@pytest.mark.spark
@pytest.mark.timeout(900)
@pytest.mark.parametrize("name", EXAMPLES)
def test_spark_gives_what_flink_gives(name: str, data: Path) -> None:
    check(name, data, "spark")
