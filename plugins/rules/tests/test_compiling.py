"""Databases that are compiled in a process of their own, and the manners of threads that make rules ready."""

from __future__ import annotations

import logging
import sys

import pytest
from headrace_rules import compiling
from headrace_rules.scanning import HyperscanScanner

pytest.importorskip("hyperscan")
LITERALS = [b"word %d." % number for number in range(150)]
CASELESS = [number % 2 == 0 for number in range(150)]
TEXT = b"a word 7. and a WORD 8. and a WORD 9."


def found(scanner: HyperscanScanner) -> list[tuple[int, int]]:
    ids, ends = scanner.scan(TEXT)
    return sorted(zip(ids.tolist(), ends.tolist(), strict=True))


def test_a_database_that_was_compiled_apart_finds_the_same() -> None:
    with compiling.behind_batches():
        assert compiling.compiled_apart(LITERALS, CASELESS)
        apart = HyperscanScanner(LITERALS, CASELESS)
    assert found(apart) == found(HyperscanScanner(LITERALS, CASELESS)) == [(7, 9), (8, 23)]


def test_only_many_literals_behind_batches_are_compiled_apart() -> None:
    assert compiling.compiled_apart(LITERALS, CASELESS) is None
    with compiling.behind_batches():
        assert compiling.compiled_apart(LITERALS[:50], CASELESS[:50]) is None


def test_where_the_process_fails_the_own_one_compiles(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(sys, "executable", "/bin/false")
    with compiling.behind_batches(), caplog.at_level(logging.WARNING):
        assert len(found(HyperscanScanner(LITERALS, CASELESS))) == 2
    assert "could not be compiled apart" in caplog.text


def test_the_switch_interval_is_given_back() -> None:
    before = sys.getswitchinterval()
    with compiling.behind_batches():
        with compiling.behind_batches():
            assert sys.getswitchinterval() < before
        assert sys.getswitchinterval() < before
    assert sys.getswitchinterval() == before
