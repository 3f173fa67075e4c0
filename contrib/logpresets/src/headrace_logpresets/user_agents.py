"""Parses user agents by the rules of the uap-core project, which are part of the package ua-parser."""

from __future__ import annotations

import functools

import headrace as hr
import polars as pl

from headrace_logpresets.distinct import by_distinct

FIELDS = (
    "struct<browser: string, browser_version: string, os: string, os_version: string, device: string, brand: string, "
    "model: string>"
)
_TYPE = hr.Schema.of({"x": FIELDS})["x"]
_LONGEST = 4096


def parsed(texts: pl.Series) -> pl.Series:
    """Return the parts of user agents. Each distinct text of a batch is parsed once, and recent results are cached."""
    return by_distinct(texts, _parsed, _TYPE)


@functools.lru_cache(maxsize=50_000)
def _parsed(text: str) -> dict[str, str | None]:
    import ua_parser

    # Clients may send any text. A longer text is not parsed, because it is no user agent and the rules would take too
    # long.
    found = ua_parser.parse(text[:_LONGEST])
    browser, system, device = found.user_agent, found.os, found.device
    return {
        "browser": browser.family if browser else None,
        "browser_version": _version(browser.major, browser.minor, browser.patch) if browser else None,
        "os": system.family if system else None,
        "os_version": _version(system.major, system.minor, system.patch) if system else None,
        "device": device.family if device else None,
        "brand": device.brand if device else None,
        "model": device.model if device else None,
    }


def _version(*parts: str | None) -> str | None:
    """Return ``17.2`` for 17, 2 and None."""
    known: list[str] = []
    for part in parts:
        if part is None:
            break
        known.append(part)
    return ".".join(known) or None
