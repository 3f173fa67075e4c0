"""User agents, by the rules of the uap-core project, which the package ua-parser brings."""

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
    """Return what texts say. Each distinct one of a batch is asked for once, and what was found lately is kept."""
    return by_distinct(texts, _parsed, _TYPE)


@functools.lru_cache(maxsize=50_000)
def _parsed(text: str) -> dict[str, str | None]:
    import ua_parser

    # Clients choose what they write: a longer text is no user agent, and rules would take long for it.
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
    """Return ``17.2`` for 17, 2 and nothing."""
    known: list[str] = []
    for part in parts:
        if part is None:
            break
        known.append(part)
    return ".".join(known) or None
