"""What each format's envelopes say: rows, kinds, metadata, and why a body is none."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

import pytest
from headrace.flow.messages import CHANGE, Bodies, ChangeKind
from headrace.flow.schema import Schema
from headrace.foundation.errors import OptionError
from headrace.interfaces.codec import Decoded
from headrace.interfaces.registry import default_registry

ADD, UB, UA, D = ChangeKind.INSERT, ChangeKind.UPDATE_BEFORE, ChangeKind.UPDATE_AFTER, ChangeKind.DELETE
SCHEMA = Schema.of({"id": "int64", "name": "string", "weight": "decimal(10, 2)"})


def decoded(
    format: str,
    *bodies: Any,
    columns: Sequence[str] | None = None,
    metadata: Mapping[str, str] | None = None,
    schema: Schema = SCHEMA,
    **options: Any,
) -> Decoded:
    kind = default_registry().find("codec", format)
    codec = kind(kind.Settings.of(options, plugin=format))
    texts = [body if isinstance(body, bytes) else json.dumps(body).encode() for body in bodies]
    found: Decoded = codec.record_decoder(schema, columns, metadata).decode(Bodies.of(texts))
    return found


def rows(found: Decoded, *names: str) -> list[tuple[Any, ...]]:
    assert found.rows is not None
    chosen = found.frame.select(CHANGE, *(names or ("id", "name")))
    return [(number, *row) for number, row in zip(found.rows.tolist(), chosen.rows(), strict=True)]


def reason(found: Decoded) -> str:
    (bad,) = found.bad
    assert not found.frame.height
    return bad.reason


def test_debezium_operations() -> None:
    one, two = {"id": 1, "name": "a", "weight": 1.5}, {"id": 1, "name": "b", "weight": "1.50"}
    found = decoded(
        "debezium-json",
        {"before": None, "after": one, "op": "c"},
        {"before": one, "after": two, "op": "u"},
        b"",
        {"before": two, "after": None, "op": "d"},
        {"after": one, "op": "r"},
    )
    assert rows(found) == [(0, ADD, 1, "a"), (1, UB, 1, "a"), (1, UA, 1, "b"), (3, D, 1, "b"), (4, ADD, 1, "a")]
    assert not found.bad
    assert str(found.frame["weight"][2]) == "1.50"


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ({"op": "u", "before": None, "after": {"id": 1}}, '"before" is missing.*REPLICA IDENTITY FULL.*changelog_mode'),
        ({"op": "u", "before": {"id": 1}}, '"after" is missing, where "op" is \'u\''),
        ({"op": "d", "after": {"id": 1}}, '"before" is missing'),
        ({"op": "c"}, '"after" is missing'),
        ({"op": "t", "source": {}}, "truncated"),
        ({"op": "m"}, "'m', which is none of c, r, u, d, t"),
        ({"after": {"id": 1}}, 'there is no "op".*schema_include'),
        ({"op": "c", "after": {"id": "x"}}, "after.id: expected int, got str"),
        ({"op": "c", "after": {"id": 1, "weight": "heavy"}}, "column 'weight': expected decimal.*\"heavy\""),
        ({"op": "u", "after": {"id": 1}, "before": {"id": 1, "weight": []}}, "column 'weight': expected decimal"),
        ({"op": 1, "after": {"id": 1}}, "op: expected str, got int"),
        (b'{"op":"c","after":{"id":1}', "ends too early"),
        (b"[1]", "expected an object at the top level"),
        (b" ", "blank"),
        (b'{"op":"c","after":{"id":1,"name":"\xff"}}', "not valid UTF-8"),
    ],
)
def test_bad_bodies_of_debezium(body: Any, said: str) -> None:
    import re

    assert re.search(said, reason(decoded("debezium-json", body)))


def test_a_bad_body_does_not_harm_its_neighbours() -> None:
    good = {"op": "u", "before": {"id": 1, "name": "a"}, "after": {"id": 1, "name": "b"}}
    bad = {"op": "u", "before": {"id": 1, "weight": "x"}, "after": {"id": 1, "name": "b"}}
    found = decoded("debezium-json", good, bad, {"op": "d"}, b"nonsense", good)
    assert rows(found) == [(0, UB, 1, "a"), (0, UA, 1, "b"), (4, UB, 1, "a"), (4, UA, 1, "b")]
    assert [each.row for each in found.bad] == [1, 2, 3]


def test_debezium_with_its_schema() -> None:
    body = {"schema": {"type": "struct"}, "payload": {"op": "c", "after": {"id": 1, "name": "a"}, "ts_ms": 1000}}
    metadata = {"s": "schema", "t": "ingestion-timestamp"}
    found = decoded("debezium-json", body, {"schema": None, "payload": None}, metadata=metadata, schema_include=True)
    assert rows(found, "id", "s", "t") == [(0, ADD, 1, '{"type": "struct"}', datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC))]
    assert [each.reason for each in found.bad] == ['there is no "payload"']


def test_debezium_metadata() -> None:
    source = {
        "db": "shop",
        "schema": None,
        "table": "goods",
        "ts_ms": 1_589_362_210_000,
        "pos": 484,
        "snapshot": "false",
    }
    names = ["source.database", "source.schema", "source.table", "source.timestamp", "source.properties"]
    metadata = {f"m{at}": name for at, name in enumerate(names)}
    found = decoded(
        "debezium-json",
        {"op": "c", "after": {"id": 1}, "source": source},
        {"op": "c", "after": {"id": 2}},
        metadata=metadata,
    )
    properties = json.dumps(
        {key: value if value is None else str(value) for key, value in source.items()}, separators=(",", ":")
    )
    assert rows(found, "id", *metadata) == [
        (0, ADD, 1, "shop", None, "goods", datetime(2020, 5, 13, 9, 30, 10, tzinfo=UTC), properties),
        (1, ADD, 2, None, None, None, None, None),
    ]
    wrong = decoded(
        "debezium-json",
        {"op": "c", "after": {"id": 1}, "source": {"ts_ms": "noon"}},
        metadata={"at": "source.timestamp"},
    )
    assert "metadata column 'at'" in reason(wrong)


def test_only_new_rows_are_read_with_changelog_mode_upsert() -> None:
    found = decoded(
        "debezium-json",
        {"op": "c", "after": {"id": 1, "name": "a"}},
        {"op": "u", "before": None, "after": {"id": 1, "name": "b"}},
        {"op": "d", "before": {"id": 1}},
        changelog_mode="upsert",
    )
    assert rows(found) == [(0, UA, 1, "a"), (1, UA, 1, "b"), (2, D, 1, None)]


def test_canal_has_several_rows_in_a_body_and_values_as_texts() -> None:
    found = decoded(
        "canal-json",
        {
            "type": "INSERT",
            "data": [{"id": "1", "name": "a", "weight": "5.18"}, {"id": "2", "name": "b", "weight": "0"}],
            "old": None,
        },
        {
            "type": "UPDATE",
            "data": [{"id": "1", "name": "x", "weight": "5.18"}, {"id": "2", "name": "y", "weight": "1"}],
            "old": [{"name": "a"}, {"name": None, "weight": "0"}],
        },
        {"type": "DELETE", "data": [{"id": "1", "name": "x", "weight": "5.18"}]},
        {"type": "CREATE", "data": None, "isDdl": True},
        {"type": "ALTER", "data": None, "isDdl": True},
    )
    assert not found.bad
    assert [(*row[:4], str(row[4])) for row in rows(found, "id", "name", "weight")] == [
        (0, ADD, 1, "a", "5.18"),
        (0, ADD, 2, "b", "0.00"),
        (1, UB, 1, "a", "5.18"),
        (1, UA, 1, "x", "5.18"),
        (1, UB, 2, None, "0.00"),  # what is NULL in "old" was NULL
        (1, UA, 2, "y", "1.00"),
        (2, D, 1, "x", "5.18"),
    ]


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ({"type": "TRUNCATE", "isDdl": True}, "'TRUNCATE' removes or renames"),
        ({"type": "UPDATE", "data": [{"id": "1"}, {"id": "2"}], "old": [{}]}, '"data" has 2 rows, and "old" 1'),
        ({"type": "UPDATE", "data": [{"id": "1"}], "old": None}, '"data" has 1 rows, and "old" 0'),
        ({"type": "UPDATE", "data": [{"id": "1"}], "old": [None]}, '"old" has a row that is null'),
        ({"type": "INSERT", "data": []}, '"data" has no row'),
        ({"type": "INSERT", "data": [None]}, '"data" has a row that is null'),
        ({"type": "insert", "data": [{"id": "1"}]}, "'insert', which is none of INSERT, UPDATE, DELETE"),
        ({"data": [{"id": "1"}]}, 'there is no "type"'),
        ({"type": "INSERT", "data": [{"id": "one"}]}, "data[0].id: expected int, got str"),
    ],
)
def test_bad_bodies_of_canal(body: Any, said: str) -> None:
    good = {"type": "UPDATE", "data": [{"id": "7", "name": "n"}], "old": [{"name": "o"}]}
    found = decoded("canal-json", good, body, good)
    assert rows(found) == [(0, UB, 7, "o"), (0, UA, 7, "n"), (2, UB, 7, "o"), (2, UA, 7, "n")]
    assert [each.row for each in found.bad] == [1]
    assert said in found.bad[0].reason


def test_canal_metadata_and_tables() -> None:
    body = {
        "type": "INSERT", "data": [{"id": "1"}, {"id": "2"}], "database": "shop", "table": "goods", "ts": 2000, "es": 1000,
        "pkNames": ["id"], "sqlType": {"id": 4, "name": 12},
    }  # fmt: skip
    names = ["database", "table", "sql-type", "pk-names", "ingestion-timestamp", "event-timestamp"]
    metadata = {f"m{at}": name for at, name in enumerate(names)}
    first, second = (datetime(1970, 1, 1, 0, 0, at, tzinfo=UTC) for at in (1, 2))
    found = decoded("canal-json", body, metadata=metadata)
    assert rows(found, "id", *metadata) == [
        (0, ADD, id, "shop", "goods", '{"id":"4","name":"12"}', ["id"], second, first) for id in (1, 2)
    ]
    # A body of another table is left out, also if its columns have other types or it is no change at all.
    others = [
        {**body, "table": "people"},
        {"table": "people", "type": "INSERT", "data": [{"id": "x"}]},
        {"table": "people"},
    ]
    chosen: list[dict[str, Any]] = [
        {"table_include": "good.*"},
        {"database_include": "shop", "table_include": "goods|x"},
    ]
    for options in chosen:
        found = decoded("canal-json", *others, body, **options)
        assert rows(found, "id") == [(3, ADD, 1), (3, ADD, 2)]
        assert not found.bad
    assert not decoded("canal-json", body, database_include="sho").frame.height
    assert decoded("canal-json", {"table": "goods", "type": "INSERT", "data": [{"id": "x"}]}, table_include="goods").bad


def test_maxwell() -> None:
    found = decoded(
        "maxwell-json",
        {"type": "bootstrap-start", "table": "goods", "data": {}},
        {"type": "bootstrap-insert", "data": {"id": 1, "name": "a"}},
        {
            "type": "insert",
            "data": {"id": 2, "name": "b"},
            "ts": 1_596_684_893,
            "primary_key_columns": ["id"],
            "database": "d",
            "table": "t",
        },
        {"type": "update", "data": {"id": 1, "name": "x"}, "old": {"name": None}},
        {"type": "delete", "data": {"id": 1, "name": "x"}},
        {"type": "table-alter", "sql": "…"},
        metadata={"at": "ingestion-timestamp", "pk": "primary-key-columns", "d": "database", "t": "table"},
    )
    assert not found.bad
    moment = datetime(2020, 8, 6, 3, 34, 53, tzinfo=UTC)
    assert rows(found, "id", "name", "at", "pk", "d", "t") == [
        (1, ADD, 1, "a", None, None, None, None),
        (2, ADD, 2, "b", moment, ["id"], "d", "t"),
        (3, UB, 1, None, None, None, None, None),
        (3, UA, 1, "x", None, None, None, None),
        (4, D, 1, "x", None, None, None, None),
    ]
    assert "'table-drop' removes" in reason(decoded("maxwell-json", {"type": "table-drop"}))
    assert "none of insert" in reason(decoded("maxwell-json", {"type": "heartbeat"}))


def test_ogg() -> None:
    body = {
        "table": "OGG.GOODS", "op_type": "U", "op_ts": "2020-05-13 17:39:35.766000", "current_ts": "2020-05-13T17:39:36.766000",
        "primary_keys": ["id"], "before": {"id": 1, "name": "a"}, "after": {"id": 1, "name": "b"},
    }  # fmt: skip
    metadata = {"t": "table", "pk": "primary-keys", "at": "event-timestamp", "then": "ingestion-timestamp"}
    found = decoded(
        "ogg-json", body, {"op_type": "I", "after": {"id": 2}}, {"op_type": "D", "before": {"id": 2}}, metadata=metadata
    )
    moments = (datetime(2020, 5, 13, 17, 39, second, 766000, tzinfo=UTC) for second in (35, 36))
    about = ("OGG.GOODS", ["id"], *moments)
    assert rows(found, "id", "name", *metadata) == [
        (0, UB, 1, "a", *about),
        (0, UA, 1, "b", *about),
        (1, ADD, 2, None, None, None, None, None),
        (2, D, 2, None, None, None, None, None),
    ]
    assert "LOGALLSUPCOLS" in reason(decoded("ogg-json", {"op_type": "U", "after": {"id": 1}}))
    assert "truncated" in reason(decoded("ogg-json", {"op_type": "T"}))
    assert not decoded("ogg-json", body, table_include="OGG.PEOPLE").frame.height


def test_changelog() -> None:
    marks = ["+I", "-U", "+U", "-D"]
    bodies = [{"op": mark, "data": {"id": at}} for at, mark in enumerate(marks)]
    assert rows(decoded("changelog-json", *bodies), "id") == [(0, ADD, 0), (1, UB, 1), (2, UA, 2), (3, D, 3)]
    assert rows(decoded("changelog-json", *bodies, changelog_mode="upsert"), "id") == [
        (0, ADD, 0),
        (2, UA, 2),
        (3, D, 3),
    ]
    assert "none of +I, -U, +U, -D" in reason(decoded("changelog-json", {"op": "I", "data": {"id": 1}}))
    assert '"data" is missing' in reason(decoded("changelog-json", {"op": "+I"}))


@pytest.mark.parametrize(
    ("format", "body"),
    [
        ("debezium-json", {"op": "u", "before": {"id": 1}, "after": {"id": "not read"}}),
        ("canal-json", {"type": "UPDATE", "data": [{"id": "not read"}], "old": [{}]}),
        ("maxwell-json", {"type": "update", "data": {"id": "not read"}, "old": {}}),
    ],
)
def test_rows_are_counted_though_no_column_is_read(format: str, body: Any) -> None:
    found = decoded(format, body, columns=[])
    assert found.frame.columns == [CHANGE]
    assert found.frame[CHANGE].to_list() == [UB, UA]


def test_json_columns_hold_the_text_of_a_value() -> None:
    schema = Schema.of({"id": "int64", "extra": "string"})
    after = b'{"op":"c","after":{"id":1,"extra":{"a": [1]}}}'
    found = decoded("debezium-json", after, schema=schema, json_columns=["extra"])
    assert found.frame["extra"].to_list() == ['{"a": [1]}']


def test_a_schema_is_not_written() -> None:
    kind = default_registry().find("codec", "debezium-json")
    with pytest.raises(OptionError, match="only be read, not written"):
        kind(kind.Settings.of({"schema_include": True}, plugin="debezium-json")).encoder(SCHEMA)


def test_wrong_options() -> None:
    with pytest.raises(OptionError, match="not a regular expression"):
        decoded("canal-json", table_include="(")
    with pytest.raises(OptionError, match="'cloumn' is not in the schema"):
        decoded("debezium-json", json_columns=["cloumn"])
    with pytest.raises(OptionError, match="unusable time layout"):
        decoded("maxwell-json", timestamp_format="%Q")
    with pytest.raises(OptionError, match="'idd' is not in the schema"):
        decoded("ogg-json", columns=["idd"])
