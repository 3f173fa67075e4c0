"""What comes over a connection is cut into the same messages, wherever its pieces end."""

from __future__ import annotations

import random

import pytest
from headrace_syslog.framing import Framer, FramingError
from taking import counted

MESSAGES = [b"<13>a", b"x" * 100, b"<13>1 - two words", b"\xff\x00", b"<1>" + b"y" * 497]


def cut(data: bytes, size: int, message_bytes: int = 500) -> tuple[list[bytes], Framer, bool]:
    """Return the messages of data that comes in pieces of a size, and whether one is incomplete."""
    framer = Framer(message_bytes)
    found: list[bytes] = []
    for place in range(0, len(data), size):
        found += framer.feed(data[place : place + size])
    last, incomplete = framer.end()
    return [*found, *last], framer, incomplete


@pytest.mark.parametrize("size", [1, 2, 3, 7, 64, 10_000])
@pytest.mark.parametrize(
    ("data", "messages", "too_long"),
    [
        (b"", [], 0),
        (b"".join(each + b"\n" for each in MESSAGES), MESSAGES, 0),
        (b"\n".join(MESSAGES), MESSAGES, 0),
        (b"\n\r\n<13>a\n\n<13>b\r\n\n", [b"<13>a", b"<13>b\r"], 0),
        (b"<13>a\n" + b"z" * 501 + b"\n<13>b\n", [b"<13>a", b"<13>b"], 1),
        (b"z" * 2000 + b"\n<13>b\n" + b"z" * 600 + b"\n", [b"<13>b"], 2),
        (counted(*MESSAGES), MESSAGES, 0),
        (counted(b"two\nlines", b"", b"<13>b"), [b"two\nlines", b"<13>b"], 0),
        (counted(b"<13>a") + b"\n" + counted(b"<13>b") + b"\n", [b"<13>a", b"<13>b"], 0),
        (counted(b"<13>a", b"z" * 501, b"<13>b"), [b"<13>a", b"<13>b"], 1),
    ],
)
def test_messages(size: int, data: bytes, messages: list[bytes], too_long: int) -> None:
    found, framer, incomplete = cut(data, size)
    assert (found, framer.too_long, incomplete) == (messages, too_long, False)


def test_pieces_of_any_size() -> None:
    chance = random.Random(20261126)
    messages = [bytes(chance.choices(range(11, 256), k=chance.randint(1, 300))) for _ in range(200)]
    for data in (counted(*messages), b"<13>x\n" + b"".join(each + b"\n" for each in messages)):
        framer = Framer(500)
        found: list[bytes] = []
        place = 0
        while place < len(data):
            size = chance.choice((1, 5, 100, 3000))
            found += framer.feed(data[place : place + size])
            place += size
        assert [each for each in found if each != b"<13>x"] == [each for each in messages if each != b"\r"]


@pytest.mark.parametrize("data", [b"5 <13", b"10", b"600 xx"])
def test_an_incomplete_message(data: bytes) -> None:
    found, _, incomplete = cut(data, 2)
    assert (found, incomplete) == ([], True)


def test_a_line_that_is_too_long_and_never_ends() -> None:
    assert cut(b"z" * 600, 100)[2] is False
    assert cut(b"z" * 600, 100)[1].too_long == 1


@pytest.mark.parametrize("data", [b"5 <13>a<13>b\n", b"1a <13>", b"99999999999 x", b"5x"])
def test_no_frame(data: bytes) -> None:
    with pytest.raises(FramingError, match="is not an octet count"):
        cut(data, 1)


def test_messages_in_front_of_what_is_no_frame_are_not_lost() -> None:
    with pytest.raises(FramingError) as caught:
        Framer(500).feed(b"5 <13>a6 <13>bcno frame")
    assert list(caught.value.whole) == [b"<13>a", b"<13>bc"]
