"""Jobs in a session of Spark Connect, whose server this process starts: prints a JSON object with what they gave.

python -m connect_program DIRECTORY
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any

import headrace as hr
from headrace.foundation.errors import HeadraceError
from pyspark.sql import SparkSession

BEGIN = datetime(2026, 5, 6, 10)


def refusal(start: Callable[[], object]) -> str:
    """Return the message with which something is refused."""
    try:
        start()
    except HeadraceError as error:
        return error.message
    return "it was not refused"


def main(place: str) -> dict[str, Any]:
    """Run what docs/dataframes.md says of Spark Connect."""
    spark: Any = SparkSession.builder.remote("local[2]").config("spark.sql.shuffle.partitions", "2").getOrCreate()
    rows = [(n % 3, n, BEGIN + timedelta(seconds=n)) for n in range(120)]
    batch = spark.createDataFrame(rows, "k INT, v BIGINT, ts TIMESTAMP")
    batch.write.parquet(f"{place}/in")
    stream = spark.readStream.schema(batch.schema).parquet(f"{place}/in")

    def piped(frame: Any, name: str) -> Any:
        return hr.stream("connect", name).from_dataframe(frame)

    def written(frame: Any, name: str) -> list[list[Any]]:
        query = frame.writeStream.format("parquet").trigger(availableNow=True)
        query.option("checkpointLocation", f"{place}/{name}-checkpoint").start(f"{place}/{name}").awaitTermination()
        return [list(row) for row in spark.read.parquet(f"{place}/{name}").collect()]

    files = hr.stream("connect", "files").from_file(f"{place}/*.json", format="json", schema={"v": "int64"})
    counted = piped(stream, "counted").key_by("k").agg(n="COUNT(*)", s="SUM(v)")
    windows = piped(stream, "windows").watermark("ts", delay="1 s").key_by("k").window(hr.tumbling("1 min", on="ts"))
    return {
        "where": piped(batch, "where").where("v >= 100").to_dataframe().count(),
        "where of a stream": len(written(piped(stream, "streamed").where("v >= 100").to_dataframe(), "streamed")),
        "counted": sorted(row[:4] for row in written(counted.to_dataframe(checkpoint=f"{place}/s1", shards=2), "counted")),
        "windows": sorted(
            row[0] for row in written(windows.agg(n="COUNT(*)").to_dataframe(checkpoint=f"{place}/s2", shards=2), "windows")
        ),
        "source": refusal(lambda: files.to_dataframe(spark)),
        "sink": refusal(lambda: piped(batch, "sink").to_file(f"{place}/out", format="json").run()),
        "session": refusal(lambda: files.to_file(f"{place}/out", format="json").run(session=spark)),
        "archive": refusal(lambda: piped(batch, "archive").where("v > 1").to_dataframe(archive="job.tar.gz")),
    }  # fmt: skip


if __name__ == "__main__":
    print(json.dumps(main(sys.argv[1])))
