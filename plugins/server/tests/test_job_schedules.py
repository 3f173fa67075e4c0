"""Jobs with a schedule: when they run, what start, stop, pause and new versions do to them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from headrace_server.registry.records import Desired
from server_processes import ServerProcess
from server_world import World

from tests.eventually import eventually

EVERY_MINUTE = "until: end\nschedule: {every: 1 min}\n"


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    made = World(tmp_path)
    yield made
    made.close()


def write(world: World, settings: str = EVERY_MINUTE, text: str = "one", name: str = "refresh") -> None:
    (world.jobs / "job.yaml").write_text(settings)
    world.write(name, text)


def finish(world: World) -> None:
    """Let the only runner come to the end of its input."""
    world.runner.phases["refresh"] = "finished"
    world.runner.alive = False
    world.pass_time(3)


def phase(world: World) -> str:
    return world.supervisor.phase("refresh")


def states(world: World) -> list[str]:
    return [each.state.value for each in reversed(world.supervisor.schedules.history("refresh"))]


def test_a_job_runs_at_each_time_of_its_schedule_and_waits_between(world: World) -> None:
    write(world)
    world.pass_time(6)
    assert (phase(world), world.launcher.alive) == ("scheduled", [])
    due = world.supervisor.schedules.next_due(world.registry.job("refresh"))
    assert due is not None
    assert due.timestamp() - world.clock.now() <= 60
    for runs in (1, 2, 3):
        world.pass_time(60)
        assert phase(world) == "running"
        finish(world)
        assert phase(world) == "scheduled"
        assert [each.outcome for each in world.registry.runs_of("refresh")] == ["finished"] * runs
    assert states(world) == ["started"] * 3


def test_a_time_that_comes_while_a_run_is_at_work_is_skipped(world: World) -> None:
    write(world)
    world.pass_time(190)
    assert len(world.registry.runs_of("refresh")) == 1
    assert states(world)[:3] == ["started", "skipped", "skipped"]


def test_a_run_can_replace_the_one_before(world: World) -> None:
    write(world, "until: end\nschedule: {every: 1 min, overlap: replace}\n")
    world.pass_time(66)
    first = world.runner
    world.pass_time(60)
    assert "exit" in first.asked
    world.pass_time(6)
    assert (phase(world), world.runner is first, len(world.registry.runs_of("refresh"))) == ("running", False, 2)


@pytest.mark.parametrize("desired", ["stopped", "paused"])
def test_a_job_that_is_stopped_or_paused_is_not_started(world: World, desired: str) -> None:
    write(world)
    world.pass_time(6)
    world.registry.change_job("refresh", desired=desired)
    world.pass_time(200)
    assert (phase(world), world.registry.runs_of("refresh")) == (desired, [])
    assert world.supervisor.schedules.next_due(world.registry.job("refresh")) is None


def test_a_job_that_rests_after_failures_begins_anew_at_its_next_time(world: World) -> None:
    write(world, "until: end\nschedule: {every: 10 min}\n", "fails")
    world.pass_time(600 + 100)
    assert phase(world) == "resting"
    failed = len(world.registry.runs_of("refresh"))
    world.pass_time(600)
    assert len(world.registry.runs_of("refresh")) > failed
    assert "skipped" not in states(world)


def test_a_new_version_without_a_schedule_runs_at_once_and_one_with_a_schedule_waits(world: World) -> None:
    write(world)
    world.pass_time(6)
    write(world, "until: end\n", "two")
    world.pass_time(10)
    assert phase(world) == "running"
    finish(world)
    assert phase(world) == "finished"
    write(world, EVERY_MINUTE, "three")
    world.pass_time(10)
    assert phase(world) == "scheduled"
    world.pass_time(60)
    assert phase(world) == "running"


def test_a_next_server_goes_on_with_the_schedule_and_begins_nothing_twice(tmp_path: Path, world: World) -> None:
    write(world)
    world.pass_time(66)
    assert phase(world) == "running"
    world.supervisor.schedules.stop()  # else the next server would wait for the lease by the database's clock
    later = World(tmp_path, world.launcher)
    later.clock.advance(world.clock.now() - later.clock.now())
    later.supervisor.find_runners()
    later.pass_time(30)
    assert (len(later.registry.runs_of("refresh")), later.supervisor.phase("refresh")) == (1, "running")
    finish(later)
    later.pass_time(60)
    assert len(later.registry.runs_of("refresh")) == 2
    later.close()


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ("schedule: {every: 1 min}", "until: end"),
        ("until: end\nschedule: {}", "either cron or every"),
        ("until: end\nschedule: {every: 1 min, cron: '* * * * *'}", "either cron or every"),
        ("until: end\nschedule: {cron: '61 * * * *'}", "cron expression"),
        ("until: end\nschedule: {cron: '0 0 31 2 *'}", "cron expression"),
        ("until: end\nschedule: {evry: 1 min}", "unknown option 'evry'"),
        ("until: end\ngroup: g\nschedule: {every: 1 min}", "cannot share a process"),
        ("until: end\nschedule: soon", "schedule"),
    ],
)
def test_a_schedule_that_cannot_be_is_refused_with_the_reason(world: World, settings: str, message: str) -> None:
    write(world, settings)
    world.pass_time(6)
    assert message in world.supervisor.refused_files["refresh"]
    assert "job.yaml" in world.supervisor.refused_files["refresh"]


def test_runs_of_a_real_job_read_what_came_since_the_run_before_each_row_once(tmp_path: Path) -> None:
    """Also when the server is killed between: the next one goes on with the schedule."""
    server = ServerProcess(tmp_path)
    try:
        server.write_copy()
        (server.jobs / "job.yaml").write_text("until: end\nschedule: {every: 1 s}\nhealth_window: 300 ms\n")
        server.add_events(0, 100)
        server.start()
        server.wait_for_rows(100)
        server.add_events(100, 200)
        server.wait_for_rows(200)
        server.kill()
        server.add_events(200, 300)
        server.start()
        server.wait_for_rows(300)
        eventually(lambda: len([each for each in server.job()["runs"] if each["outcome"] == "finished"]) >= 3, "runs")
        server.client.ask("POST", "/v1/actions", {"action": "stop", "select": "copy"})
        eventually(lambda: server.job()["job"]["state"] == "stopped", "it stops", shown=server.log)
        assert server.client.ask("GET", "/v1/jobs/copy/schedule")["definition"] == "every 0:00:01"
        assert server.stop() == 0
    finally:
        server.clean_up()


def test_a_stop_in_the_moment_when_a_run_ends_is_kept(world: World) -> None:
    """The end of a run must not make a job wait for its next time that a person has stopped."""
    write(world)
    world.pass_time(66)
    runner = world.runner
    runner.phases, runner.alive = dict.fromkeys(runner.phases, "finished"), False
    world.supervisor.desire([world.registry.job("refresh")], Desired.STOPPED)  # before the server has seen that end
    world.pass_time(200)
    assert phase(world) == "stopped"
    assert [run.outcome for run in world.registry.runs_of("refresh")] == ["finished"]


def test_a_run_that_is_due_in_the_moment_when_a_person_stops_the_job_is_not_begun(world: World) -> None:
    write(world)
    world.pass_time(6)
    world.registry.change_job("refresh", desired="stopped")
    world.registry.begin_scheduled("refresh", 1_800_000_060_000)  # by what the scheduler has read before
    world.pass_time(70)
    assert phase(world) == "stopped"
    assert world.registry.runs_of("refresh") == []
