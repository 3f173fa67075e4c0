"""Compressed files: members and frames, growth, damage, and memory."""

from __future__ import annotations

import gzip
import tracemalloc
from pathlib import Path

import pytest
import zstandard
from file_world import NO_WAIT, World, checkpointed, drain, lines
from headrace.foundation.errors import DataError
from headrace_file.decompression import Decompressor, kind_of, make_decompressor
from headrace_file.streams import CompressedStream, OpenFile, PlainStream, forget_parked, open_stream
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.effort import examples


def pack(kind: str, data: bytes) -> bytes:
    return gzip.compress(data) if kind == "gzip" else zstandard.ZstdCompressor(write_checksum=True).compress(data)


KINDS = pytest.mark.parametrize("kind", ["gzip", "zstd"])


class TestKind:
    @pytest.mark.parametrize(
        ("head", "path", "kind"),
        [
            (gzip.compress(b"")[:4], "a.log", "gzip"),
            (zstandard.compress(b"")[:4], "a.log", "zstd"),
            (b"plai", "a.log.gz", "none"),
            (b"", "a.log.gz", "gzip"),
            (b"\x1f", "a.gz", "gzip"),
            (b"", "a.zst", "zstd"),
            (b"", "a.log", "none"),
            (b"{}", "a.gz", "none"),
        ],
    )
    def test_first_bytes_decide_before_the_name(self, head: bytes, path: str, kind: str) -> None:
        assert kind_of(head, path) == kind


