"""Tables whose rows change: formats of changes, upsert-kafka, what queries over them give, and what is refused."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import headrace as hr
import pytest
from headrace.foundation.errors import ExpressionError, JobError, OptionError
from headrace.plan.graph import Plan

#: Orders 1 to 4: 2 goes from Ann to Bob, 3 is deleted, 4 is written twice with the same values.
HISTORY: list[tuple[dict[str, Any] | None, dict[str, Any] | None]] = [
    (None, {"id": 1, "who": "Ann", "n": 10}),
    (None, {"id": 2, "who": "Ann", "n": 20}),
    (None, {"id": 3, "who": "Bob", "n": 30}),
    ({"id": 2, "who": "Ann", "n": 20}, {"id": 2, "who": "Bob", "n": 25}),
    ({"id": 3, "who": "Bob", "n": 30}, None),
    (None, {"id": 4, "who": "Cyd", "n": 40}),
    ({"id": 4, "who": "Cyd", "n": 40}, {"id": 4, "who": "Cyd", "n": 40}),
]
LEFT = [(1, "Ann", 10), (2, "Bob", 25), (4, "Cyd", 40)]


def debezium(history: Iterable[tuple[Any, Any]] = HISTORY) -> list[Any]:
    source = {"db": "shop", "table": "orders", "ts_ms": 1_600_000_000_000}
    return [
        {
            "before": old,
            "after": new,
            "op": "c" if old is None else "d" if new is None else "u",
            "source": source,
            "ts_ms": at,
        }
        for at, (old, new) in enumerate(history)
    ]


def table(
    directory: Path, bodies: Iterable[Any], columns: str = "", *, format: str = "debezium-json", options: str = ""
) -> str:
    path = directory / "orders.ndjson"
    path.write_text("".join(json.dumps(body) + "\n" for body in bodies))
    return f"""CREATE TABLE orders (id BIGINT, who STRING, n INT{columns})
        WITH ('connector' = 'filesystem', 'path' = '{path}', 'format' = '{format}'{options});"""


def rows(*texts: str, **options: Any) -> list[tuple[Any, ...]]:
    return sorted(hr.sql("".join(texts)).collect(**options).rows(), key=repr)


def plan_of(*texts: str) -> Plan:
    made = hr.sql("".join(texts))
    plan: Plan = made.plan()
    return plan


@pytest.mark.parametrize("size", [1, 2, 100])
def test_a_table_is_what_its_changes_leave(tmp_path: Path, size: int) -> None:
    text = table(tmp_path, debezium())
    assert rows(text, "SELECT * FROM orders", max_batch_records=size) == LEFT


@pytest.mark.parametrize("size", [1, 3, 100])
@pytest.mark.parametrize("key", ["", ", PRIMARY KEY (id) NOT ENFORCED"])
@pytest.mark.parametrize(
    ("query", "wanted"),
    [
        ("SELECT who, COUNT(*) c, SUM(n) s, MAX(n) m FROM orders GROUP BY who",
         [("Ann", 1, 10, 10), ("Bob", 1, 25, 25), ("Cyd", 1, 40, 40)]),
        ("SELECT COUNT(*) c, COUNT(DISTINCT who) d, MIN(n) m FROM orders", [(3, 3, 10)]),
        ("SELECT id FROM orders WHERE who = 'Bob'", [(2,)]),
        ("SELECT DISTINCT who FROM orders WHERE n > 20", [("Bob",), ("Cyd",)]),
        ("SELECT a.id, b.id FROM orders a JOIN orders b ON a.n < b.n", [(1, 2), (1, 4), (2, 4)]),
        ("SELECT a.id, b.id FROM orders a LEFT JOIN orders b ON a.id + 1 = b.id", [(1, 2), (2, None), (4, None)]),
        ("SELECT id FROM orders WHERE id NOT IN (SELECT id FROM orders WHERE n < 25)", [(2,), (4,)]),
        (
            "SELECT id, r FROM (SELECT id, ROW_NUMBER() OVER (PARTITION BY who ORDER BY n DESC) r FROM orders) WHERE r = 1",
            [(1, 1), (2, 1), (4, 1)],
        ),
        ("SELECT id FROM orders ORDER BY n DESC LIMIT 2", [(2,), (4,)]),
        ("SELECT who FROM orders UNION SELECT who FROM orders", [("Ann",), ("Bob",), ("Cyd",)]),
        ("SELECT c, COUNT(*) k FROM (SELECT who, COUNT(*) c FROM orders GROUP BY who) GROUP BY c", [(1, 3)]),
    ],
)  # fmt: skip
def test_queries_over_changes(tmp_path: Path, size: int, key: str, query: str, wanted: list[Any]) -> None:
    assert rows(table(tmp_path, debezium(), key), query, max_batch_records=size) == sorted(wanted, key=repr)


@pytest.mark.parametrize(
    ("format", "bodies"),
    [
        ("canal-json", [{"type": "INSERT", "data": [{"id": "1", "who": "A", "n": "1"}, {"id": "2", "who": "B", "n": "2"}]},
                        {"type": "UPDATE", "data": [{"id": "1", "who": "C", "n": "1"}], "old": [{"who": "A"}]},
                        {"type": "DELETE", "data": [{"id": "2", "who": "B", "n": "2"}]}]),
        ("maxwell-json", [{"type": "insert", "data": {"id": 1, "who": "A", "n": 1}},
                          {"type": "update", "data": {"id": 1, "who": "C", "n": 1}, "old": {"who": "A"}}]),
        ("ogg-json", [{"op_type": "I", "after": {"id": 1, "who": "A", "n": 1}},
                      {"op_type": "U", "before": {"id": 1, "who": "A", "n": 1}, "after": {"id": 1, "who": "C", "n": 1}}]),
        ("changelog-json", [{"op": "+I", "data": {"id": 1, "who": "A", "n": 1}}, {"op": "-U", "data": {"id": 1, "who": "A", "n": 1}},
                            {"op": "+U", "data": {"id": 1, "who": "C", "n": 1}}]),
    ],
)  # fmt: skip
def test_other_formats(tmp_path: Path, format: str, bodies: list[Any]) -> None:
    assert rows(table(tmp_path, bodies, format=format), "SELECT * FROM orders") == [(1, "C", 1)]


def test_changes_that_come_twice_are_normalised_with_the_option_of_flink(tmp_path: Path) -> None:
    twice = [body for body in debezium() for _ in range(2)]
    text = table(tmp_path, twice, ", PRIMARY KEY (id) NOT ENFORCED")
    assert rows("SET 'table.exec.source.cdc-events-duplicate' = 'true';", text, "SELECT * FROM orders") == LEFT
    with pytest.raises(OptionError, match="a key is needed: changes may come more than once"):
        plan_of(
            "SET 'table.exec.source.cdc-events-duplicate' = 'true';", table(tmp_path, twice), "SELECT * FROM orders"
        )


def test_old_rows_that_lack(tmp_path: Path) -> None:
    bodies = [{**body, "before": body["before"] and {"id": body["before"]["id"]}} for body in debezium()]
    for body in bodies:
        if body["op"] == "u":
            body["before"] = None
    key, option = ", PRIMARY KEY (id) NOT ENFORCED", ", 'debezium-json.changelog-mode' = 'upsert'"
    text = table(tmp_path, bodies, key, options=option)
    for size in (1, 100):
        assert rows(text, "SELECT who, SUM(n) FROM orders GROUP BY who", max_batch_records=size) == [
            ("Ann", 10),
            ("Bob", 25),
            ("Cyd", 40),
        ]


def test_the_state_of_normalising_has_the_ttl_of_the_session(tmp_path: Path) -> None:
    text = table(
        tmp_path, debezium(), ", PRIMARY KEY (id) NOT ENFORCED", options=", 'debezium-json.changelog-mode' = 'upsert'"
    )
    plan = plan_of("SET 'table.exec.state.ttl' = '1 h';", text, "SELECT * FROM orders")
    (node,) = [node for name, node in plan.nodes.items() if name.startswith("normalize")]
    assert node.spec.ttl_us == 3_600_000_000  # type: ignore[attr-defined]


def test_computed_columns_and_watermark_come_before_normalising(tmp_path: Path) -> None:
    columns = """, at TIMESTAMP_LTZ(3) METADATA FROM 'value.ingestion-timestamp' VIRTUAL, twice AS n * 2,
        WATERMARK FOR at AS at - INTERVAL '1' SECOND, PRIMARY KEY (id) NOT ENFORCED"""
    text = table(tmp_path, debezium(), columns)
    assert rows(text, "SELECT id, twice FROM orders") == [(1, 20), (2, 50), (4, 80)]
    nodes = list(plan_of(text, "SELECT id, twice FROM orders").nodes)
    assert nodes.index("watermark") < nodes.index("normalize_changes")


def test_metadata_of_the_format(tmp_path: Path) -> None:
    columns = """, db STRING METADATA FROM 'value.source.database' VIRTUAL, tab STRING METADATA FROM 'value.source.table' VIRTUAL,
        at TIMESTAMP_LTZ(3) METADATA FROM 'value.source.timestamp' VIRTUAL,
        more MAP<STRING, STRING> METADATA FROM 'value.source.properties' VIRTUAL"""
    key = ", PRIMARY KEY (id) NOT ENFORCED"
    text = table(tmp_path, debezium(), columns + key)
    found = rows(text, "SELECT id, db, tab, CAST(at AS STRING), more['table'] FROM orders")
    assert [row[:3] for row in found] == [(id, "shop", "orders") for id, _, _ in LEFT]
    assert {row[4] for row in found} == {"orders"}
    # What changes with each record is not known of old rows: without a key nothing could be taken back.
    with pytest.raises(OptionError, match="the metadata column 'at' is not known of old rows"):
        plan_of(table(tmp_path, debezium(), columns), "SELECT * FROM orders")
    constant = columns.partition(",\n")[0]
    assert "normalize_changes" not in plan_of(table(tmp_path, debezium(), constant), "SELECT * FROM orders").nodes
    with pytest.raises(ExpressionError, match=r"unknown field 'value.source.tabel'") as error:
        plan_of(table(tmp_path, [], ", t STRING METADATA FROM 'value.source.tabel' VIRTUAL"), "SELECT * FROM orders")
    assert "value.source.table" in (error.value.hint or "")


def test_options_of_the_format(tmp_path: Path) -> None:
    wrapped = [{"schema": {}, "payload": body} for body in debezium()]
    options = ", 'debezium-json.schema-include' = 'true', 'debezium-json.ignore-parse-errors' = 'true'"
    options += ", 'debezium-json.map-null-key.mode' = 'DROP'"
    assert rows(table(tmp_path, wrapped, options=options), "SELECT * FROM orders") == LEFT
    bodies = [{"type": "INSERT", "table": name, "data": [{"id": "1", "who": name, "n": "1"}]} for name in ("a", "b")]
    text = table(tmp_path, bodies, format="canal-json", options=", 'canal-json.table.include' = 'b|c'")
    assert rows(text, "SELECT who FROM orders") == [("b",)]
    with pytest.raises(ExpressionError, match="format 'debezium-json' has no option 'schema-inclued'"):
        plan_of(table(tmp_path, [], options=", 'debezium-json.schema-inclued' = 'true'"), "SELECT * FROM orders")
    with pytest.raises(ExpressionError, match=r"encode.ignore-null-fields' = 'true' is not supported"):
        plan_of(
            table(tmp_path, [], options=", 'debezium-json.encode.ignore-null-fields' = 'true'"), "SELECT * FROM orders"
        )
    with pytest.raises(ExpressionError, match="format 'debezium' is not supported") as error:
        plan_of(table(tmp_path, [], format="debezium"), "SELECT * FROM orders")
    assert "debezium-json" in (error.value.hint or "")


@pytest.mark.parametrize("size", [1, 100])
@pytest.mark.parametrize("key", ["", ", PRIMARY KEY (id) NOT ENFORCED"])
@pytest.mark.parametrize(
    "query",
    [
        "SELECT window_start, COUNT(*), MAX(n) FROM TABLE(TUMBLE(TABLE orders, DESCRIPTOR(ts), INTERVAL '1' HOUR)) "
        "GROUP BY window_start, window_end",
        "SELECT TUMBLE_START(ts, INTERVAL '1' HOUR), COUNT(*), MAX(n) FROM orders GROUP BY TUMBLE(ts, INTERVAL '1' HOUR)",
    ],
)
def test_windows_hold_the_rows_that_are_left(tmp_path: Path, query: str, key: str, size: int) -> None:
    columns = ", ts AS TO_TIMESTAMP_LTZ(id * 1800, 0), WATERMARK FOR ts AS ts - INTERVAL '9' HOUR" + key
    found = rows(table(tmp_path, debezium(), columns), query, max_batch_records=size)
    assert [(start.hour, *values) for start, *values in found] == [(0, 1, 10), (1, 1, 25), (2, 1, 40)]


def test_what_needs_final_rows_is_refused(tmp_path: Path) -> None:
    columns = ", ts TIMESTAMP(3), WATERMARK FOR ts AS ts"
    query = "SELECT * FROM orders MATCH_RECOGNIZE (ORDER BY ts MEASURES A.n AS n PATTERN (A) DEFINE A AS A.n > 1) AS m"
    with pytest.raises(JobError, match="change"):
        plan_of(table(tmp_path, debezium(), columns), query)


def test_an_interval_join_of_changes_is_a_join_without_bound(tmp_path: Path) -> None:
    """Flink refuses it. Here the bound in time is one more condition, and all rows are kept."""
    columns = ", ts TIMESTAMP(3), WATERMARK FOR ts AS ts"
    bodies = [
        {"op": "c", "after": {"id": 1, "ts": "2026-01-01 00:00:00"}},
        {"op": "c", "after": {"id": 2, "ts": "2026-01-01 00:30:00"}},
        {"op": "d", "before": {"id": 1, "ts": "2026-01-01 00:00:00"}},
        {"op": "c", "after": {"id": 3, "ts": "2026-01-01 01:00:00"}},
    ]
    query = "SELECT a.id, b.id FROM orders a JOIN orders b ON a.ts > b.ts AND a.ts BETWEEN b.ts AND b.ts + INTERVAL '1' HOUR"
    assert rows(table(tmp_path, bodies, columns), query) == [(3, 2)]


def test_changes_are_written_in_these_formats(tmp_path: Path) -> None:
    out = tmp_path / "out"
    sums = f"""CREATE TABLE sums (who STRING, s INT, PRIMARY KEY (who) NOT ENFORCED)
        WITH ('connector' = 'filesystem', 'path' = '{out}', 'format' = 'canal-json');"""
    insert = "INSERT INTO sums SELECT who, SUM(n) FROM orders GROUP BY who"
    hr.sql("".join([table(tmp_path, debezium()), sums, insert])).run("light", max_batch_records=1)
    written = [json.loads(line) for part in sorted(out.glob("*.canal-json")) for line in part.read_text().splitlines()]
    assert {body["type"] for body in written} == {"INSERT", "DELETE"}
    left: dict[str, int] = {}
    for body in written:
        (row,) = body["data"]
        if body["type"] == "INSERT":
            left[row["who"]] = row["s"]
        else:
            assert left.pop(row["who"]) == row["s"]
    assert left == {"Ann": 10, "Bob": 25, "Cyd": 40}


UPSERT = """CREATE TABLE totals (who STRING, s BIGINT, PRIMARY KEY (who) NOT ENFORCED)
    WITH ('connector' = 'upsert-kafka', 'topic' = 't', 'properties.bootstrap.servers' = 'localhost:1', 'key.format' = 'json',
    'value.format' = 'json'{options});"""


def test_upsert_kafka_is_a_source_of_changes() -> None:
    text = UPSERT.format(options=", 'value.fields-include' = 'EXCEPT_KEY', 'value.json.ignore-parse-errors' = 'true'")
    plan = plan_of(text, "SELECT COUNT(*) FROM totals")
    (source,) = plan.sources.values()
    assert source.format == "upsert"
    assert source.codec is not None
    settings = source.codec.settings
    assert (settings.key_format, settings.value_format, settings.value_fields_include) == ("json", "json", "except_key")
    assert "normalize_changes" in plan.nodes
    with pytest.raises(ExpressionError, match="needs a PRIMARY KEY"):
        plan_of(text.replace(", PRIMARY KEY (who) NOT ENFORCED", ""), "SELECT * FROM totals")
    with pytest.raises(OptionError, match="does not begin with 'k_'"):
        plan_of(UPSERT.format(options=", 'key.fields-prefix' = 'k_'"), "SELECT * FROM totals")


def test_upsert_kafka_as_a_sink_has_keys_in_their_format(tmp_path: Path) -> None:
    insert = "INSERT INTO totals SELECT who, SUM(n) FROM orders GROUP BY who"
    plan = plan_of(table(tmp_path, debezium()), UPSERT.format(options=""), insert)
    settings: Any = next(node.sink for name, node in plan.sinks.items() if "totals" in name).settings
    assert (settings.key_columns, settings.key_format) == (("who",), "json")


KEYED = """CREATE TABLE t (k_id INT, v INT) WITH ('connector' = 'kafka', 'topic' = 't', 'format' = 'json',
    'properties.bootstrap.servers' = 'localhost:1', 'key.format' = 'json', 'key.fields' = 'k_id'{options}); SELECT * FROM t"""


def test_key_columns_of_a_kafka_table_are_read_from_the_key_if_the_values_do_not_hold_them() -> None:
    (source,) = plan_of(KEYED.format(options="")).sources.values()
    assert source.format == "json", "the values hold them too, and are what is read"
    options = ", 'value.fields-include' = 'EXCEPT_KEY', 'key.fields-prefix' = 'k_'"
    (source,) = plan_of(KEYED.format(options=options)).sources.values()
    assert source.format == "keyed"
    assert source.codec is not None
    settings = source.codec.settings
    assert (settings.key_columns, settings.key_format, settings.key_prefix) == (["k_id"], "json", "k_")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (", 'key.fields-prefix' = 'k_'", "goes with 'value.fields-include' = 'EXCEPT_KEY'"),
        (", 'scan.bounded.mode' = 'latest-offset'", "a run to the end"),
        (", 'topic-pattern' = 't.*'", "'topic' takes several names"),
        (
            ", 'scan.startup.mode' = 'specific-offsets', 'scan.startup.specific-offsets' = '0:42'",
            "partition:0,offset:42",
        ),
        (f", 'scan.startup.timestamp-millis' = '{10**18}'", "milliseconds since 1970"),
    ],
)
def test_options_of_kafka_tables_that_cannot_be_heeded_are_refused(options: str, message: str) -> None:
    with pytest.raises(ExpressionError, match=message):
        plan_of(KEYED.format(options=options))


def test_offsets_where_partitions_of_a_kafka_table_begin() -> None:
    options = "'partition:0,offset:42; partition:1,offset:300'"
    options = f", 'scan.startup.mode' = 'specific-offsets', 'scan.startup.specific-offsets' = {options}"
    (source,) = plan_of(KEYED.format(options=options)).sources.values()
    assert vars(source.source)["settings"].offsets == {0: 42, 1: 300}
