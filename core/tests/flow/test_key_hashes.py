"""The hash of texts is the one that its description says, value by value: state is stored by it."""

from __future__ import annotations

import polars as pl
import pytest
from headrace.flow import key_hashes as module
from headrace.flow.key_hashes import key_hashes
from hypothesis import given
from hypothesis import strategies as st

_MASK = 2**64 - 1
_TEXTS = st.lists(st.none() | st.text(max_size=12) | st.text("ab", min_size=40, max_size=90), max_size=30)


def mixed(value: int) -> int:
    """Return splitmix64's finalizer of a value."""
    z = (value + 0x9E3779B97F4A7C15) & _MASK
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & _MASK
    return z ^ (z >> 31)


def of_text(text: str | None) -> int:
    if text is None:
        return mixed(0x6A09E667F3BCC909)
    body = text.encode()
    polynomial = sum((byte + 1) * pow(0x100000001B3, place, 2**64) for place, byte in enumerate(body))
    return mixed(mixed((polynomial + len(body) * 0x9E3779B97F4A7C15) & _MASK))


@pytest.mark.parametrize("has_arrow", [True, False])
@pytest.mark.parametrize("by_place_rows_min", [1, 2**30])
@pytest.mark.parametrize("block_bytes", [1, 7, 64, 2**16])
@given(texts=_TEXTS, left_out=st.integers(0, 3), few_bytes=st.sampled_from((0, 512)))
def test_texts(
    block_bytes: int, by_place_rows_min: int, has_arrow: bool, texts: list[str | None], left_out: int, few_bytes: int
) -> None:
    frame = pl.DataFrame({"k": pl.Series(texts, dtype=pl.String)}).slice(left_out)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "_HAS_ARROW", has_arrow)
        patch.setattr(module, "_BLOCK_BYTES", block_bytes)
        patch.setattr(module, "_FEW_BYTES", few_bytes)
        patch.setattr(module, "_BY_PLACE_ROWS_MIN", by_place_rows_min)
        assert key_hashes(frame, ["k"]).tolist() == [of_text(text) for text in texts[left_out:]]


def test_hashes_stay_what_they_are() -> None:
    frame = pl.DataFrame({"t": ["", "a", "user-17", "Zürich"], "n": [0, 1, -1, 2**40]})
    assert key_hashes(frame, ["t", "n"]).tolist() == [
        16156571795372536178,
        9840397454001709525,
        1151067200253613356,
        7916397872229225240,
    ]
