"""Makes JSON bodies from a seed: good ones, ones whose values are of other types, and damaged ones."""

from __future__ import annotations

import json
from collections.abc import Callable
from random import Random

SCHEMAS: tuple[dict[str, str], ...] = (
    {"host": "string", "pid": "int64", "load": "float64", "up": "boolean", "at": "timestamp"},
    {"tiny": "int8", "small": "int16", "medium": "int32"},
    {"at": "timestamp_ntz", "day": "date", "price": "decimal(10, 2)", "whole": "decimal(6, 0)", "ratio": "float32"},
    {"tags": "array<string>", "grid": "array<array<int64>>", "who": "struct<name string, age int32, at timestamp>"},
    {"items": "array<struct<id int64, name string>>", "raw": "json", "host": "string"},
    {"größe": "float64", "名前": "string", "a b": "int64", "host": "string", "up": "boolean"},
)

_TEXTS = (
    "",
    "a",
    "host-1",
    "twelve bytes",
    "thirteen bytes",
    "C:\\Windows\\cmd.exe",
    'say "so"',
    "\n\t\r\b\f",
    "\x00",
    "é",
    "😀",
    "名前",
    "\u2028",
    "null",
    "true",
    "12",
    "-1.50",
    "1e3",
    "0.005",
    "99999999.99",
    "x" * 300,
    "é" * 40,
)
_MOMENTS = (
    "2024-01-02T03:04:05Z",
    "2024-01-02 03:04",
    "2024-02-29T23:59:59.123456789+02:00",
    "2023-02-29T00:00:00Z",
    "0001-01-01T00:00:00Z",
    "0001-01-01T00:00:00+01:00",
    "9999-12-31T23:59:59.999999-00:01",
    "1969-12-31T23:59:59.999999Z",
    "2024-01-02T24:00:00Z",
    "2024-01-02T03:04:60Z",
    "2024-01-02T03:04:05.1,5",
    "2024-01-02T03:04:05,25+0530",
    "2024-01-02T03:04:05-08",
    "2024-13-01T00:00",
    "2024-01-02t03:04:05z",
    "2024-01-02T03:04:05.1234567890Z",
    "2024-01-02",
    "2024-1-2",
    "1970-01-01",
    "0000-01-01",
    "2024-01-02T03:04:05+24:00",
)
_NUMBERS = (
    "0",
    "-0",
    "1",
    "-1",
    "7",
    "127",
    "128",
    "-128",
    "-129",
    "255",
    "256",
    "32767",
    "32768",
    "65535",
    "65536",
    "2147483647",
    "2147483648",
    "-2147483649",
    "4294967295",
    "4294967296",
    "999999999999999999",
    "9223372036854775807",
    "9223372036854775808",
    "-9223372036854775808",
    "-9223372036854775809",
    "18446744073709551616",
    "1.0",
    "1.5",
    "-2.50",
    "12.345",
    "0.1",
    "3.4028236e38",
    "1e3",
    "1E-2",
    "1e400",
    "-1e400",
    "1e-400",
    "5e-324",
    "2.2250738585072014e-308",
    "9007199254740993",
    "123456789012345678901234567890",
    "1700000000000",
    "253402300799999",
    "253402300800000",
    "01",
    "1.",
    ".5",
    "+1",
    "1e",
    "- 1",
    "0x1",
    "NaN",
    "Infinity",
    "1_0",
    "0." + "3" * 40,
    "9" * 60,
)
_PIECES = (
    b'"',
    b"\\",
    b"\\u",
    b"\\ud800",
    b"\\udc00",
    b"\\ud83d\\ude00",
    b"\\u00e9",
    b"\\x",
    b"{",
    b"}",
    b"[",
    b"]",
    b",",
    b":",
    b" ",
    b"\n",
    b"\r",
    b"\t",
    b"\x00",
    b"\x1f",
    b"\x7f",
    b"\x80",
    b"\xc3",
    b"\xc3\xa9",
    b"\xed\xa0\x80",
    b"\xf0\x9f\x98\x80",
    b"\xff",
    b"\xef\xbb\xbf",
    b"0",
    b"-",
    b"+",
    b".",
    b"e",
    b"1",
    b"null",
    b"true",
    b"false",
    b"nul",
    b"{}",
    b"[]",
    b'""',
    b"//",
    b"/**/",
    b"'",
)


