"""Fuzzed JSON bodies: an oracle made of the standard library says which are good and what they hold."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from headrace.codecs.body_checks import nesting
from headrace.codecs.json import JsonCodec
from headrace.codecs.timestamps import TIMESTAMP, parse_moment
from headrace.flow.messages import Bodies
from headrace.flow.schema import Schema
from headrace.interfaces.codec import Decoder
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.effort import examples

Outcomes = list[tuple[Any, ...] | str]
DecodeEveryWay = Callable[[Decoder, Sequence[bytes]], Outcomes]

SCHEMA = Schema.of({"n": "int64", "s": "string", "f": "float64", "b": "boolean", "t": "timestamp", "l": "array<int8>"})


class Bad(Exception):
    """The oracle's verdict."""


def oracle(body: bytes) -> tuple[Any, ...]:
    """Decode one body by the standard library and the rules of the format; raise Bad for a bad one."""
    repeated: list[tuple[str, Any]] = []

    def pairs(found: list[tuple[str, Any]]) -> dict[str, Any]:
        nonlocal repeated
        repeated = found  # the outermost object comes last
        if any("\ud800" <= c <= "\udfff" for key, value in found for c in key + texts_of(value)):
            raise Bad("a lone surrogate")  # also in a value that a repeated key replaces
        return dict(found)

    def refuse(text: str) -> Any:
        raise Bad(text)

    try:
        text = body.decode()
        if text.startswith("\ufeff"):
            raise Bad("a byte order mark")
        value = json.loads(text, object_pairs_hook=pairs, parse_constant=refuse, parse_float=str_or_float)
    except (ValueError, UnicodeDecodeError, RecursionError) as error:
        raise Bad(str(error)) from error
    if not isinstance(value, dict):
        raise Bad("no object")
    for key, given_value in repeated:
        # Of a value that is not the last one of its key, only JSON's own type is looked at.
        early_timestamp = key == "t" and isinstance(given_value, str) and not isinstance(given_value, Real)
        early_timestamp |= key == "t" and type(given_value) is int and -(2**63) <= given_value < 2**63
        if key in SCHEMA and not early_timestamp:
            converted(key, given_value)
    return tuple(converted(key, value.get(key)) for key in SCHEMA)


class Real(str):
    """A number with a fraction or an exponent, as its text."""


def str_or_float(text: str) -> Real:
    return Real(text)


def texts_of(value: Any) -> str:
    if isinstance(value, Real):
        return ""
    if isinstance(value, str):
        return value
    if isinstance(value, dict):
        return "".join(key + texts_of(inner) for key, inner in value.items())
    return "".join(map(texts_of, value)) if isinstance(value, list) else ""


def converted(key: str, value: Any) -> Any:
    """Return what a column holds for a parsed value."""
    if value is None:
        return None
    integer = isinstance(value, int) and not isinstance(value, bool)
    text = isinstance(value, str) and not isinstance(value, Real)
    if key == "n" and integer and -(2**63) <= value < 2**63:
        return value
    if key == "s" and text:
        return value
    if key == "b" and isinstance(value, bool):
        return value
    if key == "f" and (integer or isinstance(value, Real)):
        try:
            number = float(value)
        except OverflowError as error:
            raise Bad("beyond float64") from error
        if abs(number) != float("inf"):
            return number
    if key == "t" and text and (moment := parse_moment(value, TIMESTAMP)):
        return moment[0] * 1_000_000 + moment[1] // 1000
    if key == "t" and integer and -62_135_596_800_000 <= value < 253_402_300_800_000:
        return value * 1000
    if (
        key == "l"
        and isinstance(value, list)
        and all(v is None or (type(v) is int and -128 <= v <= 127) for v in value)
    ):
        return value
    raise Bad(f"{key}: {value!r}")


def objects() -> st.SearchStrategy[bytes]:
    """Objects whose values mostly fit, with other keys, repeated keys and blanks."""
    anything = st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.sampled_from(["\ud800", "\x00"]),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
        max_leaves=5,
    )
    fitting = {
        "n": st.integers(-(2**63), 2**63 - 1),
        "s": st.text(),
        "f": st.floats(allow_nan=False, allow_infinity=False) | st.integers(-(2**70), 2**70),
        "b": st.booleans(),
        "t": st.datetimes().map(lambda moment: moment.isoformat() + "Z") | st.integers(-(10**15), 10**15),
        "l": st.lists(st.none() | st.integers(-128, 127), max_size=4),
    }
    pair = st.one_of(*(st.tuples(st.just(key), values | st.none()) for key, values in fitting.items()))
    odd = st.tuples(st.sampled_from([*fitting, "other", "é\n"]), anything)

    def written(pairs: list[tuple[str, Any]], escaped: bool, blank: str) -> bytes:
        inner = f",{blank}".join(
            f"{json.dumps(key)}{blank}:{json.dumps(value, ensure_ascii=escaped or has_surrogate(value))}"
            for key, value in pairs
        )
        return f"{blank}{{{inner}}}{blank}".encode()

    return st.builds(
        written,
        st.lists(pair, max_size=6) | st.lists(pair | odd, max_size=6),
        st.booleans(),
        st.sampled_from(["", " ", "\n", "\t\r\n"]),
    )


