"""Source objects that running jobs read with."""

from __future__ import annotations

import headrace as hr
import pytest
from headrace.foundation.errors import PlanError
from headrace.runtime.sources_in_use import SourcesInUse, check_sources_free
from headrace.testing import MemorySink, MemorySource


def plan_of(name: str, *sources: MemorySource) -> hr.Plan:
    first, *others = (hr.stream("test", name).from_(each, format="raw") for each in sources)
    for other in others:
        first = first.union(other)
    return first.to(MemorySink()).plan()


def test_an_object_is_taken_until_its_job_ends() -> None:
    shared = MemorySource({"q": []})
    one, other = plan_of("one", shared), plan_of("other", MemorySource({"q": []}), shared)
    taken = SourcesInUse(one)
    for take in (SourcesInUse, check_sources_free):
        with pytest.raises(PlanError, match=r"the running job 'test\.one' reads with the same source object") as caught:
            take(other)
    assert "headrace.job(one, other)" in str(caught.value)
    taken.release()
    taken.release()
    check_sources_free(other)
    again = SourcesInUse(other)
    with pytest.raises(PlanError, match=r"test\.other"):
        SourcesInUse(one)
    again.release()


def test_a_refused_job_takes_nothing() -> None:
    shared, own = MemorySource({"q": []}), MemorySource({"q": []})
    taken = SourcesInUse(plan_of("one", shared))
    with pytest.raises(PlanError):
        SourcesInUse(plan_of("other", own, shared))
    SourcesInUse(plan_of("third", own)).release()
    taken.release()
