"""State as bytes: put together in memory or outside of it, it is the same."""

from __future__ import annotations

from typing import Any

import polars as pl
import pytest
from headrace.foundation.checksums import sealed
from headrace.interfaces import frozen_state
from headrace.interfaces.frozen_state import FrozenState, StateContent
from headrace.runtime.state_frames import pack, pack_into, unpack

FRAMES = {
    "set": pl.concat([pl.DataFrame({"k": ["a", None], "v": [n, 2]}) for n in range(3)], rechunk=False),
    "gone": pl.DataFrame({"slot": []}, schema={"slot": pl.Int64}),
}
VALUES: dict[str, Any] = {"time": 7, "names": ["a"]}


@pytest.mark.parametrize("large", [False, True])
@pytest.mark.parametrize("seal", [False, True])
def test_what_is_packed_into_a_content_is_what_pack_returns(large: bool, seal: bool) -> None:
    content = StateContent(large=large)
    pack_into(content, "snapshot", FRAMES, VALUES)
    made = content.end(seal=seal)
    if seal:
        made, with_checksum = made[:-8], made
        assert with_checksum == sealed(made)
    (kind, frames, values), (_, others, _) = unpack(made), unpack(pack("snapshot", FRAMES, VALUES))
    assert (kind, values) == ("snapshot", VALUES)
    assert all(frames[name].equals(others[name]) for name in FRAMES)


def test_a_frozen_state_is_the_same_when_it_is_made_and_when_it_is_put() -> None:
    for rows in (1, frozen_state.LARGE_ROWS_MIN):
        state = FrozenState.written(lambda content: pack_into(content, "delta", FRAMES), rows)
        content = StateContent(large=False)
        state.put(content)
        assert content.end() == state.make()
        assert unpack(state.make())[1]["set"].equals(FRAMES["set"])
    content = StateContent(large=False)
    FrozenState.of(b"bytes").put(content)
    assert content.end() == b"bytes"


def test_a_part_that_is_too_long_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(frozen_state, "_BINARY_BYTES_MAX", 3)
    content = StateContent(large=False)
    with pytest.raises(OverflowError, match="use more shards"), content.binary():
        content.write(b"four")


def test_a_content_is_read_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(frozen_state, "_READ_BYTES_MAX", 5)
    content = StateContent(large=True)
    content.write(b"more than five bytes")
    assert content.end() == b"more than five bytes"
    assert StateContent(large=True).end() == b""
