"""Records of a buffer, with carriage returns and blank ones among them."""

from __future__ import annotations

import numpy as np
from headrace_file.segment import make_segment
from hypothesis import given
from hypothesis import strategies as st

LINES = st.lists(st.sampled_from([b"", b"\r", b"a", b"a\r", b"a\rb", b"\r\r"]), min_size=1, max_size=6)


@given(LINES, st.booleans(), st.sampled_from([b"", b"before\r\n"]))
def test_carriage_returns_before_newlines_and_blank_records_are_left_out(
    lines: list[bytes], keep_blank: bool, before: bytes
) -> None:
    buffer = before + b"".join(line + b"\n" for line in lines)
    ends = np.cumsum([len(line) + 1 for line in lines]) - 1 + len(before)
    starts = ends - [len(line) for line in lines]
    found = make_segment(buffer, starts, ends, 7, keep_blank=keep_blank, build=True)
    bodies = [line.removesuffix(b"\r") for line in lines]
    wanted = [(7 + place, body) for place, body in enumerate(bodies) if body or keep_blank]
    assert list(zip(found.offsets.tolist(), list(found.bodies), strict=True)) == wanted
    assert found.count == len(lines)