class JsonBodies:
    """Makes bodies for a schema."""

    def __init__(self, schema: dict[str, str], seed: int) -> None:
        self._random = Random(seed)
        self._schema = schema
        self._names = list(schema)

    def body(self) -> bytes:
        """Return a body: half of them are good or have values of other types, the others are damaged as well."""
        body = self._object(self._schema)
        if self._random.random() < 0.5:
            for _ in range(self._random.choice((1, 1, 1, 2, 5))):
                body = self._damaged(body)
        return body

    def _object(self, fields: dict[str, str]) -> bytes:
        random = self._random
        names = [name for name in fields if random.random() < 0.9]
        if random.random() < 0.2:
            random.shuffle(names)
        if random.random() < 0.05 and names:
            names.append(random.choice(names))
        members = [self._key(name) + self._blank() + b":" + self._blank() + self._value(fields[name]) for name in names]
        if random.random() < 0.5:
            place = random.randint(0, len(members))
            members.insert(
                place, self._key(random.choice(("more", "x" * 200, "hos", "hostt", ""))) + b":" + self._anything(3)
            )
        separator = self._blank() + b"," + self._blank()
        return self._blank() + b"{" + self._blank() + separator.join(members) + self._blank() + b"}" + self._blank()

    def _key(self, name: str) -> bytes:
        return json.dumps(name, ensure_ascii=self._random.random() < 0.1).encode()

    def _blank(self) -> bytes:
        random = self._random
        return (
            b""
            if random.random() < 0.9
            else b"".join(random.choices((b" ", b"\t", b"\r", b"\n"), k=random.randint(1, 3)))
        )

    def _value(self, kind: str) -> bytes:
        random = self._random
        if random.random() < 0.05:
            return b"null"
        if random.random() < 0.03:
            return self._anything(3)
        if kind.startswith("array<"):
            inner = kind[6:-1]
            return b"[" + b", ".join(self._value(inner) for _ in range(random.choice((0, 1, 2, 5)))) + b"]"
        if kind.startswith("struct<"):
            fields = dict(field.rsplit(" ", 1) for field in kind[7:-1].split(", "))
            return self._object(fields)
        makers: dict[str, Callable[[], bytes]] = {
            "string": self._text,
            "boolean": lambda: random.choice((b"true", b"false")),
            "json": lambda: self._anything(4),
            "timestamp": self._moment,
            "timestamp_ntz": self._moment,
            "date": lambda: self._quoted(random.choice(_MOMENTS)[:10]),
        }
        return makers.get(kind, self._number)()

    def _moment(self) -> bytes:
        random = self._random
        if random.random() < 0.2:
            return self._number()
        if random.random() < 0.5:
            return self._quoted(
                f"20{random.randint(10, 99)}-{random.randint(1, 12):02}-{random.randint(1, 28):02}T01:02:03.{random.randint(0, 999)}Z"
            )
        return self._quoted(random.choice(_MOMENTS))

    def _number(self) -> bytes:
        random = self._random
        if random.random() < 0.6:
            return str(random.randint(-100, 100)).encode()
        if random.random() < 0.3:
            return repr(random.uniform(-1e6, 1e6)).encode()
        text = random.choice(_NUMBERS).encode()
        return text if random.random() < 0.9 else b'"' + text + b'"'

    def _text(self) -> bytes:
        random = self._random
        text = random.choice(_TEXTS) if random.random() < 0.7 else "".join(random.choices(_TEXTS, k=3))
        return self._quoted(text)

    def _quoted(self, text: str) -> bytes:
        return json.dumps(text, ensure_ascii=self._random.random() < 0.2).encode()

    def _anything(self, depth: int) -> bytes:
        random = self._random
        kind = random.randint(0, 7 if depth else 4)
        if kind <= 1:
            return self._text()
        if kind == 2:
            return self._number()
        if kind in (3, 4):
            return random.choice((b"true", b"false", b"null", b"{}", b"[]", b"[ ]", b"{ }"))
        if kind == 5:
            return b"[" * 130 + b"]" * 130 if random.random() < 0.02 else b"[" + self._anything(depth - 1) + b"]"
        if kind == 6:
            return b"[" + self._anything(depth - 1) + b"," + self._anything(depth - 1) + b"]"
        return b"{" + self._key(random.choice(self._names)) + b":" + self._anything(depth - 1) + b"}"

    def _damaged(self, body: bytes) -> bytes:
        random = self._random
        at = random.randint(0, len(body))
        match random.randint(0, 6):
            case 0:
                return body[:at]
            case 1:
                return body[:at] + random.choice(_PIECES) + body[at:]
            case 2:
                return body[:at] + random.choice(_PIECES) + body[at + 1 :]
            case 3:
                return body[:at] + body[at + random.randint(1, 4) :]
            case 4:
                return body[:at] + bytes([random.randrange(256)]) + body[at + 1 :]
            case 5:
                end = min(len(body), at + random.randint(1, 30))
                return body[:end] + body[at:end] + body[end:]
            case _:
                return body[at:]
