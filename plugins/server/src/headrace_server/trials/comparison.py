"""Compares row by row what two versions of a job have made of the same records."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from pathlib import Path

import msgspec

_EXAMPLE_LENGTH_MAX = 2_000


class SinkDifference(msgspec.Struct, frozen=True, kw_only=True):
    """The rows of one sink: how many are the same, and those that only one version has. Examples are JSON."""

    same: int
    only_before: int
    only_after: int
    examples_before: list[str]
    examples_after: list[str]

    @property
    def equal(self) -> bool:
        """Return whether both versions have the same rows."""
        return not self.only_before and not self.only_after


def compared(before: Mapping[str, Path], after: Mapping[str, Path], *, examples: int = 10) -> dict[str, SinkDifference]:
    """Return the differences by sink. A sink that only one version has differs by all of its rows. Order does not count."""
    return {
        sink: _difference(_counts(before.get(sink)), _counts(after.get(sink)), examples)
        for sink in sorted({*before, *after})
    }


def _difference(before: Counter[str], after: Counter[str], examples: int) -> SinkDifference:
    only_before, only_after = before - after, after - before
    return SinkDifference(
        same=(before & after).total(), only_before=only_before.total(), only_after=only_after.total(),
        examples_before=_first(only_before, examples), examples_after=_first(only_after, examples),
    )  # fmt: skip


def _counts(file: Path | None) -> Counter[str]:
    counts: Counter[str] = Counter()
    if file is not None:
        with open(file, encoding="utf-8") as lines:
            for line in lines:
                count, _, row = line.rstrip("\n").partition(" ")
                counts[row] += int(count)
    return counts


def _first(counts: Counter[str], examples: int) -> list[str]:
    return [row[:_EXAMPLE_LENGTH_MAX] for row in sorted(counts)[:examples]]
