"""Where dead letters go in a job that names no output for them."""

from __future__ import annotations

import headrace as hr
import pytest
from headrace.interfaces.backend import RunOptions
from headrace.jobs.job import DEFAULT_DEAD_LETTERS
from headrace.plan.dead_letter_places import dead_letter_places


@pytest.mark.parametrize(
    ("checkpoint", "place"),
    [
        (None, "dead-letters/tests.letters"),
        ("/shared/state", "/shared/state/dead-letters"),
        ("s3a://bucket/state", "dead-letters/tests.letters"),
        ("hdfs://namenode/state", "dead-letters/tests.letters"),
    ],
)
def test_dead_letters_are_beside_a_checkpoint_that_is_a_directory(checkpoint: str | None, place: str) -> None:
    rows = hr.stream("tests", "letters").from_file("in/*.ndjson", format="json", schema={"k": "string"})
    plan = rows.to_file("out", format="json").plan(RunOptions(checkpoint=checkpoint))
    assert DEFAULT_DEAD_LETTERS in plan.sinks
    assert dead_letter_places(plan) == (f"{DEFAULT_DEAD_LETTERS} (path {place!r})",)
