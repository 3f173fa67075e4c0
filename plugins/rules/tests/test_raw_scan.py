"""The scan before parsing leaves out no body that a rule matches, and steps back where it does not pay."""

from __future__ import annotations

import json
import random
from typing import Any

import headrace as hr
import numpy as np
import polars as pl
import pytest
from headrace.flow.messages import Bodies, Queue, RawBatch, ReadPosition
from headrace.flow.schema import Schema
from headrace.testing import MemorySink, MemorySource
from headrace_rules.engine import EngineOptions
from headrace_rules.group import Member, RuleGroup
from headrace_rules.raw_scan import RawScan, find, raw_scanner
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from rules_world import CONSTANT, PATTERN, REGEX, SCANNERS, TEXT, VALUE, plainly

from tests.effort import examples

TYPES = {"a": pl.String(), "b": pl.String(), "n": pl.Int64(), "s": pl.Struct({"z": pl.String()})}
#: Few values, so that rules match, of all lengths and with neighbours that begin or end with the same digits.
NUMBERS = st.sampled_from([0, 1, -1, 2, 22, 443, -443, 4430, 44301, 31344, 313440, 131344, 2**63 - 1, -(2**63) + 1])
CLAUSES = st.one_of(
    st.tuples(VALUE, PATTERN).map(lambda p: f"{p[0]} LIKE {p[1]}"),
    st.tuples(VALUE, PATTERN).map(lambda p: f"{p[0]} ILIKE {p[1]}"),
    st.tuples(VALUE, REGEX).map(lambda p: f"{p[0]} RLIKE {p[1]}"),
    st.tuples(VALUE, CONSTANT).map(lambda p: f"{p[0]} = {p[1]}"),
    st.tuples(VALUE, CONSTANT, CONSTANT).map(lambda p: f"{p[0]} IN ({p[1]}, {p[2]})"),
    NUMBERS.map(lambda number: f"n = {number}"),
    st.tuples(NUMBERS, NUMBERS).map(lambda p: f"n IN ({p[0]}, {p[1]}) AND a IS NOT NULL"),
)
ROW = st.fixed_dictionaries(
    {
        "a": st.none() | TEXT,
        "b": st.none() | TEXT,
        "n": st.none() | st.integers(-2, 3) | NUMBERS,
        "s": st.none() | st.just({"z": "foo"}),
    }
)


def body(row: dict[str, Any], rng: random.Random) -> bytes:
    """Write JSON, each character of a text in one of the ways that JSON allows."""

    def text(value: str) -> str:
        out = ""
        for character in value:
            ways = [json.dumps(character)[1:-1], "".join(f"\\u{unit:04X}" for unit in _units(character))]
            if ord(character) >= 0x20 and character not in '"\\':
                ways += [character] * 4
            if character == "/":
                ways.append("\\/")
            out += rng.choice(ways)
        return '"' + out + '"'

    def space() -> str:
        return rng.choice(["", "", "", " ", "\t", "\n", "\r", "  \t"])

    def written(value: Any) -> str:
        if isinstance(value, dict):
            members = [f'"{name}"{space()}:{space()}{written(inner)}{space()}' for name, inner in value.items()]
            rng.shuffle(members)
            return "{" + f",{space()}".join(members) + "}"
        if value == 0:
            return rng.choice(["0", "-0"])
        return text(value) if isinstance(value, str) else json.dumps(value)

    return written(row).encode()


def _units(character: str) -> list[int]:
    units = character.encode("utf-16-be")
    return [int.from_bytes(units[at : at + 2], "big") for at in range(0, len(units), 2)]


def group_of(rules: list[str], **options: Any) -> RuleGroup:
    members = [Member.of_condition(str(number), rule) for number, rule in enumerate(rules)]
    return RuleGroup(members, {}, EngineOptions(cache=False, background=False, **options))


