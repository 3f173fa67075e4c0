"""Any bytes, appended in any pieces, read in any polls, resumed anywhere: always the same records."""

from __future__ import annotations

import bz2
import gzip
import itertools
import lzma
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
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


@dataclass(frozen=True)
class Way:
    """How a file comes to be and is read: where it is cut, records of each poll, and the polls before which the reader is another one."""

    cuts: list[int]
    polls: list[int]
    restarts: set[int]

    def pieces(self, data: bytes) -> Iterator[bytes]:
        places = [0, *sorted(min(cut, len(data)) for cut in self.cuts), len(data)]
        return (data[begin:end] for begin, end in itertools.pairwise(places))


ways = st.builds(
    Way,
    cuts=st.lists(st.integers(0, 200), max_size=6),
    polls=st.lists(st.integers(1, 4), min_size=1, max_size=5),
    restarts=st.sets(st.integers(0, 30)),
)


def read_in_pieces(
    world: World, pieces: Iterable[bytes], way: Way, options: dict[str, Any], *, counted: bool
) -> Records:
    """Append the pieces one by one, and read each as it comes. What is read of the whole file at once must be the same."""
    world.write("log", b"")
    source = world.source(**options)
    reader = world.open(source)
    found = Records()
    turn = 0
    for piece in pieces:
        world.append("log", piece)
        while True:
            turn += 1
            if turn in way.restarts:
                position = checkpointed(reader.position)
                reader.close()
                forget_parked()
                source = world.source(**options)
                reader = world.open(source, start=position)
            if counted:
                assert reader.latest >= reader.position.offset
            before = reader.position.offset
            found += drain(reader, at_most=way.polls[turn % len(way.polls)])
            if reader.position.offset == before:
                break
    source.use_run(until="end")
    found += drain(reader)
    assert reader.latest == reader.position.offset
    assert found == drain(world.open(world.source(until="end", **options)))
    return found


@settings(max_examples=examples(250), deadline=None)
@given(
    data=content,
    way=ways,
    header=st.sampled_from([0, 0, 1, 2]),
    kind=st.sampled_from(["none", "none", "none", "gzip", "zstd", "bzip2", "xz"]),
    limit=st.sampled_from([64, 1000]),
    counted=st.booleans(),
)
def test_lines(
    tmp_path_factory: pytest.TempPathFactory,
    data: bytes,
    way: Way,
    header: int,
    kind: str,
    limit: int,
    counted: bool,
) -> None:
    world = World(Path(tmp_path_factory.mktemp("split")))
    options: dict[str, Any] = {"skip_lines": header, "max_record_bytes": limit, "read_bytes": 1024, "compression": kind}
    found = read_in_pieces(world, (packed(piece, kind) for piece in way.pieces(data)), way, options, counted=counted)
    assert found == expected_lines(data, header=header, limit=limit)
    world.close()


@settings(max_examples=examples(150), deadline=None)
@given(data=content, way=ways, limit=st.sampled_from([64, 1000]), counted=st.booleans())
def test_csv(tmp_path_factory: pytest.TempPathFactory, data: bytes, way: Way, limit: int, counted: bool) -> None:
    """As it was read in pieces, so it is read at once: the rule itself is tested in test_framing."""
    world = World(Path(tmp_path_factory.mktemp("split")))
    options: dict[str, Any] = {"format": "csv", "max_record_bytes": limit, "read_bytes": 1024}
    read_in_pieces(world, way.pieces(data), way, options, counted=counted)
    world.close()


def packed(data: bytes, kind: str) -> bytes:
    if kind == "zstd":
        return zstandard.ZstdCompressor().compress(data)
    makers: dict[str, Callable[[bytes], bytes]] = {"gzip": gzip.compress, "bzip2": bz2.compress, "xz": lzma.compress}
    return makers[kind](data) if kind in makers else data
