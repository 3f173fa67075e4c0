"""The kernel gives what headrace's own decoder gives, rows and reasons alike, for bodies that nobody would think of.

``HEADRACE_TURBO_BODIES=10000000 pytest -m slow`` tries so many.
"""

from __future__ import annotations

import os
from random import Random

import numpy as np
import pytest
from headrace.codecs.json import JsonCodec, JsonSettings
from headrace.flow.messages import Bodies
from headrace.flow.schema import Schema
from headrace.interfaces.codec import Decoded, Decoder
from headrace_turbo.json_decoder import KernelJsonDecoder
from json_bodies import SCHEMAS, JsonBodies

from tests.effort import examples

_BATCH = 400


def both(schema: dict[str, str], settings: JsonSettings) -> tuple[KernelJsonDecoder, Decoder]:
    """Return the decoder of the kernel and the plain one."""
    codec = JsonCodec(settings)
    fast = codec.decoder(Schema.of(schema))
    assert isinstance(fast, KernelJsonDecoder)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HEADRACE_DECODERS", "plain")
        return fast, codec.decoder(Schema.of(schema))


def assert_same(fast: Decoded, plain: Decoded, bodies: Bodies) -> None:
    assert [(each.row, each.reason) for each in fast.bad] == [(each.row, each.reason) for each in plain.bad]
    every = np.arange(len(bodies))
    rows = every if fast.rows is None else fast.rows
    assert rows.tolist() == (every if plain.rows is None else plain.rows).tolist()
    assert fast.frame.schema == plain.frame.schema
    if not fast.frame.equals(plain.frame):
        for name in plain.frame.columns:
            for row, left, right in zip(rows.tolist(), fast.frame[name], plain.frame[name], strict=True):
                assert str(left) == str(right), (name, bodies[row])
        raise AssertionError("the frames differ, but no value does")


def placed(bodies: list[bytes], random: Random) -> Bodies:
    """Put bodies into a buffer: as lines of a file, or anywhere, with other bytes around them."""
    if random.random() < 0.5:
        return Bodies.of(bodies)
    buffer, starts, ends = b"", [], []
    for body in bodies:
        buffer += random.choice((b"", b'"', b"{", b"\\", b"\xc3"))
        starts.append(len(buffer))
        buffer += body
        ends.append(len(buffer))
    buffer += random.choice((b"", b'"}', b'":1}'))
    return Bodies(buffer, np.array(starts, dtype=np.int64), np.array(ends, dtype=np.int64))


def compare(schema: dict[str, str], seed: int, count: int) -> None:
    random = Random(seed)
    settings = JsonSettings(
        timestamp_unit=random.choice(("s", "ms", "us", "ns")), max_body_bytes=random.choice((250, 1 << 24))
    )
    fast, plain = both(schema, settings)
    made = JsonBodies(schema, seed)
    for _ in range(max(1, count // _BATCH)):
        bodies = placed([made.body() for _ in range(min(count, _BATCH))], random)
        fast._plain_batches = 0  # it would rest after a batch with so many bad bodies
        assert_same(fast.decode(bodies), plain.decode(bodies), bodies)


@pytest.mark.parametrize("schema", SCHEMAS, ids=lambda schema: next(iter(schema)))
def test_made_bodies(schema: dict[str, str]) -> None:
    for seed in range(examples(50)):
        compare(schema, seed, _BATCH)


@pytest.mark.slow
def test_many_made_bodies() -> None:
    count = int(os.environ.get("HEADRACE_TURBO_BODIES", "500000"))
    for seed in range(count // 10_000):
        compare(SCHEMAS[seed % len(SCHEMAS)], 1_000 + seed, 10_000)
        if seed % 20 == 0:
            print(f"{(seed + 1) * 10_000:,} of {count:,} bodies", flush=True)
