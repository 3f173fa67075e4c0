"""A process that has lost a unit, and may wake up, does not reach what the next one uses. Crashes at each step of the way there."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from fake_servers import FakeServers, LeasedRunner
from headrace.foundation.errors import RetriableError
from headrace_server.supervision.data_directory import DataDirectory
from headrace_server.supervision.fencing import begin_without_checkpoint, fence_checkpoint, remove_set_aside, set_aside
from headrace_server.supervision.going_back import copy_checkpoint

JOB = "team/orders"


@pytest.fixture
def data(tmp_path: Path) -> Iterator[DataDirectory]:
    made = DataDirectory(tmp_path / "data", shared=tmp_path / "shared")
    write_checkpoint(made.checkpoint(JOB))
    yield made
    made.unlock()


def write_checkpoint(place: Path) -> None:
    """Write what a checkpoint looks like: a pointer, a journal that grows, parts that never change, dead letters, a lock."""
    (place / "state" / "0").mkdir(parents=True)
    (place / "dead-letters").mkdir()
    (place / "CURRENT").write_text("7")
    (place / "state" / "0" / "journal").write_text("one\n")
    (place / "state" / "0" / "3.snapshot").write_text("rows")
    (place / "state" / "0" / "LOCK").write_text("")
    (place / "lock").write_text("")
    (place / "dead-letters" / "part-0.json").write_text("bad\n")


def contents(place: Path) -> dict[str, str]:
    return {str(each.relative_to(place)): each.read_text() for each in sorted(place.rglob("*")) if each.is_file()}


COPIED = {"CURRENT": "7", "state/0/journal": "one\n", "state/0/3.snapshot": "rows"}
LETTERS = {"dead-letters/part-0.json": "bad\n"}


def test_the_next_process_has_a_copy_and_the_one_before_keeps_its_own(data: DataDirectory) -> None:
    old = data.checkpoint(JOB)
    new = fence_checkpoint(data, JOB, 5)
    assert (new.name, data.checkpoint(JOB)) == ("checkpoint-0000000005", new)
    assert contents(new) == COPIED | LETTERS
    assert contents(old) == COPIED | {"state/0/LOCK": "", "lock": ""}
    assert (new / "state/0/3.snapshot").samefile(old / "state/0/3.snapshot")
    assert oct(new.stat().st_mode & 0o777) == "0o700"


def test_what_a_process_does_that_wakes_up_is_not_seen(data: DataDirectory) -> None:
    old = data.checkpoint(JOB)
    with open(old / "state/0/journal", "a") as journal:  # it has its files open
        new = fence_checkpoint(data, JOB, 5)
        journal.write("late\n")
    (old / "CURRENT.new").write_text("8")
    os.replace(old / "CURRENT.new", old / "CURRENT")
    (old / "state/0/4.snapshot").write_text("late")
    (old / "state/0/3.snapshot").unlink()
    assert contents(new) == COPIED | LETTERS
    shutil.rmtree(old)  # even so
    assert contents(new) == COPIED | LETTERS


def test_a_second_call_and_a_job_without_a_checkpoint_change_nothing(data: DataDirectory) -> None:
    new = fence_checkpoint(data, JOB, 5)
    before = contents(data.state_of_job(JOB))
    assert fence_checkpoint(data, JOB, 5) == new
    assert contents(data.state_of_job(JOB)) == before
    assert fence_checkpoint(data, "other", 5) == data.checkpoint("other") == data.state_of_job("other") / "checkpoint"


def test_the_directory_of_the_takeover_before_the_last_is_removed_and_tokens_are_compared_as_numbers(
    data: DataDirectory,
) -> None:
    for token in (9, 10, 100):
        new = fence_checkpoint(data, JOB, token)
        assert data.checkpoint(JOB) == new
        assert contents(new) == COPIED | LETTERS
    found = sorted(each.name for each in data.state_of_job(JOB).iterdir())
    assert found == ["checkpoint", "checkpoint-0000000010", "checkpoint-0000000100"]


def test_a_checkpoint_that_changes_while_it_is_copied_is_copied_again(
    data: DataDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    old, real, tries = data.checkpoint(JOB), copy_checkpoint, []

    def copy(source: Path, target: Path) -> None:
        real(source, target)
        tries.append(target)
        if len(tries) == 1:  # the process that was thought dead has written once more
            (old / "CURRENT").write_text("8")

    monkeypatch.setattr("headrace_server.supervision.fencing.copy_checkpoint", copy)
    assert (fence_checkpoint(data, JOB, 5) / "CURRENT").read_text() == "8"
    assert len(tries) == 2


def test_a_process_that_writes_all_the_time_is_not_dead_and_nothing_is_taken_from_it(
    data: DataDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    old, real = data.checkpoint(JOB), copy_checkpoint

    def copy(source: Path, target: Path) -> None:
        real(source, target)
        with open(old / "state/0/journal", "a") as journal:
            journal.write("more\n")

    monkeypatch.setattr("headrace_server.supervision.fencing.copy_checkpoint", copy)
    with pytest.raises(RetriableError, match="its process is still running"):
        fence_checkpoint(data, JOB, 5)
    assert data.checkpoint(JOB) == old
    assert (old / "dead-letters" / "part-0.json").exists()
    monkeypatch.undo()
    assert (fence_checkpoint(data, JOB, 6) / "state/0/journal").read_text() == "one\n" + 5 * "more\n"


@pytest.mark.parametrize("step", range(1, 40))
def test_a_server_that_dies_at_any_step_loses_nothing_for_the_next_one(
    data: DataDirectory, monkeypatch: pytest.MonkeyPatch, step: int
) -> None:
    """Each call to the file system may be the last; the next server has another token."""
    with monkeypatch.context() as context:
        left = [step]
        for name in ("rename", "link", "replace", "fsync", "open"):
            context.setattr(os, name, dying(left, getattr(os, name)))
        try:
            fence_checkpoint(data, JOB, 5)
        except KeyboardInterrupt:
            assert contents(data.checkpoint(JOB)).items() >= COPIED.items()
        else:
            assert left[0] > 0, "a crash was swallowed"
    new = fence_checkpoint(data, JOB, 6)
    assert contents(new) == COPIED | LETTERS
    assert data.checkpoint(JOB) == new


def dying(left: list[int], real: Callable[..., object]) -> Callable[..., object]:
    def call(*given: object, **named: object) -> object:
        left[0] -= 1
        if left[0] == 0:
            raise KeyboardInterrupt
        assert left[0] > 0
        return real(*given, **named)

    return call


def test_a_checkpoint_that_is_older_than_what_was_done_elsewhere_is_set_aside(data: DataDirectory) -> None:
    begin_without_checkpoint(data, JOB, 4)
    assert not data.checkpoint(JOB).exists()
    assert contents(data.state_of_job(JOB) / "before-0000000004").items() >= COPIED.items()
    begin_without_checkpoint(data, JOB, 5)  # there is none
    write_checkpoint(data.checkpoint(JOB))
    begin_without_checkpoint(data, JOB, 4)  # the same once more, after a crash
    assert not data.checkpoint(JOB).exists()


def test_a_checkpoint_that_was_set_aside_is_removed_by_the_next_one_or_after_a_week(data: DataDirectory) -> None:
    begin_without_checkpoint(data, JOB, 4)
    write_checkpoint(data.checkpoint(JOB))
    begin_without_checkpoint(data, JOB, 9)
    [left] = set_aside(data, JOB)
    assert left.name == "before-0000000009"
    begun = left.stat().st_mtime
    remove_set_aside(data, JOB, now_seconds=begun + 7 * 86_400 - 1)
    assert set_aside(data, JOB) == [left]
    write_checkpoint(data.checkpoint(JOB))
    remove_set_aside(data, JOB, now_seconds=begun + 7 * 86_400)
    assert (set_aside(data, JOB), data.checkpoint(JOB).exists()) == ([], True)


# ------------------------------------------------------------------------------------------------------ with servers


@pytest.fixture
def servers(tmp_path: Path) -> Iterator[FakeServers]:
    made = FakeServers(tmp_path)
    yield made
    made.close()


def silent(servers: FakeServers) -> LeasedRunner:
    """Run a job, and let the server and the process that have it be silent. Returns that process."""
    servers.add("a")
    servers.add("b")
    servers.write("one")
    servers.pass_time(8)
    [(owner, runner)] = servers.runners()
    write_checkpoint(Path(runner.specification.jobs[0].checkpoint))
    del servers.by_name[owner]
    return runner


def place_of(runner: LeasedRunner) -> Path:
    return Path(runner.specification.jobs[0].checkpoint)


def test_the_process_after_a_silent_one_has_a_directory_of_its_own(servers: FakeServers) -> None:
    old = silent(servers)
    servers.pass_time(7)
    assert servers.runners() == []
    servers.pass_time(5)
    [(_, new)] = servers.runners()
    assert new.token is not None
    assert place_of(new).name == f"checkpoint-{new.token:010d}"
    assert place_of(old).name == "checkpoint"
    assert contents(place_of(new)) == COPIED | LETTERS


def test_a_place_that_could_not_be_prepared_is_prepared_before_the_next_try(
    servers: FakeServers, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The lease is not released meanwhile: whoever gets a released one takes the process before for ended."""
    old = silent(servers)
    failures: list[int] = []

    def fail(data: DataDirectory, job: str, token: int) -> Path:
        failures.append(token)
        raise RetriableError("the checkpoint changes while it is copied")

    monkeypatch.setattr("headrace_server.supervision.specifications.fence_checkpoint", fail)
    servers.pass_time(12)
    assert servers.runners() == []
    assert len(failures) > 1
    assert servers.owner_of_lease("headrace/unit/one") is not None
    monkeypatch.undo()
    servers.pass_time(2)
    [(_, new)] = servers.runners()
    assert place_of(new) != place_of(old)
    assert contents(place_of(new)) == COPIED | LETTERS


