"""The published Nexmark queries, from their own texts: only the WITH options of the input and of one output are other ones.

The texts and their expected results are not part of this project. ``HEADRACE_NEXMARK`` names a checkout of github.com/nexmark/nexmark,
``HEADRACE_NEXMARK_DATA`` a directory with ``events.ndjson``, ``side_input.csv`` and ``expected/qN.jsonl.xz`` with ``qN.meta.json``.
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

CHECKOUT, DATA = os.environ.get("HEADRACE_NEXMARK"), os.environ.get("HEADRACE_NEXMARK_DATA")
QUERIES = [
    "q0",
    "q1",
    "q2",
    "q3",
    "q5",
    "q7",
    "q8",
    "q10",
    "q11",
    "q13",
    "q14",
    "q15",
    "q18",
    "q19",
    "q21",
    "q22",
    "cep_q0",
]

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not CHECKOUT or not DATA, reason="HEADRACE_NEXMARK and HEADRACE_NEXMARK_DATA are not set"),
]


@hr.udf(returns="int64", name="count_char")
def count_char(text: str | None, character: str) -> int:
    return 0 if text is None else text.count(character[:1])


def text_of(name: str, output: Path) -> str:
    """Return the script of a query: its tables, views and itself."""
    folder = Path(
        str(CHECKOUT), "nexmark-flink/src/main/resources", "queries-cep" if name.startswith("cep") else "queries"
    )
    events = f"'connector' = 'filesystem', 'path' = '{DATA}/events.ndjson', 'format' = 'json'"
    tables = re.sub(r"(?s)\) WITH \(\s*'connector'.*", f") WITH ({events});", (folder / "ddl_gen.sql").read_text())
    views = (folder / "ddl_views.sql").read_text().replace("${NEXMARK_TABLE}", "datagen")
    query = (folder / f"{name.removeprefix('cep_')}.sql").read_text()
    query = query.replace("file://${FLINK_HOME}/data/side_input.txt", f"{DATA}/side_input.csv")
    query = re.sub(r"file://\$\{NEXMARK_DIR\}[^']*", str(output), query)
    return f"{tables}\n{views}\n{query}"


@pytest.mark.parametrize("name", QUERIES)
def test_a_query_gives_what_flink_gives(name: str, tmp_path: Path) -> None:
    check(name, tmp_path, "light")


@pytest.mark.spark
@pytest.mark.timeout(900)
@pytest.mark.parametrize("name", QUERIES)
def test_spark_gives_what_flink_gives(name: str, tmp_path: Path) -> None:
    check(name, tmp_path, "spark")


@pytest.mark.timeout(900)
@pytest.mark.parametrize("size", [1000, 10_000])
@pytest.mark.parametrize("name", QUERIES)
def test_batches_change_nothing(name: str, size: int, tmp_path: Path) -> None:
    check(name, tmp_path, "light", max_batch_records=size)


def check(name: str, directory: Path, backend: str, **options: Any) -> None:
    """Run a query and compare its rows with the expected ones."""
    functions: dict[str, Any] = {"com.github.nexmark.flink.udf.CountChar": count_char}
    job = hr.sql(text_of(name, directory), functions=functions, pipeline=name)
    frame = job.collect(backend=backend, **options)
    expected = Path(str(DATA), "expected")
    meta = json.loads((expected / f"{name}.meta.json").read_text())
    with lzma.open(expected / f"{name}.jsonl.xz", "rt", encoding="utf-8") as lines:
        rows = [json.loads(line, parse_float=Decimal) for line in lines]
    assert golden.differing(rows, frame, meta["columns"]) == ""
