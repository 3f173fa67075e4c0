"""Ids as offsets, and when a reader has lost entries; without a server."""

from __future__ import annotations

import pytest
from headrace.foundation.errors import DataError, OptionError
from headrace_redis import RedisSinkSettings, RedisSourceSettings
from headrace_redis.entry_ids import id_of, offset_of
from headrace_redis.streams import StreamState

IDS = ["0-1", "1-0", "1-1", "1-2097151", "2-0", "1767225600000-0", "1767225600000-7", "4398046511103-2097151"]


def test_offsets_have_the_order_of_ids_and_give_them_back() -> None:
    offsets = [offset_of(each, "s") for each in IDS]
    assert offsets == sorted(set(offsets))
    assert [id_of(each) for each in offsets] == IDS
    assert offsets[-1] == 2**63 - 1


@pytest.mark.parametrize("entry_id", ["1-2097152", "4398046511104-0", "1-18446744073709551615"])
def test_an_id_that_is_no_offset_is_named(entry_id: str) -> None:
    with pytest.raises(DataError, match=f"entry {entry_id} of stream 'orders'"):
        offset_of(entry_id, "orders")


def state(first: int | None, last_added: int, *, length: int, added: int | None, deleted: int = 0) -> StreamState:
    return StreamState("orders", last_added, first, None if first is None else last_added, length, added, deleted)


@pytest.mark.parametrize(
    ("found", "next_offset", "read"),
    [
        (state(11, 20, length=10, added=20), 11, 10),  # trimmed up to what was read
        (state(15, 20, length=6, added=16), 11, 10),  # the same, with a gap in the ids
        (state(15, 20, length=6, added=None), 15, None),  # nothing fits between
        (state(1, 20, length=19, added=20), 11, 10),  # the last one that was read was removed by itself
        (state(None, 20, length=0, added=20), 21, 20),
    ],
)
def test_nothing_is_lost(found: StreamState, next_offset: int, read: int | None) -> None:
    found.check(next_offset, read)


@pytest.mark.parametrize(
    ("found", "next_offset", "read", "reason"),
    [
        (state(15, 20, length=6, added=20), 11, 10, "4 entries from there on were removed"),
        (state(None, 20, length=0, added=20), 11, 10, "10 entries from there on were removed"),
        (state(15, 20, length=6, added=None), 11, 10, "may have been removed"),
        (state(15, 20, length=6, added=20), 11, None, "may have been removed"),
        (state(15, 20, length=6, added=6), 11, 10, "deleted and made anew"),
        (state(1, 5, length=5, added=5), 11, 10, "lost entries, or the key was deleted and made anew"),
    ],
)
def test_what_is_lost_is_named(found: StreamState, next_offset: int, read: int | None, reason: str) -> None:
    with pytest.raises(DataError, match=reason) as raised:
        found.check(next_offset, read)
    text = str(raised.value)
    assert "stream 'orders'" in text
    assert f"entry {id_of(next_offset - 1)}" in text
    assert raised.value.queue == "orders"


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"stream": "s", "host": "redis.example.org", "password": "x"}, "password would be sent unencrypted"),
        ({"stream": "s", "user": "ann"}, "a user needs a password"),
        ({"stream": "s", "ssl_key": "k"}, "together with ssl_certificate"),
        ({"stream": " , "}, "list of streams is empty"),
    ],
)
def test_bad_options_of_sources(options: dict[str, object], reason: str) -> None:
    with pytest.raises(OptionError, match=reason):
        RedisSourceSettings.of(options, plugin="redis")


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({}, "either stream or key"),
        ({"stream": "s", "key": "id"}, "either stream or key"),
        ({"key": "id", "max_length": 10}, "it is only for streams"),
        ({"stream": "s", "ttl": "1 h"}, "it is only for rows by key"),
        ({"key": "id", "ttl": 0}, "shorter than 1 ms"),
        ({"key": []}, "list of columns is empty"),
    ],
)
def test_bad_options_of_sinks(options: dict[str, object], reason: str) -> None:
    with pytest.raises(OptionError, match=reason):
        RedisSinkSettings.of(options, plugin="redis")
