"""Every test begins with nothing defined."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from headrace_sql import api


@pytest.fixture(autouse=True)
def nothing_defined() -> Iterator[None]:
    api.forget()
    yield
    api.forget()
