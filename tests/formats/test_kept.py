"""Checkpoints of every released format are read by today's code, which goes on from them exactly."""

from __future__ import annotations

import tarfile
from pathlib import Path

import pytest

from tests.conformance.case import differences, outputs
from tests.formats.jobs import VERBS, job
from tests.formats.keep import CLICKS, KEPT, OPTIONS, ORDERS, lay_out, within

ARCHIVES = sorted(path.name.removesuffix(".tar.xz") for path in KEPT.glob("*.tar.xz"))
#: On Spark every verb is a stage of its own: a minute for what takes seconds in one process.
_SLOW = [
    pytest.param(name, marks=[pytest.mark.slow, pytest.mark.spark] if name.endswith("spark") else ())
    for name in ARCHIVES
    if not name.endswith("-savepoint")
]


@pytest.fixture(scope="session")
def never_stopped(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The job of every verb, run in one go."""
    directory = tmp_path_factory.mktemp("never-stopped")
    lay_out(directory, clicks_count=CLICKS[0], orders_count=ORDERS[0])
    with within(directory):
        job(*VERBS).run("light", shards=2)
    return directory


def laid_out(archive: str, directory: Path) -> Path:
    """Unpack a stopped job, and give it the rest of its input."""
    with tarfile.open(KEPT / f"{archive}.tar.xz") as file:
        file.extractall(directory, filter="data")
    lay_out(directory, clicks_count=CLICKS[0], orders_count=ORDERS[0])
    return directory


def test_both_backends_are_kept_of_the_first_release() -> None:
    assert {"0.1-light", "0.1-spark", "0.1-savepoint"} <= set(ARCHIVES)


@pytest.mark.slow  # other checkpoints of these archives are read in every run
@pytest.mark.parametrize("archive", [name for name in ARCHIVES if name.endswith("-savepoint")])
def test_a_kept_savepoint_is_begun_at_with_other_shards(archive: str, tmp_path: Path, never_stopped: Path) -> None:
    directory = laid_out(archive, tmp_path)
    with within(directory):
        job(*VERBS).run("light", shards=3, from_savepoint="savepoint")
    assert differences(outputs(directory), outputs(never_stopped)) == []


@pytest.mark.parametrize("archive", _SLOW)
def test_a_kept_checkpoint_is_gone_on_from(archive: str, tmp_path: Path, never_stopped: Path) -> None:
    backend = archive.rpartition("-")[2]
    directory = laid_out(archive, tmp_path)
    before = outputs(directory)
    with within(directory):
        report = job(*VERBS).run(backend, checkpoint="checkpoint", **OPTIONS[backend])
    assert report.records_read == CLICKS[0] + ORDERS[0] - CLICKS[1] - ORDERS[1]
    assert sum(sum(rows.values()) for rows in before.values()) > 500, "the stopped job had written rows"
    assert differences(outputs(directory), outputs(never_stopped)) == []
