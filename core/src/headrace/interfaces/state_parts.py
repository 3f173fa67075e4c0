"""A version of a shard's state in parts, by ranges of the keys' hashes. Each part can be loaded alone.

Part 0 has the shard's state of its queues, and state of its operators that belongs to no key. 2 ** bits parts follow;
part 1 + i has the keys whose hashes begin with the bits of i. All parts together are one MessagePack map, which older
versions of headrace refuse because of its format number.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from zlib import crc32

import msgspec
import numpy as np

from headrace.foundation.errors import CheckpointError, RetriableError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from headrace.interfaces.operator import PartedOperator

FORMAT_VERSION = 2
#: Keys per part: few enough to load the part for one of them, many enough that the number of parts stays small.
_ROWS_PER_PART = 1_024
_BITS_MAX = 12
#: Keys that are restored between two entries: about 20 ms of work.
_ROWS_PER_STEP = 16_384
_ARRAY = struct.Struct(">BI")
_ARRAY_32 = 0xDD
_EMPTY_ARRAY = b"\x90"
_CHECKSUM_BYTES = 4

Fetch = Callable[[Mapping[int, Sequence[range]]], Iterator[tuple[int, int, bytes]]]


def bits_for(rows: int) -> int:
    """Return the number of bits of the hash by which this number of keys is divided."""
    return min(max(0, rows // _ROWS_PER_PART).bit_length(), _BITS_MAX)


def part_numbers(hashes: NDArray[np.uint64], bits: int) -> NDArray[np.int64]:
    """Return for each hash the number of its range, from 0 to 2 ** bits - 1."""
    if bits == 0:
        return np.zeros(len(hashes), dtype=np.int64)
    return (hashes >> np.uint64(64 - bits)).astype(np.int64)


def pack_parts(about: Mapping[str, Any], ranges: Sequence[Mapping[str, bytes]], token: str = "") -> list[bytes]:
    """Return the parts of a version: ``about`` (without "format"), then the operators' bytes per range.

    Each part has a checksum, which is valid only at its place in the version with this ``token``.
    """
    contents = [msgspec.msgpack.encode({name: each for name, each in one.items() if each}) for one in ranges]
    # At the beginning, because the end of the last part is the end of the whole version.
    checked = [_checksum(content, token, number) + content for number, content in enumerate(contents)]
    parts = [msgspec.msgpack.encode(content) for content in checked]
    size = sum(len(part) for part in parts)
    head = {"format": FORMAT_VERSION, **about, "bytes": size, "token": token}
    first = msgspec.msgpack.encode({**head, "checksum": _head_checksum(head, len(parts)), "parts": []})
    assert first.endswith(_EMPTY_ARRAY)
    return [first[:-1] + _ARRAY.pack(_ARRAY_32, len(parts)), *parts]


def unpack_first(first: bytes) -> dict[str, Any]:
    """Return ``about``, and "bits", the number of bits that divide the other parts. Raises CheckpointError."""
    try:
        kind, count = _ARRAY.unpack(first[-_ARRAY.size :])
        about: dict[str, Any] = msgspec.msgpack.decode(first[: -_ARRAY.size] + _EMPTY_ARRAY)
        version = int(about["format"])
    except (struct.error, msgspec.DecodeError, KeyError, TypeError, ValueError) as error:
        raise CheckpointError(f"the first part of a stored state is damaged: {error}") from error
    if version > FORMAT_VERSION:
        raise CheckpointError(
            f"a stored state was written by a newer version of headrace (format {version})",
            hint="run the job with that version, or with another checkpoint directory",
        )
    if kind != _ARRAY_32 or count & (count - 1) or count == 0:
        raise CheckpointError(f"the first part of a stored state is damaged: it names {count} parts")
    _check_head(about, count)
    about["bits"] = count.bit_length() - 1
    return about


def unpack_ranges(stored: Mapping[str, Any]) -> list[dict[str, bytes]]:
    """Return the operators' bytes per range of a version that was decoded as a whole. Raises CheckpointError."""
    _check_head(stored, len(stored["parts"]))
    return [unpack_range(each, stored.get("token"), number) for number, each in enumerate(stored["parts"])]


def unpack_range(content: bytes, token: str | None = "", number: int = 0) -> dict[str, bytes]:
    """Return the operators' bytes of one range, an element of "parts" of the whole map. Raises CheckpointError.

    ``token``: the token of the version; None if an older version of headrace wrote it without checksums.
    """
    what = f"part {number + 1} of a stored state"
    try:
        if token is not None:
            checksum, content = content[:_CHECKSUM_BYTES], content[_CHECKSUM_BYTES:]
            if checksum != _checksum(content, token, number):
                raise CheckpointError(f"{what} is damaged, or of another version: its checksum does not match")
        return msgspec.msgpack.decode(content, type=dict[str, bytes])
    except msgspec.DecodeError as error:
        raise CheckpointError(f"{what} is damaged: {error}") from error


