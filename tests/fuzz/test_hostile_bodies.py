"""A body never changes what another one gives, whatever it holds: every format, batches of many sizes against single bodies.

``HEADRACE_FUZZ_RECORDS`` sets how many bodies of each format are tried, ``HEADRACE_FUZZ_FROM`` which is the first, so that a long run can
be split; ``make fuzz-records`` tries 500,000.
"""

from __future__ import annotations

import os
import random
from collections.abc import Sequence

import pytest
from headrace.codecs.csv import CsvCodec, CsvSettings
from headrace.codecs.json import JsonCodec, JsonSettings
from headrace.codecs.raw import RawCodec, RawSettings
from headrace.codecs.text_columns import UNEXPLAINED
from headrace.flow.messages import Bodies
from headrace.flow.schema import Schema
from headrace.interfaces.codec import Codec, Decoder

from tests.effort import examples
from tests.fuzz.hostile_bodies import hostile_bodies

RECORDS = int(os.environ.get("HEADRACE_FUZZ_RECORDS", str(examples(2000))))
FIRST = int(os.environ.get("HEADRACE_FUZZ_FROM", "0"))
_BATCH = 500
TYPES = [
    "string", "int64", "int8", "float64", "float32", "boolean", "decimal(38, 10)", "decimal(5, 2)", "date", "time", "timestamp",
    "timestamp_ntz", "duration", "binary", "array<int64>", "struct<a: string, b: int64>",
]  # fmt: skip


def decoders(kind: str, random_: random.Random) -> Decoder:
    """Return a decoder of six columns of random types, with random options."""
    types = random_.choices(TYPES, k=6)
    # A column that is often good, so that good rows are seen too.
    if random_.random() < 0.7:
        types = [each if random_.random() < 0.3 else "string" for each in types]
    if kind == "raw":
        pattern = random_.choice([None, r"a=(?P<a>\S*)(?: b=(?P<b>.*))?", r"^(?P<a>.)(?P<b>.*)$"])
        codec: Codec = RawCodec(RawSettings(pattern=pattern, no_match=random_.choice(["bad", "null"])))
        schema = {"a": types[0], "b": types[1]} if pattern else {"line": random_.choice(["string", "binary"])}
        return codec.decoder(Schema.of(schema))
    schema = dict(zip("abcdef", types, strict=True))
    if kind == "json":
        return JsonCodec(JsonSettings(json_columns=tuple(n for n in "ab" if schema[n] == "string"))).decoder(
            Schema.of(schema)
        )
    null_value = random_.choice(["", "NULL", "\\N"])
    columns = random_.choice([None, ["a"], ["b", "e"]])
    return CsvCodec(CsvSettings(null_value=null_value)).decoder(Schema.of(schema), columns)


def outcomes(decoder: Decoder, bodies: Sequence[bytes]) -> list[str]:
    """Return for each body its values or the reason why it is bad, as texts (NaN differs from itself, its text does not)."""
    decoded = decoder.decode(Bodies.of(bodies))
    rows = range(len(bodies)) if decoded.rows is None else decoded.rows.tolist()
    found = {body.row: body.reason for body in decoded.bad}
    assert UNEXPLAINED not in found.values()
    values = decoded.frame.rows() if decoded.frame.width else [()] * len(rows)
    assert not set(found) & set(rows)
    found |= {row: repr(each) for row, each in zip(rows, values, strict=True)}
    return [found[row] for row in range(len(bodies))]


@pytest.mark.parametrize("kind", ["json", "csv", "raw"])
def test_a_body_gives_the_same_in_every_batch(kind: str) -> None:
    for seed in range(FIRST // _BATCH, -(-(FIRST + RECORDS) // _BATCH)):
        random_ = random.Random(seed)
        decoder = decoders(kind, random_)
        bodies = hostile_bodies(kind, seed, _BATCH)
        single = [outcomes(decoder, [body])[0] for body in bodies]
        order = random_.sample(range(_BATCH), _BATCH)
        size = random_.choice([2, 7, 100, _BATCH])
        for start in range(0, _BATCH, size):
            places = order[start : start + size]
            together = outcomes(decoder, [bodies[place] for place in places])
            for place, outcome in zip(places, together, strict=True):
                assert outcome == single[place], (kind, seed, bodies[place], [bodies[each] for each in places[:8]])
