"""docs/dataframes.md: its examples run as printed, one after the other, in a session and a directory of their own."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import headrace_spark
import polars as pl
import pytest
from frame_parts import begin, collect, result
from headrace.foundation.errors import JobError
from headrace_spark.queries.batch_run import BatchRun
from pyspark.sql import SparkSession

PAGE = Path(__file__).parents[3] / "docs" / "dataframes.md"
#: What Spark itself reads and writes: its Java process has another working directory.
_PATH = re.compile(r'((?:parquet|start)\(|"checkpointLocation", )"([\w-]+)"')
_BLOCK = re.compile(r"^```python\n(.*?)^```$", re.DOTALL | re.MULTILINE)


@pytest.mark.spark
def test_the_examples_of_the_page(spark: SparkSession, tmp_path: Path) -> None:
    ordered = "TIMESTAMP'2026-03-01 10:00:00' + make_dt_interval(0, 0, id) AS ordered"
    rows = spark.range(1000).selectExpr(
        "id", "concat('c', id % 9) AS customer", "CAST(id AS DECIMAL(10, 2)) AS amount", ordered
    )
    rows.repartition(3).write.parquet(f"{tmp_path}/orders")
    Path("returns").mkdir()
    Path("returns/1.json").write_text('{"id": 1, "customer": "c1"}\n')
    names: dict[str, Any] = {"spark": spark}
    for block in _BLOCK.findall(PAGE.read_text(encoding="utf-8")):
        exec(compile(_PATH.sub(rf'\1"{tmp_path}/\2"', block), PAGE.name, "exec"), names)
    assert spark.read.parquet(f"{tmp_path}/large").count() == 499
    both = dict(result(collect(names["per_customer"].to_dataframe())))
    assert both[("c1", 112)] == both[("c2", 111)] == 1, "one of them has a return"
    hours = spark.read.parquet(f"{tmp_path}/per_hour")
    assert hours.selectExpr("sum(orders)", "sum(amount)").collect()[0][0] == 1000
    assert sorted(row["customer"] for row in names["totals"].collect() if row["amount"] is not None)[-1] == "c8"
    assert {row["customer"]: row["amount"] for row in spark.read.parquet(f"{tmp_path}/running").collect()} == {
        f"c{k}": sum(range(k, 1000, 9)) for k in range(9)
    }
    written = [line for path in Path("large-files").glob("*.json") for line in path.read_text().splitlines()]
    assert (len(written), sum(names["report"].rows_written.values())) == (499, 499)
    assert spark.read.parquet(f"{tmp_path}/history").count() == 99


@pytest.mark.spark
def test_a_preview(spark: SparkSession, capsys: pytest.CaptureFixture[str]) -> None:
    stream = begin("preview").from_dataframe(spark.range(50, numPartitions=2).selectExpr("id AS n"))
    shown = headrace_spark.preview(stream, rows=5, progress=True)
    assert (shown.frame.height, shown.more) == (5, True)
    assert "the first 5 rows" in repr(shown)
    assert "<table" in shown._repr_html_()
    whole = headrace_spark.preview(stream.key_by().agg(n="COUNT(*)").to_dataframe(shards=1))
    assert (whole.more, whole.frame["n"].to_list()) == (False, [50])
    assert isinstance(whole.frame, pl.DataFrame)
    with pytest.raises(JobError, match="first rows of a streaming DataFrame"):
        headrace_spark.preview(spark.readStream.format("rate").load())
    with pytest.raises(ZeroDivisionError):
        BatchRun(spark, "fails", lambda: print(1 // 0)).awaitTermination()
