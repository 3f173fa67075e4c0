"""Savepoints of one process: other numbers of shards, another name, and what is refused."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest

from tests.conformance.case import differences, outputs
from tests.formats.jobs import VERBS, job
from tests.savepoints.places import run_to_the_end, stop_at


@pytest.fixture(scope="module")
def never_stopped(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("never-stopped")
    run_to_the_end(partial(job, *VERBS), directory, "light", shards=2)
    return directory


def test_every_verb_goes_on_with_other_numbers_of_shards(tmp_path: Path, never_stopped: Path) -> None:
    """One shard, then three, then two: as if the job had never stopped."""
    build = partial(job, *VERBS)
    first = stop_at(build, tmp_path, "light", clicks=90, orders=40, read=130, shards=1, max_batch_records=40)
    second = stop_at(
        build, tmp_path, "light", clicks=170, orders=80, read=120, shards=3, max_batch_records=40, from_savepoint=first
    )
    run_to_the_end(build, tmp_path, "light", shards=2, from_savepoint=second)
    assert differences(outputs(tmp_path), outputs(never_stopped)) == []
