"""The JSON of Java servers."""

from __future__ import annotations

import json

import pytest
from headrace_rocketmq import fastjson
from headrace_rocketmq.errors import ProtocolError
from hypothesis import given
from hypothesis import strategies as st


def test_unquoted_numeric_keys() -> None:
    text = b'{"brokerDatas":[{"brokerAddrs":{0:"10.0.0.1:10911", 1 :"10.0.0.2:10911",-5:null},"brokerName":"a"}]}'
    assert fastjson.loads(text) == {
        "brokerDatas": [{"brokerAddrs": {"0": "10.0.0.1:10911", "1": "10.0.0.2:10911", "-5": None}, "brokerName": "a"}]
    }


def test_what_looks_like_a_key_inside_a_string_stays() -> None:
    assert fastjson.loads(rb'{1:"{2:\"x\",3:4}"}') == {"1": '{2:"x",3:4}'}


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=10,
)


@given(values)
def test_standard_json_is_read_as_ever(value: object) -> None:
    assert fastjson.loads(json.dumps(value).encode()) == value


@given(st.dictionaries(st.integers(), st.text(), min_size=1, max_size=5))
def test_any_map_with_unquoted_keys(entries: dict[int, str]) -> None:
    text = "{" + ",".join(f"{key}:{json.dumps(value)}" for key, value in entries.items()) + "}"
    assert fastjson.loads(text.encode()) == {str(key): value for key, value in entries.items()}


@pytest.mark.parametrize("text", [b"", b"{", b'{"a":}', b"\xff\xfe", b"<html>"])
def test_anything_else_is_a_protocol_error(text: bytes) -> None:
    with pytest.raises(ProtocolError):
        fastjson.loads(text)
