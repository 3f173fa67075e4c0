"""Days, times and decimals as Debezium writes them, with and without the schema in front."""

from __future__ import annotations

import base64
import json
from datetime import UTC, date, datetime, time
from decimal import Decimal
from typing import Any

import pytest
from headrace.flow.messages import Bodies
from headrace.flow.schema import Schema
from headrace.interfaces.codec import Decoded
from headrace.interfaces.registry import default_registry

SCHEMA = Schema.of(
    {"id": "int64", "d": "date", "t": "time", "at": "timestamp", "local": "timestamp_ntz", "price": "decimal(10, 2)"}
)


def decoded(*bodies: Any, schema: Schema = SCHEMA, **options: Any) -> Decoded:
    kind = default_registry().find("codec", "debezium-json")
    codec = kind(kind.Settings.of(options, plugin="debezium-json"))
    found: Decoded = codec.record_decoder(schema, None, {}).decode(
        Bodies.of([json.dumps(body).encode() for body in bodies])
    )
    return found


def unscaled(number: int) -> str:
    return base64.b64encode(number.to_bytes((number.bit_length() + 8) // 8, "big", signed=True)).decode()


def created(**row: Any) -> dict[str, Any]:
    return {"before": None, "after": row, "op": "c"}


def with_schema(fields: list[dict[str, Any]], **row: Any) -> dict[str, Any]:
    parts = [{"type": "struct", "field": side, "fields": fields} for side in ("before", "after")]
    return {"schema": {"type": "struct", "fields": parts}, "payload": created(**row)}


def test_numbers_without_a_schema() -> None:
    found = decoded(
        created(id=1, d=19_000, t=3_723_000_004, at=1_000, local=1_500, price=unscaled(-12345)),
        created(id=2, d="2022-01-08", t="01:02:03.000004", at="1970-01-01T00:00:01Z", local=None, price=1.5),
        created(id=3, d=-1, t=None, at=None, local=None, price=unscaled(7)),
        decimal_encoding="base64",
    )
    assert not found.bad
    moment, local = datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC), datetime(1970, 1, 1, 0, 0, 1, 500_000)
    assert found.frame.select("d", "t", "at", "local", "price").rows() == [
        (date(2022, 1, 8), time(1, 2, 3, 4), moment, local, Decimal("-123.45")),
        (date(2022, 1, 8), time(1, 2, 3, 4), moment, None, Decimal("1.50")),
        (date(1969, 12, 31), None, None, None, Decimal("0.07")),
    ]


def test_times_in_milliseconds() -> None:
    assert decoded(created(t=3_723_004), time_unit="ms").frame["t"].to_list() == [time(1, 2, 3, 4_000)]


@pytest.mark.parametrize(
    ("row", "said"),
    [
        ({"d": 2**40}, "column 'd'"),
        ({"t": -1}, "column 't'"),
        ({"t": 86_400_000_000}, "column 't'"),
        ({"price": "!"}, "column 'price'"),
        ({"price": unscaled(10**12)}, "column 'price': expected decimal(10, 2), found string"),
        ({"price": unscaled(10**1100)}, "column 'price': expected decimal(10, 2), found string"),
        ({"price": unscaled(10**5000)}, "column 'price': expected decimal(10, 2), found string"),
    ],
)
def test_values_that_do_not_fit_are_bad_records(row: dict[str, Any], said: str) -> None:
    (bad,) = decoded(created(id=1, **row), decimal_encoding="base64").bad
    assert said in bad.reason


FIELDS: list[dict[str, Any]] = [
    {"type": "int32", "field": "id"},
    {"type": "int32", "field": "d", "name": "io.debezium.time.Date"},
    {"type": "int64", "field": "t", "name": "io.debezium.time.MicroTime"},
    {"type": "string", "field": "at", "name": "io.debezium.time.ZonedTimestamp"},
    {"type": "int64", "field": "local", "name": "io.debezium.time.MicroTimestamp"},
    {"type": "bytes", "field": "price", "name": "org.apache.kafka.connect.data.Decimal", "parameters": {"scale": "3"}},
]


def test_the_schema_in_front_says_what_values_are() -> None:
    connect: list[dict[str, Any]] = [
        {"type": "int32", "field": "d", "name": "org.apache.kafka.connect.data.Date"},
        {"type": "int32", "field": "t", "name": "org.apache.kafka.connect.data.Time"},
        {"type": "int64", "field": "at", "name": "io.debezium.time.NanoTimestamp"},
        {"type": "int64", "field": "local", "name": "org.apache.kafka.connect.data.Timestamp"},
        {"type": "struct", "field": "price", "name": "io.debezium.data.VariableScaleDecimal"},
    ]
    found = decoded(
        with_schema(FIELDS, id=1, d=19_000, t=3_723_000_004, at="1970-01-01T00:00:01Z", local=1_500_000, price=unscaled(12340)),
        with_schema(connect, id=2, d=19_000, t=3_723_004, at=1_000_001_000, local=1_500, price={"scale": 1, "value": unscaled(-5)}),
        with_schema([], id=3, d=19_000, t=1, at=1_000, local=None, price="2.50"),
        {"schema": None, "payload": created(id=4, d="2022-01-08", t=None, at=None, local=None, price=None)},
        schema_include=True,
    )  # fmt: skip
    assert not found.bad
    day, local = date(2022, 1, 8), datetime(1970, 1, 1, 0, 0, 1, 500_000)
    assert found.frame.select("d", "t", "at", "local", "price").rows() == [
        (day, time(1, 2, 3, 4), datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC), local, Decimal("12.34")),
        (day, time(1, 2, 3, 4_000), datetime(1970, 1, 1, 0, 0, 1, 1, tzinfo=UTC), local, Decimal("-0.50")),
        (day, time(0, 0, 0, 1), datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC), None, Decimal("2.50")),
        (day, None, None, None, None),
    ]


