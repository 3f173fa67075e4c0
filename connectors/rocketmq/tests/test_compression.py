"""Packed bodies."""

from __future__ import annotations

import contextlib

import lz4.frame  # type: ignore[import-untyped]
import pytest
import zstandard
from headrace_rocketmq import Compression
from headrace_rocketmq.compression import compress, decompress
from headrace_rocketmq.errors import InvalidMessageError
from hypothesis import given
from hypothesis import strategies as st

every_kind = pytest.mark.parametrize("kind", list(Compression))


@given(st.binary(max_size=2000), st.sampled_from(Compression))
def test_round_trip(body: bytes, kind: Compression) -> None:
    assert decompress(compress(body, kind), kind.message_flag) == body


def test_an_unpacked_body_is_left_alone() -> None:
    assert decompress(b"\x78\x9cnot packed", 0) == b"\x78\x9cnot packed"


def test_flags_without_a_kind_mean_zlib() -> None:
    assert decompress(compress(b"old client", Compression.ZLIB), 1) == b"old client"


def test_frames_without_their_size_in_the_header() -> None:
    zstd = zstandard.ZstdCompressor(write_content_size=False).compress(b"abc" * 1000)
    assert decompress(zstd, Compression.ZSTD.message_flag) == b"abc" * 1000
    assert (
        decompress(lz4.frame.compress(b"abc" * 1000, store_size=False), Compression.LZ4.message_flag) == b"abc" * 1000
    )


@every_kind
def test_the_limit_is_exact(kind: Compression) -> None:
    packed = compress(b"z" * 1000, kind)
    assert decompress(packed, kind.message_flag, 1000) == b"z" * 1000
    with pytest.raises(InvalidMessageError, match="larger than 999 bytes"):
        decompress(packed, kind.message_flag, 999)


@every_kind
def test_a_bomb_is_refused(kind: Compression) -> None:
    packed = compress(bytes(200_000_000), kind)
    with pytest.raises(InvalidMessageError, match="larger than 1000000 bytes"):
        decompress(packed, kind.message_flag, 1_000_000)


@given(st.binary(min_size=1, max_size=300), st.sampled_from(Compression), st.data())
def test_a_cut_body_is_refused(body: bytes, kind: Compression, data: st.DataObject) -> None:
    packed = compress(body, kind)
    with pytest.raises(InvalidMessageError):
        decompress(packed[: data.draw(st.integers(0, len(packed) - 1))], kind.message_flag)


@given(st.binary(max_size=100), st.sampled_from(Compression))
def test_rubbish_is_refused_with_our_own_error(rubbish: bytes, kind: Compression) -> None:
    with contextlib.suppress(InvalidMessageError):
        decompress(rubbish, kind.message_flag)


def test_an_unknown_kind_is_named() -> None:
    with pytest.raises(InvalidMessageError, match=r"unknown method \(5\)"):
        decompress(b"x", 1 | 5 << 8)
