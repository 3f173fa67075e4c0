"""The manners of threads that make rules ready."""

from __future__ import annotations

import sys

import pytest
from headrace_rules.background import behind_batches


def test_the_switch_interval_is_given_back() -> None:
    before = sys.getswitchinterval()
    with behind_batches():
        with behind_batches():
            assert sys.getswitchinterval() < before
        assert sys.getswitchinterval() < before
    assert sys.getswitchinterval() == before


def test_it_is_given_back_after_an_error() -> None:
    before = sys.getswitchinterval()
    with pytest.raises(ValueError, match="no"), behind_batches():
        raise ValueError("no")
    assert sys.getswitchinterval() == before