class TestDecompressor:
    @KINDS
    @given(st.data())
    @settings(max_examples=examples(60), deadline=None)
    def test_any_pieces_of_any_members(self, kind: str, data: st.DataObject) -> None:
        members = data.draw(st.lists(st.binary(max_size=3000), max_size=4))
        packed = b"".join(pack(kind, member) for member in members)
        decompressor = make_decompressor(kind)
        at, out = 0, b""
        while at < len(packed) or not decompressor.needs_input:
            size = data.draw(st.integers(1, 500))
            piece = packed[at : at + size] if decompressor.needs_input else b""
            at += len(piece)
            out += decompressor.decompress(piece, data.draw(st.integers(1, 700)))
        assert out == b"".join(members)

    def test_zeros_between_gzip_members(self) -> None:
        packed = gzip.compress(b"one ") + bytes(512) + gzip.compress(b"two") + bytes(100)
        decompressor = make_decompressor("gzip")
        out = decompressor.decompress(packed, 1000)
        while not decompressor.needs_input:
            out += decompressor.decompress(b"", 1000)
        assert out == b"one two"

    @KINDS
    def test_damage_is_an_error(self, kind: str) -> None:
        packed = bytearray(pack(kind, b"".join(b"%d " % n for n in range(2000))))
        packed[len(packed) // 2] ^= 0xFF
        packed[len(packed) // 2 + 1] ^= 0xFF
        decompressor = make_decompressor(kind)
        with pytest.raises(ValueError):
            _decompress_all(decompressor, bytes(packed))


def _decompress_all(decompressor: Decompressor, packed: bytes) -> None:
    decompressor.decompress(packed, 10**6)
    while not decompressor.needs_input:
        decompressor.decompress(b"", 10**6)


class TestStream:
    @KINDS
    def test_places_in_any_order(self, tmp_path: Path, kind: str) -> None:
        data = b"".join(b"%07d," % n for n in range(100_000))
        path = tmp_path / "file"
        path.write_bytes(pack(kind, data[:300_000]) + pack(kind, data[300_000:]))
        stream = open_stream(str(path), "auto")
        assert isinstance(stream, CompressedStream)
        for at, size in ((0, 10), (10, 500_000), (499_000, 100), (5, 5), (799_990, 100), (900_000, 5)):
            assert stream.read_at(at, size) == data[at : at + size]
        stream.close()

    @KINDS
    def test_a_cut_member_goes_on_when_the_rest_comes(self, tmp_path: Path, kind: str) -> None:
        data = b"".join(b"%07d," % (n * 7919 % 1_000_003) for n in range(50_000))
        packed = pack(kind, data)
        path = tmp_path / "file"
        path.write_bytes(packed[: len(packed) // 2])
        stream = CompressedStream(OpenFile(str(path)), kind)
        half = stream.read_at(0, len(data))
        assert half == data[: len(half)]
        assert 0 < len(half) < len(data)
        path.write_bytes(packed)
        assert stream.read_at(len(half), len(data)) == data[len(half) :]
        stream.close()

    @KINDS
    def test_reading_on_in_another_reader_begins_where_the_last_ended(self, tmp_path: Path, kind: str) -> None:
        forget_parked()
        path = tmp_path / "file"
        path.write_bytes(pack(kind, b"0123456789" * 1000))
        first = open_stream(str(path), "auto")
        first.read_at(0, 5000)
        first.close()
        second = open_stream(str(path), "auto", near=4990)
        assert second is first
        assert second.read_at(4990, 20) == b"0123456789" * 2
        third = open_stream(str(path), "auto", near=4990)
        assert third is not first
        second.close()
        third.close()

    def test_little_memory_for_a_bomb(self, tmp_path: Path) -> None:
        path = tmp_path / "bomb.gz"
        path.write_bytes(gzip.compress(bytes(200_000_000), 1))
        stream = open_stream(str(path), "auto")
        tracemalloc.start()
        try:
            assert stream.read_at(0, 1000) == bytes(1000)
            assert stream.read_at(150_000_000, 1000) == bytes(1000)
            assert tracemalloc.get_traced_memory()[1] < 20_000_000
        finally:
            tracemalloc.stop()
            stream.close()

    def test_zstd_blocks_that_stand_for_much(self) -> None:
        """12 KB that are 400 MB: each block of four bytes repeats one byte 131,072 times."""
        block = (131_072 << 3 | 1 << 1).to_bytes(3, "little") + b"a"
        last = (0 << 3 | 1).to_bytes(3, "little")
        frame = b"\x28\xb5\x2f\xfd" + b"\x00" + b"\x58" + block * 3_000 + last
        decompressor = make_decompressor("zstd")
        sizes = [len(decompressor.decompress(frame, 1_000_000))]
        while not decompressor.needs_input:
            sizes.append(len(decompressor.decompress(b"", 1_000_000)))
        assert sum(sizes) == 131_072 * 3_000
        assert max(sizes) <= 1_000_000 + 16 * 1024**2

    def test_plain_stays_plain(self, tmp_path: Path) -> None:
        path = tmp_path / "file.gz"
        path.write_bytes(b"not compressed at all")
        stream = open_stream(str(path), "auto")
        assert isinstance(stream, PlainStream)
        stream.close()


class TestReading:
    @KINDS
    def test_records_and_positions(self, world: World, kind: str) -> None:
        world.write("log", pack(kind, lines(*range(500))) + pack(kind, lines(*range(500, 1000))))
        reader = world.open(world.source())
        assert reader.latest == 1000
        first = drain(reader, per_poll=7, at_most=333)
        position = checkpointed(reader.position)
        assert position.hint["byte"] == len(lines(*range(333)))
        forget_parked()
        rest = drain(world.open(world.source(), start=position))
        assert (first + rest) == list(enumerate(lines(*range(1000)).split(b"\n")[:-1]))

    @KINDS
    def test_appended_members_are_followed(self, world: World, kind: str) -> None:
        world.write("log", pack(kind, lines(0, 1)))
        reader = world.open(world.source())
        assert drain(reader).numbers == [0, 1]
        assert reader.poll(10, NO_WAIT) is None
        for number in range(2, 6):
            world.append("log", pack(kind, lines(number)))
            assert drain(reader) == [(number, b"line %d" % number)]
            assert reader.latest == number + 1

    @KINDS
    def test_damage_names_the_file_and_the_place(self, world: World, kind: str) -> None:
        packed = bytearray(pack(kind, lines(*range(5000))))
        packed[len(packed) // 2] ^= 0xFF
        packed[len(packed) // 2 + 1] ^= 0xFF
        path = world.write("log", bytes(packed))
        with pytest.raises(DataError, match=rf"{path} is not valid {kind} after \d+ decompressed bytes"):
            drain(world.open(world.source()))

    @KINDS
    def test_a_cut_file_is_told(self, world: World, kind: str, caplog: pytest.LogCaptureFixture) -> None:
        packed = pack(kind, lines(*range(50_000)))
        world.write("log", packed[: len(packed) // 2])
        found = drain(world.open(world.source()))
        assert found == list(enumerate(lines(*range(50_000)).split(b"\n")))[: len(found)]
        assert caplog.messages == [
            f"{world.path('log')} ends in the middle of its compressed data, after record {len(found) - 1}"
        ]

    def test_compression_can_be_told(self, world: World) -> None:
        world.write("log", gzip.compress(lines(1)))
        assert drain(world.open(world.source(compression="gzip"))).bodies == [b"line 1"]
        assert drain(world.open(world.source(compression="none", until="end"))).bodies != [b"line 1"]
