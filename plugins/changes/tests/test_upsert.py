"""The format ``upsert``: keys and values of records, tombstones, and records that lack what is needed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from headrace.flow.messages import CHANGE, ChangeKind
from headrace.flow.schema import Schema
from headrace.foundation.errors import OptionError
from headrace.interfaces.codec import Decoded
from headrace_changes.upsert import UpsertCodec, UpsertSettings
from keyed_batches import keyed_batch

UA, D = ChangeKind.UPDATE_AFTER, ChangeKind.DELETE
SCHEMA = Schema.of({"id": "int64", "name": "string", "weight": "float64"})


def decoded(
    records: Sequence[tuple[bytes | None, bytes]],
    *,
    key: Sequence[str] = ("id",),
    columns: Sequence[str] | None = None,
    schema: Schema = SCHEMA,
    **options: Any,
) -> Decoded:
    codec = UpsertCodec(UpsertSettings.of(options, plugin="upsert"))
    codec.use_key(schema, key)
    return codec.record_decoder(schema, columns).decode_records(keyed_batch(records))


def rows(found: Decoded, *names: str) -> list[tuple[Any, ...]]:
    assert found.rows is not None
    chosen = found.frame.select(CHANGE, *(names or ("id", "name")))
    return [(number, *row) for number, row in zip(found.rows.tolist(), chosen.rows(), strict=True)]


def test_the_last_value_of_a_key_is_its_row() -> None:
    found = decoded([(b"1", b'{"id": 1, "name": "a"}'), (b"2", b""), (b"1", b'{"name": "b", "weight": 0.5}')])
    assert rows(found, "id", "name", "weight") == [(0, UA, 1, "a", None), (1, D, 2, None, None), (2, UA, 1, "b", 0.5)]


def test_key_columns_come_from_the_key() -> None:
    assert rows(decoded([(b"1", b'{"id": 99, "name": "a"}')])) == [(0, UA, 1, "a")]


def test_keys_of_several_columns() -> None:
    found = decoded(
        [(b'{"id": 1, "name": "a"}', b'{"weight": 2}'), (b'{"id": 1, "name": null}', b"")],
        key=("id", "name"),
        key_format="json",
        value_fields_include="except_key",
    )
    assert rows(found, "id", "name", "weight") == [(0, UA, 1, "a", 2.0), (1, D, 1, None, None)]


def test_names_of_key_columns_may_have_a_prefix() -> None:
    schema = Schema.of({"k_id": "int64", "id": "string"})
    found = decoded(
        [(b'{"id": 1}', b'{"id": "x"}')],
        key=("k_id",),
        schema=schema,
        key_format="json",
        key_prefix="k_",
        value_fields_include="except_key",
    )
    assert rows(found, "k_id", "id") == [(0, UA, 1, "x")]
    with pytest.raises(OptionError, match="does not begin with 'k_'"):
        decoded([], key=("id",), key_prefix="k_")


def test_a_record_without_a_key() -> None:
    records = [(None, b'{"id": 3, "name": "a"}'), (None, b""), (b"1", b'{"name": "b"}')]
    found = decoded(records)
    assert rows(found) == [(0, UA, 3, "a"), (2, UA, 1, "b")]
    assert [(each.row, "no key" in each.reason) for each in found.bad] == [(1, True)]
    found = decoded(records, value_fields_include="except_key")
    assert rows(found) == [(2, UA, 1, "b")]
    assert [each.row for each in found.bad] == [0, 1]


def test_bad_keys_and_values() -> None:
    found = decoded([(b"one", b"{}"), (b"2", b"{"), (b"x", b""), (b"4", b'{"name": 1}'), (b"5", b"{}")])
    assert rows(found) == [(4, UA, 5, None)]
    assert [(each.row, each.reason.partition(":")[0]) for each in found.bad] == [
        (0, "the key"),
        (1, "not valid JSON"),
        (2, "the key"),
        (3, "column 'name'"),
    ]


def test_columns_can_be_chosen() -> None:
    records = [(b"1", b'{"id": 1, "name": "a", "weight": 1}'), (b"2", b"")]
    for columns in ([], ["weight"], ["name", "id"]):
        found = decoded(records, columns=columns)
        assert found.frame.columns == [*columns, CHANGE]
        assert found.frame[CHANGE].to_list() == [UA, D]


def test_no_records() -> None:
    found = decoded([])
    assert dict(found.frame.schema) == {**dict(SCHEMA), CHANGE: found.frame[CHANGE].dtype}


def test_values_of_other_formats() -> None:
    found = decoded(
        [(b"1", b"7,a,0.5"), (b"1", b"")], value_format="csv", value_options={"columns": ["id", "name", "weight"]}
    )
    assert rows(found, "id", "name", "weight") == [(0, UA, 1, "a", 0.5), (1, D, 1, None, None)]
    with pytest.raises(OptionError, match="contains the kind of each change itself"):
        decoded([], value_format="debezium-json")
