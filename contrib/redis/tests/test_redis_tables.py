"""Keys as the rows of a table: hashes, JSON objects and strings, looked up by jobs and in SQL. On a real server."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import headrace as hr
import pytest
from headrace.foundation.errors import DataError, HeadraceError
from headrace_redis import RedisSource, RedisSourceSettings
from redis_world import login

from tests.servers.redis import RedisServer

of_server = pytest.mark.servers
_ZERO = timedelta(0)


@pytest.fixture
def prefix(fresh_name: Callable[[str], str]) -> str:
    return fresh_name("t*[e]") + ":"


def table(server: RedisServer, prefix: str, schema: dict[str, str], **options: Any) -> Any:
    return hr.stream("tests", "tables").from_redis(
        key_prefix=prefix, format="json", schema=schema, **login(server), **options
    )


def looked_up(rows: list[dict[str, Any]], users: Any, **options: Any) -> list[dict[str, Any]]:
    """Return the rows of a stream with a column ``user``, joined with a table."""
    with tempfile.TemporaryDirectory() as directory:
        stream = stream_of(rows, Path(directory), {"user": "string"})
        return _joined(stream, users, options)


def stream_of(rows: list[dict[str, Any]], directory: Path, schema: dict[str, str]) -> Any:
    path = directory / "rows.ndjson"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return hr.stream("tests", "tables").from_file(str(path), format="json", schema=schema)


def _joined(stream: Any, users: Any, options: dict[str, Any]) -> list[dict[str, Any]]:
    return list(stream.lookup_join(users, on="user", how="left", **options).collect().sort("user").rows(named=True))


@of_server
def test_hashes_are_rows_and_the_key_is_a_column(client: Any, redis_server: RedisServer, prefix: str) -> None:
    client.hset(f"{prefix}ann", mapping={"level": 3, "tags": '["a"]', "other": "x"})
    client.hset(f"{prefix}bo", mapping={"user": "not the key", "level": 1})
    client.set(f"{prefix}string", "of another type")
    client.hset("unrelated", mapping={"level": 9})
    users = table(redis_server, prefix, {"user": "string", "level": "int64", "tags": "array<string>"}, key="user")
    assert looked_up([{"user": "ann"}, {"user": "bo"}, {"user": "string"}], users) == [
        {"user": "ann", "level": 3, "tags": ["a"]},
        {"user": "bo", "level": 1, "tags": None},
        {"user": "string", "level": None, "tags": None},
    ]


@of_server
@pytest.mark.parametrize(
    ("value", "schema"), [("json", {"user": "string", "n": "int64"}), ("text", {"user": "string", "n": "int64"})]
)
def test_strings_are_rows(
    client: Any, redis_server: RedisServer, prefix: str, value: str, schema: dict[str, str]
) -> None:
    for number in range(2500):  # more than one request asks for
        client.set(f"{prefix}u{number}", f'{{"n": {number}, "user": "another"}}' if value == "json" else str(number))
    options = {"value_column": "n"} if value == "text" else {}
    users = table(redis_server, prefix, schema, key="user", value=value, **options)
    found = looked_up([{"user": f"u{number}"} for number in range(2500)], users)
    assert sorted(row["n"] for row in found) == list(range(2500))


@of_server
def test_what_the_sink_has_kept_is_a_table(redis_server: RedisServer, prefix: str, tmp_path: Path) -> None:
    rows: list[dict[str, Any]] = [{"user": "a:b", "day": "1%", "n": 1}, {"user": "ä", "day": "", "n": None}]
    for value in ("hash", "json"):
        place = f"{prefix}{value}:"
        stream = stream_of(rows, tmp_path, {"user": "string", "day": "string", "n": "int64"})
        stream.to_redis(key=["user", "day"], key_prefix=place, value=value, **login(redis_server)).run(
            "light", show_progress=False
        )
        schema = {"u": "string", "d": "string", "n": "int64"}
        kept = table(redis_server, place, schema, key=["u", "d"], value=value)
        assert sorted(kept.collect().rows()) == [("a:b", "1%", 1), ("ä", "", None)]


@of_server
def test_a_table_is_read_anew(client: Any, redis_server: RedisServer, prefix: str) -> None:
    from headrace_dimension.lookup_join import LookupJoin

    client.hset(f"{prefix}ann", mapping={"level": 1})
    users = table(redis_server, prefix, {"user": "string", "level": "int64"}, key="user")
    spec = LookupJoin(users, on="user", refresh="1 h")
    assert spec.table().height == 1
    client.hset(f"{prefix}bo", mapping={"level": 2})
    spec.reload()
    assert spec.table().height == 2


def test_options_of_a_table_in_sql_are_those_of_the_source() -> None:
    options = "'connector' = 'redis', 'key-prefix' = 'user:', 'key' = 'name', 'value' = 'json', 'format' = 'json'"
    text = f"CREATE TABLE users (name STRING, level BIGINT) WITH ({options}); SELECT * FROM users"  # noqa: S608
    (source,) = hr.sql(text).plan().sources.values()
    settings = vars(source.source)["settings"]
    assert (settings.key_prefix, settings.key_columns, settings.value, source.format) == (
        "user:", ("name",), "json", "json",
    )  # fmt: skip


@of_server
def test_a_join_in_sql(client: Any, redis_server: RedisServer, prefix: str, tmp_path: Path) -> None:
    client.hset(f"{prefix}ann", mapping={"level": 3})
    (tmp_path / "in.ndjson").write_text('{"name": "ann"}\n{"name": "bo"}\n')
    place = login(redis_server)
    text = """
        CREATE TABLE logins (name STRING, p AS PROCTIME()) WITH ('connector' = 'filesystem', 'path' = '@IN', 'format' = 'json');
        CREATE TABLE users (name STRING, level BIGINT, PRIMARY KEY (name) NOT ENFORCED) WITH ('connector' = 'redis', 'host' = '@HOST',
          'port' = '@PORT', 'user' = '@USER', 'password' = '@PASSWORD', 'key-prefix' = '@PREFIX', 'key' = 'name');
        SELECT l.name, u.level FROM logins AS l LEFT JOIN users FOR SYSTEM_TIME AS OF l.p AS u ON l.name = u.name"""
    values = {
        "IN": str(tmp_path / "in.ndjson"),
        "PREFIX": prefix,
        **{name.upper(): str(value) for name, value in place.items()},
    }
    for name, value in values.items():
        text = text.replace(f"@{name}", value)
    assert sorted(hr.sql(text).collect().rows()) == [("ann", 3), ("bo", None)]


@of_server
def test_keys_that_change_while_a_part_is_read_are_noticed(client: Any, redis_server: RedisServer, prefix: str) -> None:
    for number in range(3):
        client.hset(f"{prefix}{number}", mapping={"n": number})
    given = {"key_prefix": prefix, **login(redis_server)}
    source = RedisSource(RedisSourceSettings.of(given, plugin="redis"))
    source.use_format("json", None, None)
    [queue] = source.queues()
    reader = source.open(queue, hr.EARLIEST)
    client.delete(f"{prefix}1")  # before it is looked for
    assert reader.latest == 2
    client.delete(f"{prefix}0")  # behind that
    raw = reader.poll(1, _ZERO)
    assert raw is not None
    assert len(raw) == 0
    position = reader.position
    raw = reader.poll(10, _ZERO)
    assert raw is not None
    assert raw.bodies is not None
    assert (raw.offsets.tolist(), list(raw.bodies)) == ([1], [b'{"n":"2"}'])
    assert reader.poll(10, _ZERO) is None
    with pytest.raises(DataError, match="keys were added or removed"):
        source.open(queue, position)
    source.close()


@of_server
def test_a_key_of_other_parts_is_told(client: Any, redis_server: RedisServer, prefix: str) -> None:
    client.hset(f"{prefix}a:b", mapping={"n": 1})
    users = table(redis_server, prefix, {"user": "string", "x": "string", "y": "string"}, key=["user", "x", "y"])
    with pytest.raises(HeadraceError, match="has 2 parts, and the table 3 columns"):
        looked_up([{"user": "a"}], users)


@of_server
def test_a_wrong_value_is_told(client: Any, redis_server: RedisServer, prefix: str) -> None:
    client.hset(f"{prefix}a", mapping={"level": "high"})
    users = table(redis_server, prefix, {"user": "string", "level": "int64"}, key="user")
    with pytest.raises(HeadraceError, match="expected int64"):
        looked_up([{"user": "a"}], users)


@pytest.mark.parametrize(
    ("options", "option"),
    [
        ({}, "stream"),
        ({"stream": "a", "key_prefix": "b"}, "stream"),
        ({"stream": "a", "key": "b"}, "key"),
        ({"stream": "a", "value": "json"}, "value"),
        ({"key_prefix": "a", "trim": True}, "trim"),
        ({"key_prefix": "a", "entry": "columns"}, "entry"),
    ],
)
def test_options_that_are_refused(options: dict[str, Any], option: str) -> None:
    with pytest.raises(hr.OptionError, match=f"option '{option}'"):
        RedisSourceSettings.of(options, plugin="redis")


def test_a_table_is_not_followed() -> None:
    source = RedisSource(RedisSourceSettings.of({"key_prefix": "a:"}, plugin="redis"))
    source.use_run(until="end")
    with pytest.raises(hr.OptionError, match="cannot be read continuously"):
        source.use_run(until=None)
    with pytest.raises(hr.OptionError, match="a table produces JSON objects"):
        source.use_format("csv", None, None)
