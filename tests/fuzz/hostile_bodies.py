"""Bodies that a sender with bad intent could write: by rules of each format, then damaged. One seed gives one list."""

from __future__ import annotations

import json
import random
from collections.abc import Callable

#: Texts that some reader takes for more than text: magic numbers of compressed files, byte order marks, comments,
#: line breaks of other systems, numbers of odd forms, times at the edge.
TOKENS = [
    "", " ", "x^", "x\x01", "xڀ", "\ufeff", "\ufeffa", "#", "# a", "//", "\x00", "\x1a", "\x85", "\u2028", "\r", "\t",
    "é", "𝄞", "a\u0301",
    "null", "NULL", "None", "NaN", "nan", "-NaN", "inf", "-inf", "Infinity", "true", "TRUE", "tRuE", "false", "0",
    "-0", "+0", "00", "1_000", "1,000",
    "0x1f", "1e3", "1E400", "-1e-400", "1.", ".5", "5e", "9223372036854775807", "9223372036854775808", "-9223372036854775808",
    "-9223372036854775809", "127", "128", "-129", "99999999999999999999999999999999999999", "0." + "9" * 60, "1" * 400, "١٢", "１２",
    "2024-02-29", "2023-02-29", "0000-01-01", "9999-12-31", "10000-01-01", "-0001-01-01", "2024-01-02T03:04:05Z",
    "2024-01-02 03:04:05.123456789+02:00",
    "2024-01-02T03:04:60Z", "2024-01-02T24:00:00Z", "9999-12-31T23:59:59-14:00", "0001-01-01T00:00:00+14:00",
    "1704164645000", "-62135596800001",
    "99999999999999999", "23:59:59.999999999", "P1D", "PT1.5S", "-PT1M", "P99999999999D", "aGk=", "aGk", "====", "{}",
    "[]", "[1,[2]]", '{"a":1}', '"', "''",
    "\\", "\\N", "\\u0000", "a,b", 'a"b', '""', '"a"', "a\nb", "\n", "x" * 300, "[" * 600 + "]" * 600, "😀" * 50,
]  # fmt: skip


#: Bytes that begin another encoding or a compressed file, or that end or part a record.
MARKS = [b"\xef\xbb\xbf", b"\x1f\x8b", b"\x28\xb5\x2f\xfd", b"\xff\xfe", b'"', b",", b"\n", b"\r\n", b"\x00"]


def json_body(random_: random.Random) -> bytes:
    """One object of the columns a to f and others, with any values, then perhaps damaged."""

    def value(depth: int = 0) -> object:
        kind = random_.randrange(12)
        if kind < 5:
            return random_.choice(TOKENS)
        if kind < 8:
            return random_.choice(
                [0, -1, 1.5, 2**63, -(2**63), 2**63 - 1, 1e308, 5e-324, 10**40, 127, 128, True, False, None]
            )
        if depth > 3:
            return None
        if kind < 10:
            return [value(depth + 1) for _ in range(random_.randrange(4))]
        return {random_.choice([*"abcdef", "", "\ufeff", "é"]): value(depth + 1) for _ in range(random_.randrange(4))}

    names = random_.sample([*"abcdef", "g", "", "A"], random_.randrange(9))
    text = json.dumps({name: value() for name in names}, ensure_ascii=random_.random() < 0.5)
    if random_.random() < 0.2 and names:
        text = text[:-1] + f", {json.dumps(names[0])}: {json.dumps(value())}}}"  # a key that comes again
    return text.encode("utf-8", "surrogatepass")


def csv_body(random_: random.Random) -> bytes:
    """One record of about six fields, each quoted as it should be, not at all, or in some other way."""

    def field() -> str:
        text = random_.choice(TOKENS)
        form = random_.random()
        if form < 0.5:
            return '"' + text.replace('"', '""') + '"' if set(text) & set(',"\n\r') else text
        if form < 0.75:
            return '"' + text.replace('"', '""') + '"'
        return text

    width = 6 if random_.random() < 0.8 else random_.randrange(9)
    return ",".join(field() for _ in range(width)).encode()


def text_body(random_: random.Random) -> bytes:
    """A line of key=value pairs, or of anything."""
    if random_.random() < 0.7:
        return f"{random_.choice(TOKENS)} a={random_.choice(TOKENS)} b={random_.choice(TOKENS)}".encode()
    return random_.choice(TOKENS).encode()


def damaged(random_: random.Random, body: bytes) -> bytes:
    """Return the body, in one case of four with some bytes changed, cut, doubled or inserted."""
    if random_.random() < 0.75:
        return body
    at = random_.randrange(len(body) + 1)
    how = random_.randrange(5)
    if how == 0:
        return body[:at]
    if how == 1:
        return body[at:] + body[:at]
    if how == 2:
        return body[:at] + bytes(random_.randrange(256) for _ in range(random_.randrange(1, 4))) + body[at:]
    if how == 3:
        return (
            body[:at]
            + random_.choice(
                [b"\xef\xbb\xbf", b"\x1f\x8b", b"\x28\xb5\x2f\xfd", b"\xff\xfe", b'"', b",", b"\n", b"\r\n", b"\x00"]
            )
            + body[at:]
        )
    return body[: max(0, at - 1)] + body[at:]


BODIES: dict[str, Callable[[random.Random], bytes]] = {"json": json_body, "csv": csv_body, "raw": text_body}


def hostile_bodies(kind: str, seed: int, count: int) -> list[bytes]:
    """Return ``count`` bodies of a format."""
    random_ = random.Random(f"{kind} {seed}")
    return [damaged(random_, BODIES[kind](random_)) for _ in range(count)]
