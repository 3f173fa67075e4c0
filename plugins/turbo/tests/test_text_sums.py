"""The polynomials of texts are those of headrace's own, and so are the hashes of keys, which are a part of the storage format."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import polars as pl
import pytest
from headrace.flow.key_hashes import key_hashes as plain_key_hashes
from headrace.flow.key_hashes import text_sums
from headrace.interfaces.key_hashing import key_hashes
from headrace_turbo.text_sums import faster_text_sums
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.effort import examples

faster = faster_text_sums()
pytestmark = pytest.mark.skipif(faster is None, reason="headrace-turbo was built without cargo: it has no kernel")


@settings(max_examples=examples(200), deadline=None)
@given(
    texts=st.lists(st.binary(max_size=40), max_size=60), before=st.binary(max_size=3), behind=st.binary(max_size=3),
    times=st.sampled_from([1, 30]),
)  # fmt: skip
def test_sums_are_those_of_the_plain_function(texts: list[bytes], before: bytes, behind: bytes, times: int) -> None:
    assert faster is not None
    texts = texts * times
    ends = np.cumsum([len(before), *map(len, texts)], dtype=np.int64)
    data = np.frombuffer(before + b"".join(texts) + behind, dtype=np.uint8)
    assert faster(data, ends).tolist() == text_sums(data, ends).tolist()


@settings(max_examples=examples(100), deadline=None)
@given(texts=st.lists(st.none() | st.text(max_size=30), max_size=50), numbers=st.booleans())
def test_hashes_of_keys_are_the_same(texts: list[str | None], numbers: bool) -> None:
    frame = pl.DataFrame({"a": texts * 2, "n": range(len(texts) * 2)}, schema={"a": pl.String, "n": pl.Int64})
    frame = frame.with_columns(pl.col("a").cast(pl.Binary).alias("b"), pl.col("n").cast(pl.Decimal(20, 3)).alias("d"))
    keys = ["a", "b", *(["n", "d"] if numbers else [])]
    assert key_hashes(frame, keys).tolist() == plain_key_hashes(frame, keys).tolist()
    assert key_hashes(frame[3:], keys).tolist() == plain_key_hashes(frame[3:], keys).tolist()


def test_places_that_are_not_in_the_data_fail_as_without_the_kernel() -> None:
    assert faster is not None
    data = np.zeros(4, dtype=np.uint8)
    for ends in ([0, 9], [0, 3, 1]):
        with pytest.raises((IndexError, ValueError)):
            faster(data, np.array(ends, dtype=np.int64))


@pytest.mark.parametrize(("plain", "module"), [("", "headrace_turbo.text_sums"), ("plain", "headrace.flow.key_hashes")])
def test_the_hash_of_keys_uses_it_unless_the_environment_says_otherwise(plain: str, module: str) -> None:
    program = "from headrace.interfaces import key_hashing; print(key_hashing._fastest_sums().__module__)"
    done = subprocess.run(
        [sys.executable, "-c", program], env={"HEADRACE_DECODERS": plain}, capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == module