def test_a_server_that_dies_while_it_prepares_the_place_leaves_it_to_the_next(
    servers: FakeServers, monkeypatch: pytest.MonkeyPatch
) -> None:
    old = silent(servers)
    second = next(iter(servers.by_name))
    failures: list[int] = []

    def fail(data: DataDirectory, job: str, token: int) -> Path:
        failures.append(token)
        raise RetriableError("the disk is away")

    monkeypatch.setattr("headrace_server.supervision.specifications.fence_checkpoint", fail)
    while not failures:
        servers.pass_time(1)
    del servers.by_name[second]
    monkeypatch.undo()
    servers.add("c")
    servers.pass_time(16)
    [(name, new)] = servers.runners()
    assert name == "c"
    assert place_of(new) != place_of(old)
    assert contents(place_of(new)) == COPIED | LETTERS


@pytest.mark.parametrize("failures", [0, 1])
def test_a_version_that_is_rolled_out_after_a_silent_process_has_the_new_directory_too(
    servers: FakeServers, monkeypatch: pytest.MonkeyPatch, failures: int
) -> None:
    """Its process is prepared before it has the lease, so the place must be another one before that. Also if the start before it failed."""
    old = silent(servers)
    left, real = [failures], fence_checkpoint

    def fence(data: DataDirectory, job: str, token: int) -> Path:
        if left[0]:
            left[0] -= 1
            raise RetriableError("the checkpoint changes while it is copied")
        return real(data, job, token)

    monkeypatch.setattr("headrace_server.supervision.specifications.fence_checkpoint", fence)
    servers.write("one", "two")
    servers.pass_time(14)
    [(_, new)] = servers.runners()
    assert new.specification.jobs[0].version == 2
    assert place_of(new) != place_of(old)
    assert place_of(new) == servers.by_name[next(iter(servers.by_name))].services.data.checkpoint("one")
    assert contents(place_of(new)).items() >= (COPIED | LETTERS).items()


