"""Objects that exist when a job starts are left alone by the garbage collector until the last job has ended."""

from __future__ import annotations

import gc
import weakref

import pytest
from headrace.foundation import spared_objects
from headrace.foundation.spared_objects import spare_the_collector, use_the_collector_again


class Cycle:
    """Refers to itself: only the garbage collector frees it."""

    def __init__(self) -> None:
        self.own = self


def test_older_objects_are_spared_until_the_last_job_has_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spared_objects, "_jobs", set())
    older = weakref.ref(Cycle())
    spare_the_collector("one")
    try:
        assert gc.get_freeze_count() > 0
        newer = weakref.ref(Cycle())
        spare_the_collector("other")
        gc.collect()
        assert older() is not None
        assert newer() is None
        use_the_collector_again("one")
        use_the_collector_again("unknown")
        gc.collect()
        assert older() is not None
    finally:
        use_the_collector_again("one")
        use_the_collector_again("other")
    gc.collect()
    assert older() is None