def raw(bodies: list[bytes], first: int = 0) -> RawBatch:
    count = len(bodies)
    return RawBatch(np.arange(first, first + count), ReadPosition(first + count), bodies=Bodies.of(bodies))


@pytest.mark.parametrize("scanner", SCANNERS)
# Many rule sets have no usable trigger: they are left out below.
@settings(max_examples=examples(80, least=5), deadline=None, suppress_health_check=[HealthCheck.filter_too_much])
@given(rules=st.lists(CLAUSES, min_size=1, max_size=4), rows=st.lists(ROW, min_size=1, max_size=10), seed=st.integers())
def test_no_body_is_left_out_that_a_rule_matches(scanner: str, rules: list[str], rows: list[Any], seed: int) -> None:
    rng = random.Random(seed)
    bodies = Bodies.of([body(row, rng) for row in rows])
    engine = group_of(rules, scanner=scanner).run_for(Schema(TYPES)).engine()
    found = raw_scanner(engine, bodies)
    assume(found is not None)  # without a usable trigger in every rule nothing is left out
    assert found is not None
    matches, failures = plainly(rules, pl.DataFrame(rows, schema=TYPES))
    assert not failures
    assert {row for row, _ in matches} <= set(find(found, bodies)[0].tolist())


@pytest.mark.parametrize(
    "rule",
    [
        "a LIKE '%foo%' AND CAST(b AS int) > 1",
        "NOT a = 'x'",
        "n > 1",
        "n + 1 = 3",
        "a = ''",
        "a LIKE '%_%'",
        "a LIKE '%foo%' OR n BETWEEN 1 AND 2",
    ],
)
def test_rules_that_bytes_do_not_show(rule: str) -> None:
    scan = RawScan(group_of(["a = 'foo'", rule]), Schema(TYPES))
    assert scan.rows(Queue("q"), raw([b'{"a": "zzz"}'])) is None


def test_bodies_without_a_trigger_are_left_out_and_others_kept_in_order() -> None:
    scan = RawScan(group_of(["a LIKE '%foo%'", "n > 0 AND b = 'b\"/'"]), Schema(TYPES))
    bodies = [
        b'{"a": "x"}',
        b'{"a": "xfoo"}',
        b"{broken",
        b'{"b": "b\\"/"}',
        b'{"b": "\\u0041"}',
        b'{"b": "b\\"\\/"}',
        b"",
        b"foo",
    ]
    found = scan.rows(Queue("q"), raw(bodies))
    assert found is not None
    assert found.tolist() == [1, 3, 4, 5, 7]
    not_joined = RawBatch(np.arange(3), ReadPosition(3), bodies=Bodies.of(bodies).take(np.array([5, 0, 1])))
    for text, kept in (("foo", [2]), ("foo/", [0])):  # only a slash can be hidden by its escape
        found = RawScan(group_of([f"a LIKE '%{text}%'"]), Schema(TYPES)).rows(Queue("q"), not_joined)
        assert found is not None
        assert found.tolist() == kept


def test_only_escapes_that_could_hide_a_literal_are_decoded() -> None:
    bodies = [b"x", b"\\u0041", b"\\u007F", b"\\u00e9", b"\\u00E9", b"\\u0444", b"\\ud83d\\ude00", b"\\u212A"]
    for rules, kept in (
        ("a = 'foo'", [1, 2]),
        ("a = 'caf\u00e9'", [1, 2, 3, 4]),
        ("a LIKE '%\U0001f600 foo%'", [1, 2, 6]),
        ("a ILIKE '%k8s%'", [1, 2, 7]),  # the sign for Kelvin is a k in lower case
    ):
        found = RawScan(group_of([rules]), Schema(TYPES)).rows(
            Queue("q"), raw([b'{"a": "%s"}' % each for each in bodies])
        )
        assert found is not None
        assert found.tolist() == kept, rules


