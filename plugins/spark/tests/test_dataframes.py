"""DataFrames of Spark as sources and results: the rows of light, batch and streaming; checkpoints, lateness, dead letters."""

from __future__ import annotations

import json
import os
import tempfile
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import headrace as hr
import headrace_spark
import polars as pl
import pytest
from frame_parts import BEGIN, Files, begin, collect, events, light_result, on_light, result, run_query
from headrace.foundation.errors import CheckpointError, JobError, OptionError, PlanError
from headrace_sql.operators.frames import FrameSource
from pyspark.sql import DataFrame, SparkSession
from spark_parts import CountingSource

pytestmark = pytest.mark.spark


# ------------------------------------------------------------------------------------------------------ without state


def suspicious(stream: hr.Stream) -> hr.Stream:
    rules = [{"id": "loads", "expression": "text LIKE 'curl %'"}, {"id": "late", "expression": "n > 90"}]
    kept = stream.where("text IS NOT NULL").with_columns("price * 2 AS twice", "UPPER(k) AS big").rules(rules)
    made: hr.Stream = kept.drop("text")
    return made


def test_rows_without_state_are_those_of_light(files: Files, tmp_path: Path) -> None:
    files.add(events(100), parts=2)
    expected = on_light(events(100), suspicious)
    assert 0 < sum(expected.values()) < 100
    made = suspicious(begin("stateless").from_dataframe(files.read())).to_dataframe()
    assert not made.isStreaming
    assert result(collect(made)) == expected
    streamed = suspicious(begin("stateless").from_(headrace_spark.source(files.stream()))).to_dataframe()
    assert streamed.isStreaming
    assert result(run_query(streamed, tmp_path)) == expected
    files.add(events(120)[100:])
    assert result(run_query(streamed, tmp_path)) == on_light(events(120), suspicious), (
        "it continues behind its checkpoint"
    )


def test_columns_keep_their_types(spark: SparkSession) -> None:
    frame = spark.sql(
        "SELECT true AS b, 1Y AS i8, 2S AS i16, 3 AS i32, 4L AS i64, 1.5f AS f32, 2.5d AS f64, 7.25BD AS x, 'a' AS `a b`, "
        "X'0102' AS bin, DATE'2026-02-03' AS d, TIMESTAMP'2026-02-03 04:05:06.789' AS ts, "
        "TIMESTAMP_NTZ'2026-02-03 04:05:06' AS ntz, INTERVAL '1 00:01:30' DAY TO SECOND AS i, array(1, 2) AS l, "
        "named_struct('p', 1, 'q', array('z')) AS s, CAST(NULL AS STRING) AS nothing"
    )
    made = begin("types").from_dataframe(frame).to_dataframe()
    assert made.schema.simpleString() == frame.schema.simpleString()
    assert made.collect() == frame.collect()
    assert made.select("`a b`").collect() == [("a",)]
    maps = begin("maps").from_dataframe(spark.sql("SELECT map('a', 1) AS m, 1 AS c")).to_dataframe()
    assert maps.select("m").collect() == [([("a", 1)],)]
    with pytest.raises(PlanError, match="'v' of the DataFrame has the type variant"):
        begin("variant").from_dataframe(spark.sql("SELECT parse_json('1') AS v"))
    counted = begin("counted").from_dataframe(frame).key_by().agg(n="COUNT(*)").select("n").to_dataframe()
    assert [row["n"] for row in counted.collect()] == [1], "rows are counted though no column is needed"


