"""Both scanners find the same, and compiled databases survive on disk only unharmed."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest
from headrace_rules.disk_cache import DatabaseCache
from headrace_rules.scanning import HyperscanScanner, PolarsScanner, Scanner, hyperscan_is_installed
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.effort import examples

SCANNERS = [PolarsScanner, *([HyperscanScanner] if hyperscan_is_installed() else [])]
needs_hyperscan = pytest.mark.skipif(not hyperscan_is_installed(), reason="hyperscan has no wheel for this platform")
BYTES = st.sampled_from([b"a", b"B", b"k", "é".encode(), "\u212a".encode(), b"\n", b"\xff"])


def found(scanner: Scanner, buffer: bytes) -> set[tuple[int, int]]:
    literals, ends = scanner.scan(buffer)
    return set(zip(literals.tolist(), ends.tolist(), strict=True))


@pytest.mark.parametrize("kind", SCANNERS)
@settings(max_examples=examples(100, least=5), deadline=None)
@given(
    literals=st.lists(st.tuples(st.lists(BYTES, min_size=1, max_size=3), st.booleans()), min_size=1, max_size=6),
    content=st.lists(BYTES, max_size=40),
)
def test_every_occurrence_is_found(kind: type, literals: list[tuple[list[bytes], bool]], content: list[bytes]) -> None:
    texts, folds = [b"".join(parts) for parts, _ in literals], [fold for _, fold in literals]
    buffer = b"".join(content)
    expected = {
        (number, end)
        for number, (text, fold) in enumerate(zip(texts, folds, strict=True))
        for end in range(len(buffer) + 1)
        if (buffer.lower() if fold else buffer)[:end].endswith(text.lower() if fold else text)
    }
    assert found(kind(texts, folds), buffer) == expected


LITERALS = [f"literal-{number}".encode() for number in range(400)]
FOLDS = [False] * len(LITERALS)


@needs_hyperscan
def test_a_database_is_read_from_disk_the_second_time(tmp_path: Path) -> None:
    cache = DatabaseCache(tmp_path / "cache")
    HyperscanScanner(LITERALS, FOLDS, cache)
    (file,) = cache.directory.glob("*.hsdb")
    os.utime(file, (1, 1))
    again = HyperscanScanner(LITERALS, FOLDS, cache)
    assert found(again, b"x literal-17") == {(1, 11), (17, 12)}
    assert file.stat().st_mtime > 1  # it was used
    HyperscanScanner(LITERALS, [True, *FOLDS[1:]], cache)
    assert len(list(cache.directory.glob("*.hsdb"))) == 2


@needs_hyperscan
@pytest.mark.parametrize(
    "damage", [lambda c: c[:-1], lambda c: c[:40] + b"x" + c[41:], lambda c: b"", lambda c: b"z" + c]
)
def test_a_damaged_database_is_compiled_anew(damage: Callable[[bytes], bytes], tmp_path: Path) -> None:
    cache = DatabaseCache(tmp_path / "cache")
    HyperscanScanner(LITERALS, FOLDS, cache)
    (file,) = cache.directory.glob("*.hsdb")
    whole = file.read_bytes()
    file.write_bytes(damage(whole))
    assert found(HyperscanScanner(LITERALS, FOLDS, cache), b"literal-3") == {(3, 9)}
    assert len(file.read_bytes()) == len(whole)  # and mended


@needs_hyperscan
def test_a_directory_that_others_can_write_to_is_not_used(tmp_path: Path) -> None:
    place = tmp_path / "cache"
    place.mkdir()
    place.chmod(0o777)
    cache = DatabaseCache(place)
    HyperscanScanner(LITERALS, FOLDS, cache)
    assert list(place.iterdir()) == []
    assert cache.find(b"x") is None


@needs_hyperscan
def test_an_unwritable_place_costs_only_the_cache(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    scanner = HyperscanScanner(LITERALS, FOLDS, DatabaseCache(tmp_path / "file" / "cache"))
    assert found(scanner, b"literal-3") == {(3, 9)}
