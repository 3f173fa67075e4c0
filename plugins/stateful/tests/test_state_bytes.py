"""The states of user aggregates survive a checkpoint as what they were."""

from __future__ import annotations

import datetime
from decimal import Decimal
from typing import Any

import msgspec
import pytest
from headrace_stateful.aggregates.state_bytes import packed, unpacked
from hypothesis import given
from hypothesis import strategies as st

PLAIN = (
    st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.floats(allow_nan=False) | st.text() | st.binary()
)
KEYS = st.text() | st.integers(0, 9) | st.dates() | st.decimals(allow_nan=False, allow_infinity=False)
VALUES = (
    PLAIN
    | st.dates()
    | st.datetimes()
    | st.times()
    | st.timedeltas()
    | st.decimals(allow_nan=False, allow_infinity=False)
)
STATES = st.recursive(
    VALUES, lambda inner: st.lists(inner) | st.dictionaries(KEYS, inner) | st.sets(KEYS), max_leaves=12
)


@given(STATES)
def test_a_state_comes_back_as_it_was(state: Any) -> None:
    back = unpacked(packed(state))
    assert back == state
    assert type(back) is type(state)


@given(st.recursive(PLAIN, lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner), max_leaves=12))
def test_plain_states_have_the_bytes_that_they_always_had(state: Any) -> None:
    assert packed(state) == msgspec.msgpack.encode(state)
    assert unpacked(msgspec.msgpack.encode(state)) == state


def test_equal_sets_have_equal_bytes() -> None:
    assert packed({f"k{n}" for n in range(50)}) == packed({f"k{n}" for n in reversed(range(50))})


def test_times_keep_their_zone() -> None:
    moment = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)
    assert unpacked(packed([moment, Decimal("1.50")])) == [moment, Decimal("1.50")]
    assert unpacked(packed(Decimal("1.50"))).as_tuple() == Decimal("1.50").as_tuple()


def test_what_cannot_be_kept_is_refused() -> None:
    with pytest.raises(TypeError):
        packed(object())
    with pytest.raises(ValueError, match="newer version"):
        unpacked(msgspec.msgpack.encode(msgspec.msgpack.Ext(99, b"")))
