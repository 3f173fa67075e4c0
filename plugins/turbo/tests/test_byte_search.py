"""The search for bytes gives what headrace's own gives, and the file connector uses it."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest
from headrace_file.framing import count_byte_by_columns, find_byte_by_columns
from headrace_turbo.byte_search import faster_count_byte, faster_find_byte
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.effort import examples

find_byte = faster_find_byte()
pytestmark = pytest.mark.skipif(find_byte is None, reason="headrace-turbo was built without cargo: it has no kernel")


@settings(max_examples=examples(300), deadline=None)
@given(
    pieces=st.lists(st.tuples(st.integers(0, 3000), st.binary(max_size=6)), max_size=8),
    byte=st.sampled_from([0, 10, 34, 255]),
    begin=st.integers(0, 2000),
)
def test_places_are_those_of_the_plain_search(pieces: list[tuple[int, bytes]], byte: int, begin: int) -> None:
    assert find_byte is not None
    buffer = b"".join(bytes([byte]) * (count % 50) + b"x" * count + some for count, some in pieces)
    found = find_byte(buffer, byte, min(begin, len(buffer)))
    assert found.dtype == np.int64
    assert found.tolist() == find_byte_by_columns(buffer, byte, min(begin, len(buffer))).tolist()


@settings(max_examples=examples(200), deadline=None)
@given(
    pieces=st.lists(st.tuples(st.integers(0, 20_000), st.binary(max_size=6)), max_size=4),
    byte=st.sampled_from([0, 10, 255]),
    begin=st.integers(0, 2000),
    end=st.integers(0, 60_000),
)
def test_as_many_are_counted_as_by_the_plain_count(
    pieces: list[tuple[int, bytes]], byte: int, begin: int, end: int
) -> None:
    count_byte = faster_count_byte()
    assert count_byte is not None
    buffer = b"".join(bytes([byte]) * count + some for count, some in pieces)
    assert count_byte(buffer, byte, begin, end) == count_byte_by_columns(buffer, byte, begin, end)


@pytest.mark.parametrize("begin", [0, 1, 99_999, 100_000])
def test_a_buffer_of_nothing_else_has_every_place(begin: int) -> None:
    assert find_byte is not None
    assert find_byte(b"\n" * 100_000, 10, begin).tolist() == list(range(begin, 100_000))


@pytest.mark.parametrize(("plain", "module"), [("", "headrace_turbo.byte_search"), ("plain", "headrace_file.framing")])
def test_the_file_connector_uses_it_unless_the_environment_says_otherwise(plain: str, module: str) -> None:
    program = "from headrace_file import framing; print(framing._fastest_search().__module__, framing.find_byte(b'a-b-', 45).tolist())"
    done = subprocess.run(
        [sys.executable, "-c", program], env={"HEADRACE_DECODERS": plain}, capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == f"{module} [1, 3]"