def _unpack_part(part: bytes, token: str | None, number: int) -> dict[str, bytes]:
    try:
        return unpack_range(msgspec.msgpack.decode(part, type=bytes), token, number)
    except msgspec.DecodeError as error:
        raise CheckpointError(f"part {number + 1} of a stored state is damaged: {error}") from error


def _checksum(content: bytes, token: str, number: int) -> bytes:
    return crc32(f"{token}/{number}/".encode() + content).to_bytes(_CHECKSUM_BYTES, "big")


def _head_checksum(head: Mapping[str, Any], parts: int) -> int:
    own = {name: value for name, value in head.items() if name not in ("checksum", "parts")}
    return crc32(msgspec.msgpack.encode([own, parts]))


def _check_head(about: Mapping[str, Any], parts: int) -> None:
    # An older version of headrace has written neither.
    if ("token" in about or "checksum" in about) and about.get("checksum") != _head_checksum(about, parts):
        raise CheckpointError("the first part of a stored state is damaged: its checksum does not match")


@dataclass
class _Version:
    """A version that is restored: its place in the order, and which of its ranges are here."""

    place: int
    bits: int
    fetched: NDArray[np.bool_]


class Restore:
    """The state of a shard that is loaded in the background: requested parts first, the rest step by step. Used by one
    thread.

    A *page* is a range of hashes, as narrow as in the version with the most parts. A page is either loaded completely,
    with the rows of all versions for its keys, or not at all. ``tokens``: the tokens of the versions by number, see
    ``pack_parts``.
    """

    def __init__(
        self,
        versions: Sequence[tuple[int, int]],
        rows: int,
        fetch: Fetch,
        operators: Mapping[str, PartedOperator],
        tokens: Mapping[int, str | None] | None = None,
    ) -> None:
        self._versions = {
            number: _Version(place, bits, np.zeros(1 << bits, dtype=bool))
            for place, (number, bits) in enumerate(versions)
        }
        self._fetch = fetch
        self._tokens = tokens or {}
        self._operators = operators
        self.bits = max(bits for _, bits in versions)
        self._here: NDArray[np.bool_] = np.zeros(1 << self.bits, dtype=bool)
        self._step_pages = max(1, (_ROWS_PER_STEP << self.bits) // max(rows, 1))
        self.done = False

    def need(self, hashes: NDArray[np.uint64]) -> None:
        """Load the pages of these hashes. Operators call it before they look up keys. Raises RetriableError."""
        pages = part_numbers(hashes, self.bits)
        missing = np.unique(pages[~self._here[pages]])
        if missing.size:
            self._load(missing)

    def need_all(self) -> None:
        """Load all pages that are not loaded yet. Raises RetriableError."""
        while not self.done:
            self.step()

    def step(self) -> None:
        """Load some more pages. Raises RetriableError; pages that were loaded before stay valid."""
        missing = np.flatnonzero(~self._here)[: self._step_pages]
        if missing.size:
            self._load(missing)

    def _load(self, pages: NDArray[np.int64]) -> None:
        wanted: dict[int, list[range]] = {}
        needed: dict[int, NDArray[np.int64]] = {}
        for number, version in self._versions.items():
            ranges = np.unique(pages >> (self.bits - version.bits))
            ranges = ranges[~version.fetched[ranges]]
            if ranges.size:
                needed[number] = ranges
                wanted[number] = [range(begin + 1, end + 1) for begin, end in _runs(ranges)]
        contents: dict[str, list[tuple[int, bytes]]] = {name: [] for name in self._operators}
        count = 0
        for number, place, part in self._fetch(wanted) if wanted else ():
            count += 1
            for name, content in _unpack_part(part, self._tokens.get(number, ""), place - 1).items():
                contents[name].append((self._versions[number].place, content))
        if count != sum(ranges.size for ranges in needed.values()):
            raise RetriableError(
                f"the state store returned {count} parts of the state, which are not the requested ones"
            )
        # From here on only damaged content can fail; it ends the job.
        loading = np.zeros(1 << self.bits, dtype=bool)
        loading[pages] = True
        for name, operator in self._operators.items():
            operator.put_parts(contents[name], loading)
        for number, ranges in needed.items():
            self._versions[number].fetched[ranges] = True
        self._here |= loading
        if self._here.all():
            self.done = True
            for operator in self._operators.values():
                operator.end_restore()


def _runs(numbers: NDArray[np.int64]) -> Iterator[tuple[int, int]]:
    """Yield (first, one behind the last) of numbers that follow one another."""
    breaks = np.flatnonzero(np.diff(numbers) != 1) + 1
    for run in np.split(numbers, breaks):
        yield int(run[0]), int(run[-1]) + 1
