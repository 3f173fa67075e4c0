"""Objects that exist when a job starts are left alone by the garbage collector until the last job has ended."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterator

import pytest
from headrace.foundation import spared_objects
from headrace.foundation.spared_objects import spare_the_collector, use_the_collector_again


class Cycle:
    """Refers to itself: only the garbage collector frees it."""

    def __init__(self) -> None:
        self.own = self


@pytest.fixture(autouse=True)
def _nothing_is_spared(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(spared_objects, "_jobs", set())
    monkeypatch.setattr(spared_objects, "_others_are_spared", False)
    gc.unfreeze()  # the tests themselves
    yield
    gc.freeze()


def test_what_the_program_has_excluded_stays_excluded() -> None:
    gc.freeze()
    spared = gc.get_freeze_count()
    spare_the_collector("one")
    newer = weakref.ref(Cycle())
    gc.collect()
    assert newer() is None
    use_the_collector_again("one")
    assert gc.get_freeze_count() > spared // 2  # some are freed meanwhile, as nobody refers to them any more


def test_a_program_that_has_excluded_objects_is_left_alone_and_they_are_counted_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Python counts them one by one: with those of a large program, each start of a job would take 0.1 s longer."""
    gc.freeze()
    spare_the_collector("one")
    use_the_collector_again("one")
    monkeypatch.setattr(gc, "get_freeze_count", None)
    gc.unfreeze()
    older = weakref.ref(Cycle())
    spare_the_collector("other")
    gc.collect()
    assert older() is None
    use_the_collector_again("other")


def test_older_objects_are_spared_until_the_last_job_has_ended() -> None:
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
