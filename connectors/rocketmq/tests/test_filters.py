"""Filters, as they are told to brokers and applied again."""

from __future__ import annotations

import pytest
from headrace_rocketmq import Filter, MessageQueue
from headrace_rocketmq.batch import BatchDecoder
from headrace_rocketmq.errors import ConfigurationError
from headrace_rocketmq.filters import java_string_hash

from .stored_messages import StoredMessage


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", 0),
        ("a", 97),
        ("hello", 99162322),
        ("Aa", 2112),
        ("BB", 2112),
        ("polygenelubricants", -(2**31)),
        ("😀", 1772899),
    ],
)
def test_java_hashes(text: str, expected: int) -> None:
    assert java_string_hash(text) == expected


def test_a_filter_by_tags() -> None:
    chosen = Filter.by_tags("red", "blue")
    assert not chosen.is_everything
    assert chosen.pull_fields()["subscription"] == "red || blue"
    assert chosen.pull_fields()["expressionType"] == "TAG"
    subscription = chosen.subscription("t")
    assert subscription["tagsSet"] == ["blue", "red"]
    assert subscription["codeSet"] == sorted([java_string_hash("red"), java_string_hash("blue")])


def test_a_filter_by_sql() -> None:
    chosen = Filter.by_sql("a > 1")
    assert not chosen.is_everything
    assert chosen.pull_fields()["expressionType"] == "SQL92"
    assert chosen.subscription("t")["tagsSet"] == []


def test_no_filter() -> None:
    assert Filter.everything().is_everything
    assert Filter.everything().pull_fields()["subscription"] == "*"


@pytest.mark.parametrize("tags", [(), ("",), ("a||b",), (" a",), ("*",)])
def test_tags_that_would_mean_something_else_are_refused(tags: tuple[str, ...]) -> None:
    with pytest.raises(ConfigurationError):
        Filter.by_tags(*tags)


def test_an_empty_condition_is_refused() -> None:
    with pytest.raises(ConfigurationError):
        Filter.by_sql("  ")


def test_tags_of_equal_hash_are_told_apart() -> None:
    decoder = BatchDecoder(MessageQueue("t", "b", 0))
    for offset, tag in enumerate([b"Aa", b"BB", b"Aa", None]):
        properties = b"" if tag is None else b"TAGS\x01" + tag + b"\x02"
        decoder.add(StoredMessage(body=b"%d" % offset, offset=offset, properties=properties).encode())
    batch = Filter.by_tags("Aa").apply(decoder.finish(next_offset=4))
    assert batch.bodies == [b"0", b"2"]
    assert batch.offsets.tolist() == [0, 2]
    assert batch.next_offset == 4
