"""Any bytes, appended in any pieces, read in any polls, resumed anywhere: always the same records."""

from __future__ import annotations

import bz2
import gzip
import itertools
import lzma
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import zstandard
from file_world import Records, World, checkpointed, drain
from headrace_file.streams import forget_parked
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.effort import examples

PIECES = [b"a", b"bc", b"\n", b"\n", b"\r\n", b"\r", b",", b'"', b'"x\n"', b" ", b"\xef\xbb\xbf", b"\xff", b"x" * 70]
content = st.lists(st.sampled_from(PIECES), max_size=40).map(b"".join)


def expected_lines(data: bytes, *, header: int, limit: int) -> Records:
    """The rule for framing by newline, in words."""
    data = data.removeprefix(b"\xef\xbb\xbf")
    parts = data.split(b"\n")
    unfinished = parts.pop()
    found = Records()
    if len(parts) < header:
        return found
    parts = parts[header:]
    if unfinished:
        parts.append(unfinished)
    for number, line in enumerate(parts):
        if len(line) > limit:
            body = line[:limit] + b"\xff[cut: the record has %d bytes, the limit is %d]" % (len(line), limit)
        else:
            body = line.removesuffix(b"\r")
        if body:
            found.append((number, body))
    return found


@settings(max_examples=examples(250), deadline=None)
@given(
    data=content,
    cuts=st.lists(st.integers(0, 200), max_size=6),
    polls=st.lists(st.integers(1, 4), min_size=1, max_size=5),
    restarts=st.sets(st.integers(0, 30)),
    header=st.sampled_from([0, 0, 1, 2]),
    kind=st.sampled_from(["none", "none", "none", "gzip", "zstd", "bzip2", "xz"]),
    limit=st.sampled_from([64, 1000]),
    counted=st.booleans(),
)
def test_lines(
    tmp_path_factory: pytest.TempPathFactory,
    data: bytes,
    cuts: list[int],
    polls: list[int],
    restarts: set[int],
    header: int,
    kind: str,
    limit: int,
    counted: bool,
) -> None:
    world = World(Path(tmp_path_factory.mktemp("split")))
    world.write("log", b"")
    options: dict[str, Any] = {"skip_lines": header, "max_record_bytes": limit, "read_bytes": 1024, "compression": kind}
    source = world.source(**options)
    reader = world.open(source)
    found = Records()
    turn = 0
    places = [0, *sorted(min(cut, len(data)) for cut in cuts), len(data)]
    for begin, end in itertools.pairwise(places):
        world.append("log", packed(data[begin:end], kind))
        while True:
            turn += 1
            if turn in restarts:
                position = checkpointed(reader.position)
                reader.close()
                forget_parked()
                source = world.source(**options)
                reader = world.open(source, start=position)
            if counted:
                assert reader.latest >= reader.position.offset
            before = reader.position.offset
            found += drain(reader, at_most=polls[turn % len(polls)])
            if reader.position.offset == before:
                break
    source.use_run(until="end")
    found += drain(reader)
    assert reader.latest == reader.position.offset
    assert found == expected_lines(data, header=header, limit=limit)
    whole = drain(world.open(world.source(until="end", **options)))
    assert whole == found
    world.close()


@settings(max_examples=examples(150), deadline=None)
@given(
    data=content,
    cuts=st.lists(st.integers(0, 200), max_size=6),
    polls=st.lists(st.integers(1, 4), min_size=1, max_size=5),
    restarts=st.sets(st.integers(0, 30)),
    limit=st.sampled_from([64, 1000]),
)
def test_csv(
    tmp_path_factory: pytest.TempPathFactory,
    data: bytes,
    cuts: list[int],
    polls: list[int],
    restarts: set[int],
    limit: int,
) -> None:
    """As it was read in pieces, so it is read at once: the rule itself is tested in test_framing."""
    world = World(Path(tmp_path_factory.mktemp("split")))
    world.write("log", b"")
    options: dict[str, Any] = {"format": "csv", "max_record_bytes": limit, "read_bytes": 1024}
    source = world.source(**options)
    reader = world.open(source)
    found = Records()
    turn = 0
    places = [0, *sorted(min(cut, len(data)) for cut in cuts), len(data)]
    for begin, end in itertools.pairwise(places):
        world.append("log", data[begin:end])
        while True:
            turn += 1
            if turn in restarts:
                position = checkpointed(reader.position)
                reader.close()
                source = world.source(**options)
                reader = world.open(source, start=position)
            before = reader.position.offset
            found += drain(reader, at_most=polls[turn % len(polls)])
            if reader.position.offset == before:
                break
    source.use_run(until="end")
    found += drain(reader)
    assert found == drain(world.open(world.source(until="end", **options)))
    assert reader.latest == reader.position.offset
    world.close()


def packed(data: bytes, kind: str) -> bytes:
    if kind == "zstd":
        return zstandard.ZstdCompressor().compress(data)
    makers: dict[str, Callable[[bytes], bytes]] = {"gzip": gzip.compress, "bzip2": bz2.compress, "xz": lzma.compress}
    return makers[kind](data) if kind in makers else data
