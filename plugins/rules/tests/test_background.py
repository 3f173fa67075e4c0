"""The manners of threads that make rules ready."""

from __future__ import annotations

import gc
import sys
import threading
import time

import headrace as hr
import pytest
from headrace.foundation import spared_objects
from headrace.testing import MemorySink, MemorySource
from headrace_rules import background
from headrace_rules.background import behind_batches, pause


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


@pytest.fixture
def pauses(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The pauses that this thread makes, none of which lasts; others may be at work from tests before."""
    made: list[float] = []
    this = threading.get_ident()
    monkeypatch.setattr(
        background, "_sleep", lambda seconds: made.append(seconds) if threading.get_ident() == this else None
    )
    return made


def test_only_threads_behind_batches_pause(pauses: list[float]) -> None:
    _work(0.01)
    pause()
    assert not pauses
    with behind_batches():
        _work(0.01)
        pause()
        pause()  # at once after a pause there is nothing to make up for
    assert len(pauses) == 1
    _work(0.01)
    pause()
    assert len(pauses) == 1


def _work(cpu_seconds: float) -> None:
    begun = time.thread_time()
    while time.thread_time() - begun < cpu_seconds:
        pass


@pytest.fixture
def no_other_jobs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spared_objects, "_jobs", set())
    monkeypatch.setattr(spared_objects, "_others_are_spared", False)


@pytest.mark.usefixtures("no_other_jobs")
def test_a_job_on_light_spares_the_collector_while_it_runs() -> None:
    gc.unfreeze()
    seen: list[int] = []

    def look(row: dict[str, object]) -> dict[str, object]:
        seen.append(gc.get_freeze_count())
        return row

    source = MemorySource({"q": [b'{"a": "foo"}']})
    stream = hr.stream("test", "spared").from_(source, format="json", schema={"a": "string"})
    job = stream.rules({"foo": "a LIKE '%foo%'"}).map(look).to(MemorySink())
    job.run("light")
    assert seen[0] > 1_000
    assert gc.get_freeze_count() == 0