def has_surrogate(value: Any) -> bool:
    return "\\ud" in json.dumps(value)


def damaged(body: bytes, at: int, cut: int, inserted: bytes) -> bytes:
    at %= len(body) + 1
    return body[:at] + inserted + body[at + cut :]


BODIES = st.one_of(
    objects(),
    st.builds(
        damaged,
        objects(),
        st.integers(0, 200),
        st.integers(0, 5),
        st.binary(max_size=2) | st.sampled_from([b"\x00", b"\xff", b"}{", b'"', b"\\", b"[[", b"]", b"\n", b",", b"1"]),
    ),
    st.binary(max_size=20),
)


@given(st.lists(BODIES, max_size=12))
@example([b'{"n":', b"1}", b'{"n": 1}\n{"n": 2}'])
@example([b'{"n": "a", "n": 1}', b'{"n": 1e400}', b'{"x": 1e400}', b'{"f": 1' + b"0" * 400 + b"}"])
@example([b"{}", b'{"other": ["\\ud800"], "other": null}', b'{"n": 0}'])
@example([b'{"t": "x", "t": 1}', b'{"t": -62135596800001, "t": null}', b'{"t": true, "t": 1}', b'{"t": 1, "t": "x"}'])
@settings(max_examples=examples(300), deadline=None)
def test_fuzzed_bodies_are_judged_alone_and_as_the_oracle_does(outcomes: DecodeEveryWay, bodies: list[bytes]) -> None:
    decoder = JsonCodec().decoder(SCHEMA)
    found = outcomes(decoder, bodies)
    decoded = decoder.decode(Bodies.of(bodies))
    rows = decoded.frame.with_columns(t=decoded.frame["t"].to_physical()).rows()
    good = iter(rows)
    for body, outcome in zip(bodies, found, strict=True):
        try:
            expected = oracle(body)
        except Bad:
            assert isinstance(outcome, str), body
        else:
            assert repr(next(good)) == repr(expected), (body, outcome)
    assert next(good, None) is None


@given(st.lists(BODIES, min_size=1, max_size=6), st.integers(0, 50), st.randoms(use_true_random=False))
@settings(max_examples=examples(60), deadline=None)
def test_any_cut_gives_the_same(bodies: list[bytes], times: int, choice: random.Random) -> None:
    many = (bodies * (times + 1))[:200]
    choice.shuffle(many)
    decoder = JsonCodec().decoder(SCHEMA)

    def outcomes(part: list[bytes]) -> list[str]:
        decoded = decoder.decode(Bodies.of(part))
        rows = range(len(part)) if decoded.rows is None else decoded.rows.tolist()
        found = {bad.row: bad.reason for bad in decoded.bad} | dict(
            zip(rows, map(repr, decoded.frame.rows()), strict=True)
        )
        return [found[row] for row in range(len(part))]

    cuts = sorted(choice.randrange(len(many) + 1) for _ in range(4))
    parts = [many[start:end] for start, end in zip([0, *cuts], [*cuts, len(many)], strict=True)]
    assert [outcome for part in parts for outcome in outcomes(part)] == outcomes(many)


@given(
    st.recursive(st.just([]), lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text('[]{}"\\a'), inner))
)
@settings(deadline=None)
def test_nesting_is_counted_outside_texts(value: Any) -> None:
    def depth(value: Any) -> int:
        return 1 + max(map(depth, value.values() if isinstance(value, dict) else value), default=0)

    assert nesting(json.dumps(value).encode()) == depth(value)


@pytest.mark.parametrize("seed", range(2))
def test_thousands_of_damaged_lines_leave_their_neighbours_alone(seed: int) -> None:
    choice = random.Random(seed)
    whole = json.dumps(
        {"n": 1, "s": "é\\ud83d\ude00", "f": 1.5, "b": True, "t": "2024-01-02T03:04:05Z", "l": [1], "x": {"y": [1]}}
    )
    clean = whole.encode()
    bodies = []
    for _ in range(15_000):
        line = bytearray(clean)
        for _ in range(choice.choice([0, 0, 1, 1, 3])):
            at = choice.randrange(len(line))
            line[at : at + choice.randrange(4)] = choice.choice([b"", b"\x00", b"\xff", b"{", b'"', b"9", b"\n", b"e"])
        bodies.append(bytes(line))
    decoder = JsonCodec().decoder(SCHEMA)
    decoded = decoder.decode(Bodies.of(bodies))
    assert decoded.rows is not None
    rows = decoded.frame.with_columns(t=decoded.frame["t"].to_physical()).rows()
    found = dict(zip(decoded.rows.tolist(), rows, strict=True))
    reasons = {bad.row: bad.reason for bad in decoded.bad}
    for row, body in enumerate(bodies):
        try:
            expected = oracle(body)
        except Bad:
            assert reasons[row]
        else:
            assert found[row] == expected