def test_bodies_in_a_column(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    frame = spark.createDataFrame(
        [(b'{"n": 1}', 1), (b"{broken", 2), (None, 3), (b'{"n": 4}', 4)], "value BINARY, part INT"
    )
    stream = begin("bodies").from_dataframe(frame, format="json", schema={"n": "int64"})
    assert sorted(row["n"] for row in stream.to_dataframe().collect()) == [1, 4]
    texts = [json.loads(line) for path in letters_of("bodies") for line in path.read_text().splitlines()]
    assert sorted(text["preview"] for text in texts) == ["", "{broken"]
    with pytest.raises(OptionError, match="no column 'payload'"):
        begin("bodies").from_dataframe(frame, body="payload", format="json", schema={"n": "int64"})


def letters_of(job: str) -> list[Path]:
    return sorted(Path("dead-letters", f"frames.{job}").glob("*.json"))


# --------------------------------------------------------------------------------------------------------- with state


def per_minute(stream: hr.Stream) -> hr.Stream:
    timed = stream.watermark("at", delay="30 s")
    made: hr.Stream = (
        timed.key_by("k").window(hr.tumbling("1 min", on="at")).agg(n="COUNT(*)", total="SUM(price)", most="MAX(n)")
    )
    return made


def per_hour_of_minutes(stream: hr.Stream) -> hr.Stream:
    minutes = per_minute(stream).select("window_start AS minute", "n")
    made: hr.Stream = (
        minutes.watermark("minute").key_by().window(hr.tumbling("1 h", on="minute")).agg(n="SUM(n)", m="COUNT(*)")
    )
    return made


def totals(stream: hr.Stream) -> hr.Stream:
    """Results that change: groups whose count leaves the filter are deleted again."""
    return stream.key_by("k").agg(n="COUNT(*)", total="SUM(price)").where("n % 2 = 1").key_by("n").agg(keys="COUNT(*)")


@pytest.mark.parametrize("chain", [per_minute, per_hour_of_minutes, totals])
def test_a_batch_with_state_gives_the_rows_of_light(files: Files, chain: Any) -> None:
    rows = events(400)
    files.add(rows.sample(fraction=1.0, shuffle=True, seed=3), parts=3)
    made = chain(begin("batch").from_dataframe(files.read())).to_dataframe(shards=3)
    assert result(collect(made)) == on_light(rows, chain), "in whatever order rows come, windows have all"


def test_sessions_and_joins_of_two_dataframes(spark: SparkSession, files: Files) -> None:
    orders, payments = events(60), events(80, keys=9).select(pl.col("n").alias("paid"), "k", pl.col("at").alias("when"))

    def joined(left: Any, right: Any) -> hr.Stream:
        made: hr.Stream = left.watermark("at").join(
            right.watermark("when"), "k", within=("-1 min", "1 min"), time=("at", "when")
        )
        return made

    pipe = begin("joined")
    expected = light_result(
        joined(pipe.from_(FrameSource.of(orders)), pipe.from_(FrameSource.of(payments), name="paid"))
    )
    assert sum(expected.values()) > 50
    right = spark.createDataFrame(payments.to_arrow())
    left = spark.createDataFrame(orders.to_arrow())
    made = joined(pipe.from_dataframe(left), pipe.from_dataframe(right, name="paid")).to_dataframe(shards=2)
    assert result(collect(made)) == expected


def test_windows_of_a_stream_over_restarts_and_repetitions(files: Files, tmp_path: Path) -> None:
    rows = events(300)
    files.add(rows[:200], parts=4)
    state = tmp_path / "state"

    def query() -> pl.DataFrame:
        stream = per_minute(begin("windows").from_dataframe(files.stream()))
        return run_query(stream.to_dataframe(checkpoint=state, shards=3), tmp_path)

    first = query()
    closed = BEGIN + timedelta(seconds=7 * 199 - 30)

    def expected(until: datetime) -> Any:
        return {row: n for row, n in on_light(rows, per_minute).items() if row[2] <= until}

    assert result(first) == expected(closed)
    # As after a crash of the driver: the last micro-batch was written, but its end is not known to Spark.
    (tmp_path / "checkpoint" / "commits" / "3").unlink()
    (tmp_path / "checkpoint" / "commits" / ".3.crc").unlink(missing_ok=True)
    files.add(rows[200:], parts=2)
    assert result(query()) == expected(BEGIN + timedelta(seconds=7 * 299 - 30)), "no window twice, none is missing"
    with pytest.raises(CheckpointError, match="with 3 shards, but the job asks for 4"):
        per_minute(begin("windows").from_dataframe(files.stream())).to_dataframe(checkpoint=state, shards=4)
    with pytest.raises(CheckpointError, match=r"state of the job 'frames.windows'"):
        per_minute(begin("other").from_dataframe(files.stream())).to_dataframe(checkpoint=state)


def test_results_that_change_in_a_stream(files: Files, tmp_path: Path) -> None:
    rows = events(117)
    files.add(rows, parts=3)
    made = totals(begin("changes").from_dataframe(files.stream())).to_dataframe(checkpoint=tmp_path / "state", shards=2)
    assert [field.name for field in made.schema][-2:] == ["_kind", "_order"]
    frame = run_query(made, tmp_path)
    assert set(frame["_kind"]) == {"insert", "update_before", "update_after", "delete"}
    assert result(frame) == on_light(rows, totals)
    last = frame.sort("_order").group_by("n", maintain_order=True).last()
    kept = last.filter(pl.col("_kind").is_in(["insert", "update_after"])).select("n", "keys")
    assert dict.fromkeys(kept.rows(), 1) == on_light(rows, totals), "the last change of a key by _order is its result"
    named = begin("named").from_dataframe(files.read()).key_by("k").agg(_kind="COUNT(*)")
    with pytest.raises(OptionError, match="column '_kind' already"):
        named.to_dataframe()
    assert named.to_dataframe(kind_column="op").columns == ["k", "_kind", "op", "_order"]


def test_lateness_is_judged_by_micro_batches(spark: SparkSession, files: Files, tmp_path: Path) -> None:
    def at(*seconds: int) -> pl.DataFrame:
        times = [BEGIN + timedelta(seconds=s) for s in seconds]
        return pl.DataFrame({"at": times, "n": list(seconds)}, schema_overrides={"at": pl.Datetime("us", "UTC")})

    def counted(stream: hr.Stream) -> hr.Stream:
        made: hr.Stream = (
            stream.watermark("at").key_by().window(hr.tumbling("10 s", on="at")).agg(n="COUNT(*)", last="MAX(n)")
        )
        return made

    files.add(at(25, 3, 1))  # in one micro-batch 3 and 1 are not late, though 25 is before them
    files.add(at(4, 26))  # 4 is: the micro-batch before has closed its window
    files.add(at(41, 22))  # 22 is not: the watermark before is 26, and its window ends at 30
    stream = counted(begin("late").from_dataframe(files.stream()))
    found = run_query(stream.to_dataframe(checkpoint=tmp_path / "state", shards=1), tmp_path)
    assert sorted(found.select("n", "last").rows()) == [(2, 3), (3, 26)]


def test_shards_without_rows_see_time_pass(spark: SparkSession, files: Files, tmp_path: Path) -> None:
    """The rows of a micro-batch go to one of four shards; windows close in all of them."""
    rows = events(60, keys=1).with_columns(k=pl.when(pl.col("n") < 30).then(pl.lit("a")).otherwise(pl.lit("b")))
    files.add(rows, parts=2)
    made = per_minute(begin("silent").from_dataframe(files.stream())).to_dataframe(
        checkpoint=tmp_path / "state", shards=4
    )
    closed = BEGIN + timedelta(seconds=7 * 59 - 30)
    expected = {row: n for row, n in on_light(rows, per_minute).items() if row[2] <= closed}
    assert result(run_query(made, tmp_path)) == expected


def test_windows_of_windows_in_a_stream(files: Files, tmp_path: Path) -> None:
    """Two shuffles: the watermark of the second comes from the shards of the first."""
    rows = events(1100)
    files.add(rows, parts=3)
    stream = per_hour_of_minutes(begin("levels").from_dataframe(files.stream()))
    frame = run_query(stream.to_dataframe(checkpoint=tmp_path / "state", shards=2), tmp_path)
    hours = {row: n for row, n in on_light(rows, per_hour_of_minutes).items() if row[1] <= BEGIN + timedelta(hours=2)}
    assert len(hours) == 2
    assert result(frame) == hours


def test_state_and_spark_checkpoint_that_do_not_fit(spark: SparkSession, files: Files, tmp_path: Path) -> None:
    rows = events(90)
    files.add(rows[:60], parts=2)
    state = tmp_path / "state"

    def query(checkpoint: str = "checkpoint") -> pl.DataFrame:
        made = per_minute(begin("apart").from_dataframe(files.stream())).to_dataframe(checkpoint=state, shards=1)
        return run_query(made, tmp_path, checkpoint)

    query()
    files.add(rows[60:])
    stored = [path for path in state.rglob("*.delta")]
    assert len(stored) == 2
    for path in stored:
        path.rename(path.with_suffix(".away"))
    with pytest.raises(Exception, match=r"is at micro-batch 2, but the state directory .* has no state of shard"):
        query()
    for path in stored:
        path.with_suffix(".away").rename(path)
    query()
    assert len(list(state.rglob("*.delta"))) == 3


def test_a_changed_job_does_not_go_on_with_the_state_of_another(files: Files, tmp_path: Path) -> None:
    files.add(events(20))
    state = tmp_path / "state"
    stream = begin("changed").from_dataframe(files.stream())
    run_query(stream.key_by("k").agg(n="COUNT(*)").to_dataframe(checkpoint=state, shards=2), tmp_path)
    with pytest.raises(CheckpointError, match="was stored by another definition of it"):
        stream.key_by("price").agg(n="COUNT(*)").to_dataframe(checkpoint=state)
    summed = stream.key_by("k").agg(n="SUM(n)").to_dataframe(checkpoint=state)
    files.add(events(25)[20:])
    with pytest.raises(Exception, match="aggregates now that its stored state does not have"):
        run_query(summed, tmp_path)
    renamed = begin("changed").from_dataframe(files.stream(), name="other").key_by("k").agg(n="COUNT(*)")
    with pytest.raises(CheckpointError, match="a job that read dataframe, and now reads other"):
        renamed.to_dataframe(checkpoint=state)
    stream.key_by("k").agg(n="COUNT(*)").where("n > 1").to_dataframe(checkpoint=state)


def test_two_queries_of_one_dataframe_have_their_own_state(files: Files, tmp_path: Path) -> None:
    rows = events(80)
    files.add(rows, parts=2)
    made = totals(begin("twice").from_dataframe(files.stream())).to_dataframe(checkpoint=tmp_path / "state", shards=1)
    expected = on_light(rows, totals)
    for name in ("one", "two"):
        assert result(run_query(made, tmp_path / name)) == expected


def test_processing_time_is_that_of_the_micro_batch(files: Files, tmp_path: Path) -> None:
    files.add(events(20), parts=2)
    stream = begin("clock").from_dataframe(files.stream()).key_by("k").window(hr.tumbling("1 ms")).agg(n="COUNT(*)")
    before = datetime.now(UTC) - timedelta(milliseconds=1)
    frame = run_query(stream.to_dataframe(checkpoint=tmp_path / "state", shards=2), tmp_path)
    assert frame["n"].sum() == 10, "the windows of the first micro-batch close in the second"
    starts = frame["window_start"].cast(pl.Datetime("us", "UTC"))
    assert starts.n_unique() == 1
    assert before <= starts[0] <= datetime.now(UTC)


# ----------------------------------------------------------------------------------------------- bad records, refusals


def test_dead_letters_of_a_dataframe_are_written(files: Files, tmp_path: Path) -> None:
    def halves(row: dict[str, Any]) -> dict[str, Any]:
        if row["n"] % 10 == 3:
            raise ValueError("not this one")
        return {"half": row["n"] / 2}

    files.add(events(40), parts=2)
    kept = sorted(n / 2 for n in range(40) if n % 10 != 3)
    stream = begin("bad").from_dataframe(files.read()).map(halves, schema={"half": "float64"})
    frame = stream.dead_letters(lambda bad: bad.to_file("bad", format="json")).to_dataframe()
    assert sorted(row["half"] for row in frame.collect()) == kept

    def letters() -> list[int]:
        lines = [line for path in Path("bad").glob("*.json") for line in path.read_text().splitlines()]
        return sorted(json.loads(json.loads(line)["row"])["n"] for line in lines)

    assert letters() == [3, 13, 23, 33]
    assert frame.count() == 36, "evaluated again, it writes them again: they come at least once"
    assert letters() == [3, 3, 13, 13, 23, 23, 33, 33]
    stopping = begin("stops", bad_records="stop").from_dataframe(files.stream()).map(halves, schema={"half": "float64"})
    with pytest.raises(Exception, match=r"DataError(.|\n)*bad_records='stop'"):
        run_query(stopping.to_dataframe(), tmp_path)


def test_what_a_dataframe_cannot_do(spark: SparkSession, files: Files, source: CountingSource, tmp_path: Path) -> None:
    files.add(events(5))
    pipe = begin("refused")
    with pytest.raises(OptionError, match="list is not a DataFrame of Spark"):
        pipe.from_dataframe([1, 2])
    job = pipe.from_dataframe(files.read()).to_print()
    with pytest.raises(JobError, match="runs only on the Spark backend"):
        job.run("light")
    other = pipe.from_(source, format="json", schema={"n": "int64"})
    mixed = pipe.from_dataframe(files.read()).union(pipe.from_dataframe(files.stream(), name="stream"))
    with pytest.raises(PlanError, match="'dataframe' is a batch DataFrame and others of the job are streaming"):
        mixed.to_dataframe()
    with pytest.raises(OptionError, match="option 'checkpoint'") as refused:
        totals(pipe.from_dataframe(files.stream())).to_dataframe()
    assert "checkpointLocation" in str(refused.value.hint)
    with pytest.raises(PlanError, match="columns of the rows are not known"):
        pipe.from_dataframe(files.read()).map(lambda row: row).to_dataframe()
    with pytest.raises(OptionError, match="the SparkSession in which"):
        other.to_dataframe()
    with pytest.raises(OptionError, match="unknown option 'state'"):
        other.to_dataframe(spark, state="x")
    with pytest.raises(OptionError, match="so its result is one, too"):
        pipe.from_dataframe(files.read()).to_dataframe(batch=False)
    two = pipe.from_dataframe(files.read()).to_print(name="a").to_print(name="b")
    with pytest.raises(OptionError, match="the job has 2 sinks") as refused:
        two.to_dataframe()
    assert two.to_dataframe(sink="b").count() == 5


# ----------------------------------------------------------------------------------------- sources of headrace, SQL, use


def test_a_source_of_headrace_as_a_dataframe(spark: SparkSession, source: CountingSource, tmp_path: Path) -> None:
    source.set_count("a", 50)
    source.set_count("b", 30)
    schema = {"n": "int64", "queue": "string"}
    rows = begin("outwards").from_(source, format="json", schema=schema).where("n % 2 = 0")
    expected = sorted([("a", n) for n in range(0, 50, 2)] + [("b", n) for n in range(0, 30, 2)])
    batch = rows.to_dataframe(spark, batch=True)
    assert sorted((row["queue"], row["n"]) for row in batch.collect()) == expected
    counts = begin("counts").from_(source, format="json", schema=schema).key_by("queue").agg(n="COUNT(*)", m="MAX(n)")
    assert result(collect(counts.to_dataframe(spark, batch=True, shards=2))) == {("a", 50, 49): 1, ("b", 30, 29): 1}

    def streamed() -> list[tuple[str, int]]:
        frame = run_query(rows.to_dataframe(spark), tmp_path / "rows")
        return sorted(frame.select("queue", "n").rows())

    assert streamed() == expected
    source.set_count("b", 32)
    assert streamed() == sorted([*expected, ("b", 30)])
    keyed = counts.to_dataframe(spark, checkpoint=tmp_path / "state", shards=2)
    assert result(run_query(keyed, tmp_path / "counts")) == {("a", 50, 49): 1, ("b", 32, 31): 1}
    source.set_count("a", 51)
    keyed = counts.to_dataframe(spark, checkpoint=tmp_path / "state")
    assert result(run_query(keyed, tmp_path / "counts")) == {("a", 51, 50): 1, ("b", 32, 31): 1}


def test_sql_between_dataframes(files: Files) -> None:
    files.add(events(50))
    hr.register("readings", begin("sql").from_dataframe(files.read()))
    job = hr.sql("SELECT k, COUNT(*) AS n, MAX(price) AS dearest FROM readings WHERE n > 10 GROUP BY k")
    hr.register("readings", begin("sql").from_(FrameSource.of(events(50))))
    same = hr.sql("SELECT k, COUNT(*) AS n, MAX(price) AS dearest FROM readings WHERE n > 10 GROUP BY k")
    expected = {tuple(row): 1 for row in same.collect().rows()}
    assert result(collect(job.to_dataframe(shards=2))) == expected


def test_inside_for_each_batch(files: Files, tmp_path: Path) -> None:
    """A batch DataFrame in a micro-batch of a query that is not headrace's."""
    files.add(events(60), parts=3)
    found: list[int] = []

    def count(batch: DataFrame, number: int) -> None:
        counted = begin("inner").from_dataframe(batch).key_by("k").agg(n="COUNT(*)").to_dataframe(shards=2)
        found.append(sum(row["n"] for row in counted.collect()))

    query = files.stream().writeStream.foreachBatch(count).option("checkpointLocation", str(tmp_path / "c"))
    query.trigger(availableNow=True).start().awaitTermination()
    assert found == [20, 20, 20]


def test_on_a_cluster_state_is_where_all_machines_reach_it(
    files: Files, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headrace_spark.queries.frames.is_local", lambda session: False)
    files.add(events(10))
    stream = per_minute(begin("shared").from_dataframe(files.stream()))
    with pytest.raises(CheckpointError, match="all machines can access") as caught:
        stream.to_dataframe(checkpoint=tmp_path / "state")
    assert "file:///" in str(caught.value.hint)
    stream.to_dataframe(checkpoint=(tmp_path / "state").as_uri(), shards=1)
    assert (tmp_path / "state" / "headrace.json").exists(), "who names a shared disk as a URI is believed"


def test_a_dataframe_leaves_no_files_open_and_no_directories(
    files: Files, spark: SparkSession, source: CountingSource
) -> None:
    files.add(events(3))
    frame = files.read()

    def directories() -> set[str]:
        return {path.name for path in Path(tempfile.gettempdir()).glob("headrace-frame-*")}

    def open_files() -> int:
        return len(os.listdir("/proc/self/fd"))

    suspicious(begin("first").from_dataframe(frame)).to_dataframe()
    before = directories()
    few = open_files() + 10  # connections with Java come and go
    stream = suspicious(begin("many").from_dataframe(frame))
    made = [stream.to_dataframe() for _ in range(50)]
    assert directories() == before
    assert open_files() < few
    assert result(collect(made[-1])) == on_light(events(3), suspicious)
    source.set_count("a", 3)
    numbers = (
        begin("numbers")
        .from_(source, format="json", schema={"n": "int64", "queue": "string"})
        .to_dataframe(spark, batch=True)
    )
    assert numbers.count() == 3
    assert directories() == before
    assert open_files() < few