def test_a_whole_number_is_looked_for_where_a_value_can_stand() -> None:
    scan = RawScan(group_of(["a LIKE '%foo%'", "n = 443", "n = 31344"]), Schema(TYPES))
    bodies = [
        b'{"n":443}',
        b'{"n" : 443\t, "a": "x"}',
        b'{"a": "10:443:7", "n": 4430}',
        b'{"n":\r\n443\r\n}',
        b'{"n": 1443}',
        b'{"n": -443}',
        b'{"n":31344}',
        b'{"a": "31344", "n": 1}',
        b'{"a": "1 443 2", "n": 1}',  # looks like the number: it is decoded, and the rule says no
    ]
    found = scan.rows(Queue("q"), raw(bodies))
    assert found is not None
    assert found.tolist() == [0, 1, 3, 6, 8]


def test_the_scan_steps_back_where_most_bodies_are_kept_and_comes_again() -> None:
    scan = RawScan(group_of(["a LIKE '%foo%'"]), Schema(TYPES))
    full, empty = [b'{"a": "foo"}'] * 10, [b'{"a": "bar"}'] * 10

    def scanned(bodies: list[bytes]) -> bool:
        return scan.rows(Queue("q"), raw(bodies)) is not None

    assert [scanned(full) for _ in range(22)] == [True] + [False] * 20 + [True]
    assert [scanned(full) for _ in range(41)] == [False] * 40 + [True]
    assert [scanned(empty) for _ in range(82)] == [False] * 80 + [True, True]
    assert scan.figures() == (50, 30)


def run(count: int, *, options: dict[str, Any], damaged: bool = False) -> tuple[list[Any], list[Any], Any]:
    bodies = [json.dumps({"a": "foo" if n % 10 == 0 else "bar", "b": "x", "n": n}).encode() for n in range(count)]
    if damaged:
        bodies[5], bodies[10] = b'{"a": "bar"', b'{"a": "foo"'
    sink, bad = MemorySink(), MemorySink()
    source = MemorySource({"q": bodies})
    stream = hr.stream("test", "raw").from_(
        source, format="json", schema={"a": "string", "n": "int64"}, metadata={"at": "offset"}
    )
    job = stream.dead_letters(lambda letters: letters.to(bad)).rules({"foo": "a LIKE '%foo%'"}, **options).to(sink)
    report = job.run("light", max_batch_records=50)
    assert report.records_read == count
    return sink.rows, bad.rows, job.plan()


def test_a_job_gives_the_same_rows_with_the_scan() -> None:
    rows, bad, plan = run(200, options={"raw_scan": True}, damaged=True)
    plain_rows, plain_bad, plain_plan = run(200, options={}, damaged=True)
    assert rows == plain_rows
    assert [row["at"] for row in rows] == [n for n in range(0, 200, 10) if n != 10]
    assert next(iter(plan.sources.values())).body_filter is not None
    assert next(iter(plain_plan.sources.values())).body_filter is None
    # The price: of bodies that no rule can match, damaged ones are not told.
    assert [row["offset"] for row in plain_bad] == [5, 10]
    assert [row["offset"] for row in bad] == [10]


@pytest.mark.parametrize("what", ["tag", "sink", "metadata", "format"])
def test_where_all_bodies_are_needed_there_is_no_scan(what: str) -> None:
    source = MemorySource({"q": [b"1"]})
    pipe = hr.stream("test", "raw")
    schema = {"a": "string", "n": "int64"}
    stream = pipe.from_(source, format="csv" if what == "format" else "json", schema=schema, metadata={"at": "queue"})
    rule = "at LIKE '%q%'" if what == "metadata" else "a LIKE '%foo%'"
    job = stream.rules({"foo": rule}, raw_scan=True).to(MemorySink())
    if what == "tag":
        job = hr.job(job, stream.rules({"foo": rule}, output="tag").to(MemorySink()))
    if what == "sink":
        job = hr.job(job, stream.to(MemorySink()))
    assert next(iter(job.plan().sources.values())).body_filter is None
