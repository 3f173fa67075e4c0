"""Compressed files: members and frames, growth, damage, and memory."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import tracemalloc
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest
import zstandard
from file_world import NO_WAIT, World, checkpointed, drain, lines
from headrace.foundation.errors import BrokenQueueError, DataError
from headrace_file.decompression import Decompressor, kind_of, make_decompressor
from headrace_file.streams import CompressedStream, OpenFile, PlainStream, forget_parked, open_stream
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.effort import examples


def pack(kind: str, data: bytes) -> bytes:
    if kind == "zstd":
        return zstandard.ZstdCompressor(write_checksum=True).compress(data)
    makers: dict[str, Callable[[bytes], bytes]] = {"gzip": gzip.compress, "bzip2": bz2.compress, "xz": lzma.compress}
    return makers[kind](data)


def archive(files: dict[str, bytes], *, method: int = zipfile.ZIP_DEFLATED) -> bytes:
    written = io.BytesIO()
    with zipfile.ZipFile(written, "w", method, compresslevel=1) as packed:
        for name, data in files.items():
            packed.writestr(name, data)
    return written.getvalue()


KINDS = pytest.mark.parametrize("kind", ["gzip", "zstd", "bzip2", "xz"])


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
            (bz2.compress(b"")[:10], "a.log", "bzip2"),
            (bz2.compress(b"x")[:10], "a.log", "bzip2"),
            (b"BZh9 is text", "a.log", "none"),
            (b"BZh9", "a.bz2", "bzip2"),
            (b"BZip", "a.bz2", "none"),
            (lzma.compress(b"")[:6], "a.log", "xz"),
            (b"\xfd7z", "a.xz", "xz"),
            (b"PK\x03\x04", "a.log", "zip"),
            (b"PK\x05\x06", "a.log", "zip"),
            (b"P", "a.zip", "zip"),
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

    @pytest.mark.parametrize("kind", ["gzip", "xz"])
    def test_zeros_between_members(self, kind: str) -> None:
        packed = pack(kind, b"one ") + bytes(512) + pack(kind, b"two") + bytes(100)
        decompressor = make_decompressor(kind)
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
        data = b"".join(b"%07d," % (n * 7919 % 1_000_003) for n in range(300_000))
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

    @pytest.mark.parametrize(
        "make",
        [
            lambda data: gzip.compress(data, 1),
            lambda data: bz2.compress(data, 1),
            lambda data: lzma.compress(data, preset=0),
            lambda data: archive({"a": data}),
        ],
        ids=["gzip", "bzip2", "xz", "zip"],
    )
    def test_little_memory_for_a_bomb(self, tmp_path: Path, make: Callable[[bytes], bytes]) -> None:
        path = tmp_path / "bomb"
        path.write_bytes(make(bytes(200_000_000)))
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
        where = f"after record {len(found) - 1}" if found else "before record 0"
        assert caplog.messages == [f"{world.path('log')} ends in the middle of its compressed data, {where}"]

    def test_compression_can_be_told(self, world: World) -> None:
        world.write("log", gzip.compress(lines(1)))
        assert drain(world.open(world.source(compression="gzip"))).bodies == [b"line 1"]
        assert drain(world.open(world.source(compression="none", until="end"))).bodies != [b"line 1"]


class TestXzMemory:
    def test_a_window_over_the_limit_is_refused(self) -> None:
        filters = [{"id": lzma.FILTER_LZMA2, "preset": 0, "dict_size": 256 * 1024**2}]
        packed = lzma.compress(b"a line\n", filters=filters)
        with pytest.raises(ValueError, match=r"(?i)memory"):
            _decompress_all(make_decompressor("xz"), packed)


class TestZip:
    def test_records_and_positions(self, world: World) -> None:
        files = {"a.log": lines(*range(300)), "folder/": b"", "folder/b.log": lines(*range(300, 600))}
        world.write("log", archive(files))
        reader = world.open(world.source())
        assert reader.latest == 600
        first = drain(reader, per_poll=7, at_most=333)
        position = checkpointed(reader.position)
        assert position.hint["byte"] == len(lines(*range(333)))
        forget_parked()
        rest = drain(world.open(world.source(), start=position))
        assert (first + rest) == list(enumerate(lines(*range(600)).split(b"\n")[:-1]))

    def test_no_line_is_made_of_two_files(self, world: World) -> None:
        world.write("log", archive({"a": b"1\n2", "b": b"", "c": b"3"}, method=zipfile.ZIP_STORED))
        assert drain(world.open(world.source(until="end"))).bodies == [b"1", b"2", b"3"]

    def test_nothing_comes_before_the_directory_is_there(self, world: World, caplog: pytest.LogCaptureFixture) -> None:
        packed = archive({"a": lines(*range(5000))})
        world.write("log", packed[: len(packed) - 30])
        reader = world.open(world.source())
        assert reader.poll(10, NO_WAIT) is None
        assert caplog.messages == [f"{world.path('log')} ends in the middle of its compressed data, before record 0"]
        world.append("log", packed[len(packed) - 30 :])
        assert len(drain(reader)) == 5000
        assert reader.poll(10, NO_WAIT) is None

    def test_a_cut_archive_is_set_aside_in_a_run_to_the_end(self, world: World) -> None:
        packed = archive({"a": lines(*range(5000))})
        path = world.write("log", packed[: len(packed) // 2])
        with pytest.raises(BrokenQueueError, match=rf"{path} ends in the middle of its compressed data"):
            drain(world.open(world.source(until="end")))

    def test_damage_names_the_file_and_the_place(self, world: World) -> None:
        packed = bytearray(archive({"a": lines(*range(5000))}, method=zipfile.ZIP_STORED))
        packed[1000] ^= 1
        path = world.write("log", bytes(packed))
        with pytest.raises(
            BrokenQueueError, match=rf"{path} is not valid zip after \d+ decompressed bytes: Bad CRC-32"
        ):
            drain(world.open(world.source()))

    def test_a_directory_that_points_before_the_file_is_damage(self, world: World) -> None:
        packed = bytearray(archive({"a": lines(1)}))
        packed[-6:-2] = (int.from_bytes(packed[-6:-2], "little") + 1000).to_bytes(4, "little")
        path = world.write("log", bytes(packed))
        with pytest.raises(BrokenQueueError, match=rf"{path} is not valid zip"):
            drain(world.open(world.source()))

    def test_methods_without_a_bound_of_memory_are_refused(self, world: World) -> None:
        world.write("log", archive({"a": lines(1)}, method=zipfile.ZIP_BZIP2))
        with pytest.raises(BrokenQueueError, match=r"a in it is compressed by method 12, which is not read"):
            drain(world.open(world.source()))

    def test_an_encrypted_file_is_refused(self, world: World) -> None:
        packed = bytearray(archive({"a": lines(1)}))
        packed[6] |= 1  # the flag in the file's header, and in the directory
        packed[packed.index(b"PK\x01\x02") + 8] |= 1
        world.write("log", bytes(packed))
        with pytest.raises(BrokenQueueError, match=r"is encrypted"):
            drain(world.open(world.source()))

    def test_several_files_with_headers_are_refused(self, world: World) -> None:
        world.write("log", archive({"a": b"x\n1\n", "b": b"x\n2\n"}))
        with pytest.raises(BrokenQueueError, match=r"holds several files"):
            drain(world.open(world.source(header=True, format="csv")))
        world.write("one", archive({"a": b"x\n1\n"}))
        assert drain(world.open(world.source("one", header=True, format="csv"), "one")).bodies == [b"1"]

    def test_an_archive_that_is_written_anew_with_more_is_read_on(self, world: World) -> None:
        world.write("log", archive({"a": lines(0, 1)}))
        reader = world.open(world.source())
        assert len(drain(reader)) == 2
        world.write("log", archive({"a": lines(0, 1), "b": lines(2)}))
        assert drain(reader) == [(2, b"line 2")]

    def test_an_empty_archive_has_no_records(self, world: World) -> None:
        world.write("log", archive({}))
        assert drain(world.open(world.source(until="end"))) == []
