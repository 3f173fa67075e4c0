"""What the tests of all codecs share: looking at a decoded batch body by body, and decoding in every cut."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
from headrace.codecs.text_columns import UNEXPLAINED
from headrace.flow.messages import Bodies
from headrace.interfaces.codec import Decoder

#: Per body either its row or its reason.
Outcomes = list[tuple[Any, ...] | str]


def outcomes_of(decoder: Decoder, bodies: Bodies) -> Outcomes:
    decoded = decoder.decode(bodies)
    rows = range(len(bodies)) if decoded.rows is None else decoded.rows.tolist()
    assert len(rows) == decoded.frame.height
    assert [body.row for body in decoded.bad] == sorted(set(range(len(bodies))) - set(rows))
    found: dict[int, tuple[Any, ...] | str] = {body.row: body.reason for body in decoded.bad}
    found |= dict(zip(rows, decoded.frame.rows() if decoded.frame.width else [()] * len(rows), strict=True))
    assert UNEXPLAINED not in found.values()
    return [found[row] for row in range(len(bodies))]


def framed(bodies: Sequence[bytes]) -> Bodies:
    """Bodies with bytes between them that are neither text nor line breaks."""
    gap = b"\xff\xfe"
    lengths = np.array([len(body) for body in bodies], dtype=np.int64)
    ends = np.cumsum(lengths + len(gap))
    return Bodies(gap + gap.join(bodies), ends - lengths, ends)


@pytest.fixture(scope="session")
def outcomes() -> Callable[[Decoder, Sequence[bytes]], Outcomes]:
    """Decode in one batch, and check that one by one, in two halves, framed and backwards give the same."""

    def decode_every_way(decoder: Decoder, bodies: Sequence[bytes]) -> Outcomes:
        together = outcomes_of(decoder, Bodies.of(bodies))
        shown = [repr(outcome) for outcome in together]  # NaN differs from itself, its repr does not
        single = [repr(outcome) for body in bodies for outcome in outcomes_of(decoder, Bodies.of([body]))]
        assert single == shown
        middle = len(bodies) // 3
        halves = [outcomes_of(decoder, Bodies.of(part)) for part in (bodies[:middle], bodies[middle:])]
        assert [repr(outcome) for half in halves for outcome in half] == shown
        assert [repr(outcome) for outcome in outcomes_of(decoder, framed(bodies))] == shown
        backwards = outcomes_of(decoder, Bodies.of(list(reversed(bodies))))
        assert [repr(outcome) for outcome in reversed(backwards)] == shown
        return together

    return decode_every_way
