"""Databases in MaxMind's format, with records for addresses."""

from __future__ import annotations

import functools
import ipaddress
import json
import os
from collections.abc import Mapping
from typing import Any

import headrace as hr
import maxminddb
import polars as pl
from headrace.foundation.errors import FunctionError

from headrace_logpresets.distinct import by_distinct

FIELDS = (
    "struct<continent_code: string, country_code: string, country: string, region_code: string, region: string, "
    "city: string, postal_code: string, latitude: float64, longitude: float64, timezone: string, asn: int64, "
    "organization: string>"
)
TYPE = hr.Schema.of({"x": FIELDS})["x"]
_KEPT = 100_000
#: Identifies a file as it was when it was opened. If the file was replaced, the database is opened again.
_Version = tuple[int, int, int]


class Database:
    """An open database, with a cache of recent results."""

    def __init__(self, path: str) -> None:
        try:
            self._reader = maxminddb.open_database(path)
        except (OSError, ValueError, maxminddb.InvalidDatabaseError) as error:
            raise FunctionError(
                f"cannot open {path!r} as a MaxMind database: {error}", hint="name a file such as GeoLite2-City.mmdb"
            ) from error
        self._six = self._reader.metadata().ip_version == 6
        self._place = functools.lru_cache(maxsize=_KEPT)(self._uncached_place)
        self._record = functools.lru_cache(maxsize=_KEPT)(self._uncached_record)

    def places(self, addresses: pl.Series) -> pl.Series:
        """Return the usual fields of addresses' records."""
        return by_distinct(addresses, self._place, TYPE)

    def records(self, addresses: pl.Series) -> pl.Series:
        """Return the records of addresses as JSON."""
        return by_distinct(addresses, self._record, pl.String())

    def _found(self, text: str) -> Any:
        try:
            address = ipaddress.ip_address(text)
        except ValueError:
            return None
        # A database of IPv4 has no records for other addresses, and refuses them.
        return self._reader.get(address) if self._six or address.version == 4 else None

    def _uncached_place(self, text: str) -> dict[str, Any] | None:
        found = self._found(text)
        return _place_of(found) if isinstance(found, dict) else None

    def _uncached_record(self, text: str) -> str | None:
        found = self._found(text)
        return (
            None if found is None else json.dumps(found, ensure_ascii=False, separators=(",", ":"), default=bytes.hex)
        )


def _place_of(record: Mapping[str, Any]) -> dict[str, Any]:
    def at(*path: str | int) -> Any:
        value: Any = record
        for step in path:
            if isinstance(step, int):
                value = value[step] if isinstance(value, list) and len(value) > step else None
            else:
                value = value.get(step) if isinstance(value, dict) else None
        return value

    return {
        "continent_code": at("continent", "code"),
        "country_code": at("country", "iso_code"),
        "country": at("country", "names", "en"),
        "region_code": at("subdivisions", 0, "iso_code"),
        "region": at("subdivisions", 0, "names", "en"),
        "city": at("city", "names", "en"),
        "postal_code": at("postal", "code"),
        "latitude": at("location", "latitude"),
        "longitude": at("location", "longitude"),
        "timezone": at("location", "time_zone"),
        "asn": at("autonomous_system_number"),
        "organization": at("autonomous_system_organization"),
    }


@functools.lru_cache(maxsize=16)
def _opened(path: str, version: _Version) -> Database:
    return Database(path)


def database(path: str) -> Database:
    """Return the database of a file, which stays open. A file that was replaced is opened again. Raises FunctionError."""
    try:
        status = os.stat(path)
    except OSError as error:
        raise FunctionError(f"cannot open {path!r}: {error.strerror}", hint="name a MaxMind database") from error
    return _opened(path, (status.st_ino, status.st_mtime_ns, status.st_size))