@pytest.mark.parametrize("clock_seconds", [0.0, 3600.0, -3600.0])
def test_the_silent_process_of_a_living_server_is_replaced_at_once(servers: FakeServers, clock_seconds: float) -> None:
    """Also if the database's clock was set before: forward, and the process has taken its lease anew, with another token."""
    servers.add("a")
    servers.write("one")
    servers.pass_time(8)
    [(_, old)] = servers.runners()
    given = old.token
    servers.set_clock_of_database(clock_seconds)
    servers.pass_time(8)
    assert servers.runners() == [("a", old)]
    assert (old.token != given) is (clock_seconds > 0)
    old.answers = False
    old.token = None  # it does not renew its lease either
    servers.pass_time(8)
    assert servers.runners() == [("a", old)]
    servers.pass_time(2)  # a failure makes others wait a second before they are started again
    [(_, new)] = servers.runners()
    assert new is not old
    [run, before] = servers.by_name["a"].registry.runs_of("one")
    assert (run.outcome, before.outcome) == (None, "killed")


def test_a_lock_that_a_lost_process_keeps_is_taken_by_the_backend_alone(
    servers: FakeServers, monkeypatch: pytest.MonkeyPatch
) -> None:
    taken: list[str] = []
    monkeypatch.setattr("headrace_spark.backend.SparkBackend.take_from_lost_process", taken.append)
    servers.add("a")
    servers.add("b")
    servers.write("one", settings="backend: spark\n")
    servers.pass_time(8)
    [(owner, runner)] = servers.runners()
    write_checkpoint(place_of(runner))
    del servers.by_name[owner]
    servers.pass_time(12)
    [(_, new)] = servers.runners()
    assert place_of(new) == place_of(runner)
    assert taken == [str(place_of(new))]
