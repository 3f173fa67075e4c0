"""Addresses as numbers, and sets of networks as sorted ranges of numbers."""

from __future__ import annotations

import functools
import ipaddress
import re
import socket
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from headrace.foundation.errors import FunctionError
from headrace_grok.values import shown
from numpy.typing import NDArray

from headrace_logpresets.distinct import by_distinct

#: As in inet_pton: four numbers up to 255 without zeros before them.
_PART = r"(0|[1-9]\d{0,2})"
_IPV4 = rf"^{_PART}\.{_PART}\.{_PART}\.{_PART}$"
_Ranges4 = tuple[NDArray[np.uint32], NDArray[np.uint32]]
#: Addresses of IPv6 are compared as their 16 bytes.
_Ranges6 = tuple[NDArray[np.bytes_], NDArray[np.bytes_]]


class NetworkSet:
    """A set of networks of IPv4 and IPv6. A test of an address is one binary search, however many networks there are."""

    def __init__(self, networks: Iterable[ipaddress.IPv4Network | ipaddress.IPv6Network]) -> None:
        every = list(networks)
        four = [each for each in every if isinstance(each, ipaddress.IPv4Network)]
        six = [each for each in every if isinstance(each, ipaddress.IPv6Network)]
        # Collapsed networks are in order, and no two of them overlap.
        four, six = list(ipaddress.collapse_addresses(four)), list(ipaddress.collapse_addresses(six))
        self._four: _Ranges4 = (
            np.array([int(each.network_address) for each in four], dtype=np.uint32),
            np.array([int(each.broadcast_address) for each in four], dtype=np.uint32),
        )
        self._six: _Ranges6 = (
            np.array([each.network_address.packed for each in six], dtype="S16"),
            np.array([each.broadcast_address.packed for each in six], dtype="S16"),
        )

    @classmethod
    def of(cls, text: str, place: str) -> NetworkSet:
        """Return the set of the networks and addresses in a text. Blanks, commas and line ends separate them; ``#``
        begins a comment.

        Raises FunctionError, which names ``place``, for other text.
        """
        networks = []
        for number, line in enumerate(text.split("\n"), 1):
            for word in re.split(r"[\s,]+", line.partition("#")[0].strip()):
                if not word:
                    continue
                try:
                    networks.append(ipaddress.ip_network(word, strict=False))
                except ValueError:
                    raise FunctionError(
                        f"{shown(word)} in line {number} of {place} is not a network",
                        hint="write 10.0.0.0/8, 2001:db8::/32, or an address",
                    ) from None
        return cls(networks)

    def contains(self, addresses: pl.Series) -> pl.Series:
        """Return for each address whether it is in one of the networks; NULL if the text is not an address."""
        numbers, is_four = ipv4_numbers(addresses)
        inside = _in_ranges(numbers, *self._four)
        known = pl.Series(inside).set(pl.Series(~is_four), None)
        if is_four.all():
            return known.alias(addresses.name)
        # The others are few different values, or are not addresses.
        others = by_distinct(addresses.set(pl.Series(is_four), None), _packed_six, pl.Binary())
        rows = np.flatnonzero(others.is_not_null().to_numpy())
        found = _in_ranges(np.array(others[rows].to_list(), dtype="S16"), *self._six)
        return known.scatter(rows, found).alias(addresses.name)


def ipv4_numbers(addresses: pl.Series) -> tuple[NDArray[np.uint32], NDArray[np.bool_]]:
    """Return addresses as numbers, and which of the texts are addresses of IPv4."""
    parts = addresses.str.extract_groups(_IPV4).struct.unnest()
    columns = [part.cast(pl.UInt32).fill_null(256).to_numpy() for part in parts]
    valid = np.logical_and.reduce([column <= 255 for column in columns])
    first, second, third, fourth = columns
    return (first << 24) | (second << 16) | (third << 8) | fourth, valid


def _in_ranges(values: NDArray[Any], starts: NDArray[Any], ends: NDArray[Any]) -> NDArray[np.bool_]:
    if not len(starts):
        return np.zeros(len(values), dtype=np.bool_)
    places = np.searchsorted(starts, values, side="right") - 1
    return (places >= 0) & (values <= ends[places])


def _packed_six(text: str) -> bytes | None:
    try:
        return socket.inet_pton(socket.AF_INET6, text)
    except (OSError, ValueError):
        return None


@functools.lru_cache(maxsize=256)
def networks_of_text(text: str) -> NetworkSet:
    """Return the set of networks in a text. Raises FunctionError."""
    return NetworkSet.of(text, "the list of networks")


@functools.lru_cache(maxsize=64)
def networks_of_file(path: str) -> NetworkSet:
    """Return the set of networks in a file. Each process reads the file once. Raises FunctionError."""
    try:
        text = Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise FunctionError(f"cannot read networks from {path!r}: {error}", hint="name a file of networks") from error
    return NetworkSet.of(text, repr(path))