def test_a_day_may_be_read_as_a_timestamp_and_a_timestamp_as_a_day() -> None:
    fields: list[dict[str, Any]] = [
        {"type": "int32", "field": "at", "name": "io.debezium.time.Date"},
        {"type": "int64", "field": "d", "name": "io.debezium.time.Timestamp"},
    ]
    schema = Schema.of({"at": "timestamp", "d": "date"})
    found = decoded(with_schema(fields, at=1, d=86_400_000 * 2 + 5), schema=schema, schema_include=True)
    assert found.frame.select("at", "d").rows() == [(datetime(1970, 1, 2, tzinfo=UTC), date(1970, 1, 3))]


def test_old_rows_of_updates_and_deletes_are_read_by_the_schema_too() -> None:
    body = with_schema(FIELDS)
    for operation, before, after in (("u", {"id": 1, "d": 1}, {"id": 1, "d": 2}), ("d", {"id": 1, "d": 2}, None)):
        body["payload"] = {"op": operation, "before": before, "after": after}
        found = decoded(body, schema_include=True)
        assert found.frame["d"].to_list() == [date(1970, 1, 1 + each["d"]) for each in (before, after) if each]


@pytest.mark.parametrize(
    ("column", "name", "value"),
    [
        ("at", "io.debezium.time.Timestamp", 9 * 10**18),
        ("at", "io.debezium.time.Timestamp", -9 * 10**18),
        ("at", "io.debezium.time.Date", 9 * 10**18),
        ("d", "io.debezium.time.Timestamp", 9 * 10**18),
        ("t", "io.debezium.time.Time", 9 * 10**18),
        ("price", "io.debezium.data.VariableScaleDecimal", {"scale": 2_000_000_000, "value": unscaled(1)}),
        ("price", "io.debezium.data.VariableScaleDecimal", {"scale": -2_000_000_000, "value": unscaled(1)}),
        ("price", "org.apache.kafka.connect.data.Decimal", unscaled(10**5000)),
    ],
)
def test_a_value_that_no_column_can_have_is_a_bad_record_and_does_not_stop_the_job(
    column: str, name: str, value: Any
) -> None:
    fields = [{"field": column, "name": name}, {"field": "id", "type": "int64"}]
    good = with_schema(fields, id=2)
    found = decoded(with_schema(fields, id=1, **{column: value}), good, schema_include=True)
    assert [bad.row for bad in found.bad] == [0]
    assert f"column {column!r}: expected" in found.bad[0].reason
    assert found.frame["id"].to_list() == [2]


@pytest.mark.parametrize("scale", ["--2", "\u00b2", "two", "", "99999999999"])
def test_a_scale_of_a_schema_that_is_no_number_is_that_of_the_column(scale: str) -> None:
    fields = [{"field": "price", "name": "org.apache.kafka.connect.data.Decimal", "parameters": {"scale": scale}}]
    found = decoded(with_schema(fields, id=1, price=unscaled(125)), schema_include=True)
    assert found.frame["price"].to_list() == [Decimal("1.25")]
