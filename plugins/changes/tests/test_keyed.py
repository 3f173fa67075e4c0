"""The format ``keyed``: columns of the key and of the value put together."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from headrace.flow.schema import Schema
from headrace.foundation.errors import OptionError
from headrace.interfaces.codec import BadBody, Decoded
from headrace_changes.keyed import KeyedCodec, KeyedSettings
from keyed_batches import keyed_batch

SCHEMA = Schema.of({"id": "int64", "name": "string", "weight": "float64"})


def decoded(
    records: Sequence[tuple[bytes | None, bytes]],
    *,
    columns: Sequence[str] | None = None,
    schema: Schema = SCHEMA,
    key_columns: Sequence[str] = ("id",),
    **options: Any,
) -> Decoded:
    codec = KeyedCodec(KeyedSettings.of({"key_columns": list(key_columns), **options}, plugin="keyed"))
    return codec.record_decoder(schema, columns).decode_records(keyed_batch(records))


def rows(found: Decoded, *names: str) -> list[tuple[Any, ...]]:
    assert found.rows is not None
    return [(number, *row) for number, row in zip(found.rows.tolist(), found.frame.select(names).rows(), strict=True)]


def test_columns_of_the_key_are_not_looked_for_in_the_value() -> None:
    found = decoded([(b"1", b'{"id": "other", "name": "a"}'), (None, b'{"name": "b", "weight": 2}')])
    assert rows(found, "id", "name", "weight") == [(0, 1, "a", None), (1, None, "b", 2.0)]
    assert not found.bad


def test_a_fault_of_the_key_or_of_the_value_is_that_of_the_record() -> None:
    found = decoded([(b"x", b'{"name": "a"}'), (b"2", b""), (b"3", b'{"name": "c"}'), (b"y", b"{")])
    assert rows(found, "id", "name") == [(2, 3, "c")]
    assert found.bad == [
        BadBody(0, "the key: column 'id': expected int64, found \"x\""),
        BadBody(1, "the body is empty"),
        BadBody(3, "the key: column 'id': expected int64, found \"y\""),
    ]


def test_keys_of_several_columns_with_a_prefix() -> None:
    found = decoded(
        [(b'{"id": 1, "at": "2024-01-02 03:04:05"}', b'{"id": "x"}')],
        schema=Schema.of({"id": "string", "k_id": "int64", "k_at": "timestamp"}),
        key_columns=["k_id", "k_at"],
        key_prefix="k_",
        key_format="json",
    )
    assert [(str(at), *rest) for _, *rest, at in rows(found, "id", "k_id", "k_at")] == [
        ("2024-01-02 03:04:05+00:00", "x", 1)
    ]


@pytest.mark.parametrize("columns", [[], ["weight"], ["id"], ["name", "id"]])
def test_columns_can_be_chosen(columns: list[str]) -> None:
    found = decoded([(b"1", b'{"name": "a", "weight": 1}'), (b"2", b'{"name": "b"}')], columns=columns)
    assert found.rows is not None
    assert (found.frame.columns, found.rows.tolist()) == (columns, [0, 1])
    records: list[dict[str, Any]] = [{"id": 1, "name": "a", "weight": 1.0}, {"id": 2, "name": "b", "weight": None}]
    expected = [(number, *(row[name] for name in columns)) for number, row in enumerate(records)]
    assert not columns or rows(found, *columns) == expected


def test_a_key_that_no_column_is_read_from_is_not_checked() -> None:
    assert rows(decoded([(b"x", b'{"name": "a"}')], columns=["name"]), "name") == [(0, "a")]


def test_no_records() -> None:
    assert dict(decoded([]).frame.schema) == dict(SCHEMA)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"key_columns": []}, "list of columns is empty"),
        ({"key_columns": ["di"]}, "column 'di' is not in the schema"),
        ({"key_prefix": "k_"}, "the key column 'id' does not begin with 'k_'"),
        ({"value_format": "debezium-json"}, "contains the kind of each change itself"),
    ],
)
def test_what_does_not_go_together_is_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(OptionError, match=message):
        decoded([], **options)


def test_it_is_for_reading() -> None:
    with pytest.raises(OptionError, match="can only be read"):
        KeyedCodec(KeyedSettings(key_columns=["id"])).encoder(SCHEMA)
