"""A hundred thousand lines, many of them damaged in every way that logs are: nothing crashes, good neighbours come
through, and every bad line is in the dead letters, once, with its reason. What every change runs has a tenth of the lines."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import headrace as hr
import pytest

from tests.effort import examples

LINES = examples(100_000)
LIMIT = 50_000
SCHEMA = {
    "id": "int64",
    "name": "string",
    "score": "float64",
    "ok": "boolean",
    "tags": "array<string>",
    "at": "timestamp",
}
TEXTS = [
    "plain",
    "naïve ☂",
    'quote " and \\ backslash',
    "\u0000 escaped",
    "𝄞 astral",
    "line\nbreak",
    "",
    " " * 50,
    "}{][,:",
]


def good(rng: random.Random, number: int) -> dict[str, Any]:
    row: dict[str, Any] = {
        "id": number,
        "name": rng.choice([*TEXTS, None]),
        "score": rng.choice([0, -1.5, 1e-300, 12345678901, None]),
        "ok": rng.choice([True, False, None]),
        "tags": rng.choice([[], ["a"], ["b", None], None]),
        "at": rng.choice(["2026-03-01T12:00:00Z", "2026-03-01 12:00:00.123456", "1969-12-31T23:59:59+02:00", 0, None]),
        "other": rng.choice([None, {"deep": [1, {"er": "x"}]}, [[[]]], 10**25, "y" * rng.randrange(3000)]),
    }
    for name in rng.sample(["name", "score", "ok", "tags", "at", "other"], rng.randrange(3)):
        del row[name]
    return row


def text_of(rng: random.Random, row: dict[str, Any]) -> bytes:
    separators = rng.choice([(",", ":"), (", ", ": "), (" ,\t", " :  ")])
    return json.dumps(row, ensure_ascii=rng.random() < 0.5, separators=separators).encode()


def wrong_type(rng: random.Random, row: dict[str, Any]) -> dict[str, Any]:
    column, value = rng.choice(
        [
            ("id", "12"), ("id", 1.5), ("id", True), ("id", 2**63), ("id", [1]), ("id", {}), ("name", 12), ("name", ["x"]),
            ("name", False), ("score", "1.5"), ("score", True), ("ok", 1), ("ok", "true"), ("tags", "a"), ("tags", [1]),
            ("tags", {"a": "b"}), ("at", "yesterday"), ("at", "2026-02-30T00:00:00Z"), ("at", []),
        ]
    )  # fmt: skip
    return {**row, column: value}


def insert(line: bytes, at: int, what: bytes) -> bytes:
    return line[:at] + what + line[at:]


#: Each makes a line that is bad for certain.
DAMAGES: dict[str, Callable[[random.Random, dict[str, Any]], bytes]] = {
    "cut short": lambda rng, row: (text := text_of(rng, row))[: rng.randrange(1, len(text))].rstrip(),
    "bad UTF-8": lambda rng, row: insert(text_of(rng, {**row, "name": "abcdef"}), 2, rng.choice([b"\xff", b"\xc3\x28", b"\xed\xa0\x80"])),
    "NUL byte": lambda rng, row: insert(text_of(rng, row), 1, b"\x00"),
    "huge": lambda rng, row: text_of(rng, {**row, "other": "z" * (LIMIT + rng.randrange(1000))}),
    "nested": lambda rng, row: b'{"id": 1, "other": ' + b"[" * 20_000 + b"]" * 20_000 + b"}",
    "wrong type": lambda rng, row: text_of(rng, wrong_type(rng, row)),
    "no object": lambda rng, row: rng.choice([b"[]", b"12", b'"text"', b"null", b"true", b"[{}]"]),
    "no JSON": lambda rng, row: rng.choice([b"-- rotated --", b"{'id': 1}", b"{id: 1}", b"NaN", b"\xef\xbb\xbf", b"{}}", b"{}{}"]),
    "trailing": lambda rng, row: text_of(rng, row) + rng.choice([b" x", b",", b"}", b" {}"]),
    "control": lambda rng, row: text_of(rng, {**row, "name": "MARK"}).replace(b"MARK", b"a\tb\x01"),
}  # fmt: skip


def write(path: Path, seed: int) -> tuple[set[int], dict[int, str]]:
    """Write the lines; return the ids of the good ones, and the kind of damage by offset of the bad ones."""
    rng = random.Random(seed)
    identifiers, damages = set(), {}
    with path.open("wb") as file:
        for number in range(LINES):
            row = good(rng, number)
            if rng.random() < 0.7:
                identifiers.add(number)
                line = text_of(rng, row)
            else:
                kind = rng.choice(list(DAMAGES)) if rng.random() < 0.9 else "wrong type"
                kind = "no JSON" if kind == "nested" and rng.random() < 0.95 else kind
                kind = "no object" if kind == "huge" and rng.random() < 0.9 else kind
                line = DAMAGES[kind](rng, row)
                damages[number] = kind
            assert b"\n" not in line
            file.write(line + b"\n")
    return identifiers, damages


@pytest.fixture(scope="module")
def damaged(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, set[int], dict[int, str]]:
    path = tmp_path_factory.mktemp("fuzz") / "lines.ndjson"
    return (path, *write(path, seed=11))


@pytest.mark.parametrize("backend", ["light", pytest.param("spark", marks=pytest.mark.spark)])
def test_good_lines_come_through_and_bad_ones_are_dead_letters(
    backend: str, damaged: tuple[Path, set[int], dict[int, str]], tmp_path: Path
) -> None:
    path, identifiers, damages = damaged
    assert len(damages) > LINES / 5
    report = (
        hr.stream("fuzz", "lines")
        .from_file(path, format="json", schema=SCHEMA, max_body_bytes=LIMIT)
        .dead_letters(lambda bad: bad.to_file(tmp_path / "dead", format="json"))
        .to_file(tmp_path / "out", format="json")
        .run(backend, show_progress=False)
    )
    assert report.records_read == LINES
    assert report.dead_letters == len(damages)
    found = [row["id"] for row in rows(tmp_path / "out")]
    assert len(found) == len(set(found))
    wrong = sorted(set(found) ^ identifiers)
    assert not wrong, [(number, damages.get(number, "good")) for number in wrong[:10]]
    letters = {row["offset"]: row["reason"] for row in rows(tmp_path / "dead")}
    assert letters.keys() == damages.keys()
    assert all(len(reason) > 5 for reason in letters.values())
    assert any("column 'tags'" in reason for reason in letters.values())


def rows(directory: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for part in directory.glob("*.json") for line in part.read_text().splitlines()]
