"""What is started when: overlap, catch-up, kills and pauses between due and started, several servers, clocks that jump."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from datetime import timedelta
from pathlib import Path

import pytest
from headrace.foundation.errors import OptionError, RetriableError
from headrace_server.schedules import ScheduleSettings
from hypothesis import given, settings
from hypothesis import strategies as st
from schedule_world import BEGIN, JOB, NotingStarter, ScheduleWorld

from tests.effort import examples

PROGRAM = Path(__file__).parents[1] / "schedule_world.py"
QUARTER = timedelta(minutes=15)


def test_a_new_schedule_starts_nothing_at_once_and_then_each_instant_once(world: ScheduleWorld) -> None:
    world.tick(every="15 min")
    assert world.runs() == []
    world.run_for(timedelta(hours=1), timedelta(seconds=20), every="15 min")
    assert world.runs() == ["02 10:15", "02 10:30", "02 10:45", "02 11:00"]
    assert {state for _, state in world.states()} == {"started"}
    assert [each.run for each in world.scheduler.history()] == ["4", "3", "2", "1"]


def test_a_changed_schedule_begins_anew(world: ScheduleWorld) -> None:
    """Else the change from daily to hourly would start what the new one had been due for since yesterday."""
    world.tick(cron="0 9 * * *")
    world.pass_time(timedelta(hours=5))
    world.tick(every="1 h")
    assert world.runs() == []
    world.pass_time(timedelta(hours=1))
    world.tick(every="1 h")
    assert world.runs() == ["02 16:00"]


def overlapping(world: ScheduleWorld, overlap: str) -> None:
    world.tick(every="15 min", overlap=overlap)
    for _ in range(3):
        world.pass_time(QUARTER)
        world.tick(every="15 min", overlap=overlap)


def test_overlap_skip(world: ScheduleWorld) -> None:
    overlapping(world, "skip")
    assert world.states() == [("02 10:15", "started"), ("02 10:30", "skipped"), ("02 10:45", "skipped")]
    assert "still at work" in world.scheduler.history()[0].reason
    world.starter.running.clear()
    world.tick(every="15 min", overlap="skip")
    assert world.runs() == ["02 10:15"]


def test_overlap_queue(world: ScheduleWorld) -> None:
    overlapping(world, "queue")
    assert world.runs() == ["02 10:15"]
    for _ in range(4):
        world.starter.running.clear()
        world.tick(every="15 min", overlap="queue")
    assert world.runs() == ["02 10:15", "02 10:30", "02 10:45"]
    world.starter.running.add(JOB)
    for _ in range(4):
        world.pass_time(QUARTER)
        world.tick(every="15 min", overlap="queue", queue_max=2)
    assert [state for _, state in world.states()][3:] == ["due", "due", "skipped", "skipped"]


def test_overlap_replace(world: ScheduleWorld) -> None:
    overlapping(world, "replace")
    assert world.starter.stopped == [JOB, JOB]
    assert world.states() == [("02 10:15", "started"), ("02 10:30", "skipped"), ("02 10:45", "due")]
    world.starter.running.clear()
    world.tick(every="15 min", overlap="replace")
    assert world.runs() == ["02 10:15", "02 10:45"]


@pytest.mark.parametrize(
    ("options", "runs"),
    [
        ({"catch_up": "none"}, []),
        ({"catch_up": "last"}, ["03 10:00"]),
        ({"catch_up": "all", "catch_up_max": 3}, ["03 09:30", "03 09:45", "03 10:00"]),
    ],
)
def test_catch_up_after_a_day_without_a_server(
    world: ScheduleWorld, options: dict[str, object], runs: list[str]
) -> None:
    schedule = {"every": "15 min", "late_max": "10 s", **options}
    world.tick(**schedule)
    world.pass_time(timedelta(days=1))
    for _ in range(5):
        world.tick(**schedule)
        world.starter.running.clear()
    assert world.runs() == runs
    missed = [each for each in world.scheduler.history() if each.state == "missed"]
    assert missed
    assert "catch_up" in missed[0].reason
    assert len(world.states()) <= 4  # not one for each of the day


def test_what_is_only_a_little_late_was_not_missed(world: ScheduleWorld) -> None:
    world.tick(every="15 min", catch_up="none")
    world.pass_time(QUARTER)  # 30 s late
    world.tick(every="15 min", catch_up="none")
    assert world.runs() == ["02 10:15"]


def test_a_clock_that_goes_back_starts_nothing_twice(world: ScheduleWorld) -> None:
    world.tick(every="15 min")
    world.run_for(timedelta(minutes=31), timedelta(minutes=1), every="15 min")
    world.clock.advance(-3600)
    world.scheduler._next.clear()  # as after a start of the server
    world.run_for(timedelta(minutes=80), timedelta(minutes=1), every="15 min")
    assert world.runs() == ["02 10:15", "02 10:30", "02 10:45"]


def test_another_schedule_after_the_clock_went_back_meets_instants_that_are_in_the_history(
    world: ScheduleWorld,
) -> None:
    world.tick(every="15 min")
    world.run_for(timedelta(minutes=31), timedelta(minutes=1), every="15 min")
    assert world.runs() == ["02 10:15", "02 10:30"]
    world.clock.advance(-3600)
    world.tick(every="10 min")
    world.run_for(timedelta(minutes=70), timedelta(minutes=1), every="10 min")
    after = [f"02 {hour}" for hour in ("09:40", "09:50", "10:00", "10:10", "10:20", "10:40")]
    assert world.runs() == ["02 10:15", "02 10:30", *after], "each instant once"


def test_a_refused_start_is_in_the_history_and_an_unknown_one_is_tried_again(world: ScheduleWorld) -> None:
    world.tick(every="15 min")
    world.starter.error = RetriableError("no process can be started now")
    for _ in range(3):
        world.pass_time(timedelta(minutes=5))
        world.tick(every="15 min")
    assert world.states() == [("02 10:15", "starting")]
    world.starter.error = None
    world.tick(every="15 min")
    assert world.states() == [("02 10:15", "started")]
    world.starter.running.clear()
    world.starter.error = OptionError("no such file: password='hush'", job=JOB)
    world.pass_time(QUARTER)
    world.tick(every="15 min")
    world.tick(every="15 min")
    entry = world.scheduler.history()[0]
    assert (entry.state, "no such file" in entry.reason, "hush" in entry.reason) == ("failed", True, False)


def test_an_error_that_nobody_foresaw_is_not_swallowed(world: ScheduleWorld) -> None:
    world.tick(every="15 min")
    world.starter.error = ZeroDivisionError()
    world.pass_time(QUARTER)
    with pytest.raises(ZeroDivisionError):
        world.tick(every="15 min")


def test_a_job_that_is_paused_is_not_started(world: ScheduleWorld) -> None:
    world.tick(every="15 min")
    world.starter.running.add(JOB)
    world.pass_time(QUARTER)
    world.tick(every="15 min", overlap="queue")
    world.starter.running.clear()
    assert world.scheduler.tick({})
    assert world.states() == [("02 10:15", "skipped")]


def test_one_of_two_servers_works_and_the_other_takes_over(world: ScheduleWorld) -> None:
    schedule = {JOB: ScheduleSettings.of({"every": "15 min"})}
    other = world.server("two", NotingStarter(world.engine, "two"))
    assert world.scheduler.tick(schedule)
    assert not other.tick(schedule)
    world.pass_time(QUARTER, leases_too=True)  # server one does nothing for so long
    assert other.tick(schedule)
    assert not world.scheduler.tick(schedule)
    assert world.runs() == ["02 10:15"]
    assert world.starter.calls == 0
    other.stop()
    assert world.scheduler.tick(schedule)


def test_old_history_is_removed_but_for_what_still_waits(world: ScheduleWorld) -> None:
    world.tick(every="15 min", overlap="queue")
    for _ in range(2):
        world.pass_time(QUARTER)
        world.tick(every="15 min", overlap="queue")
    world.pass_time(timedelta(days=91))
    assert world.scheduler.remove_old_history() == 1
    assert world.states() == [("02 10:30", "due")]


@pytest.mark.parametrize("point", ["before", "after"])
def test_a_kill_between_due_and_started_loses_nothing_and_starts_nothing_twice(
    world: ScheduleWorld, point: str
) -> None:
    world.tick(every="15 min")
    world.scheduler.stop()
    done = subprocess.run(
        [sys.executable, PROGRAM, world.url, point, "900"], capture_output=True, text=True, check=False
    )
    assert done.returncode == -signal.SIGKILL, done.stderr
    assert world.states() == [("02 10:15", "starting")]
    assert world.runs() == (["02 10:15"] if point == "after" else [])
    world.clock.advance(901)
    assert not world.tick(every="15 min")  # the dead server's lease
    world.pass_time(timedelta(seconds=16), leases_too=True)
    assert world.tick(every="15 min")
    assert world.runs() == ["02 10:15"]
    assert world.states() == [("02 10:15", "started")]


@pytest.mark.parametrize("point", ["before", "after"])
def test_a_pause_between_due_and_started_starts_nothing_twice(world: ScheduleWorld, point: str) -> None:
    world.tick(every="15 min")
    world.scheduler.stop()
    command = [sys.executable, str(PROGRAM), world.url, f"pause {point}", "900"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            assert process.stdout.readline() == "paused\n"
            world.clock.advance(901)
            world.pass_time(timedelta(seconds=16), leases_too=True)
            assert world.tick(every="15 min")
            assert world.runs() == ["02 10:15"]
            os.kill(process.pid, signal.SIGCONT)
            assert process.stdout.readline() == "ticked False\n"  # it has lost the lease, and changes nothing
        finally:
            process.kill()
    assert world.runs() == ["02 10:15"]
    assert world.states() == [("02 10:15", "started")]


@settings(max_examples=examples(25))
@given(st.lists(st.integers(1, 5000), min_size=1, max_size=12))
def test_whenever_the_server_ticks_each_instant_is_started_at_most_once_and_none_is_forgotten(
    pauses: list[int],
) -> None:
    """With catch-up of all, what is started does not depend on when the server ticked."""
    world = ScheduleWorld("sqlite://")
    schedule = {"every": "10 min", "catch_up": "all", "catch_up_max": 1000, "overlap": "queue"}
    world.tick(**schedule)
    for pause in pauses:
        world.pass_time(timedelta(seconds=pause))
        world.tick(**schedule)
        world.starter.running.clear()
    for _ in range(200):
        world.tick(**schedule)
        world.starter.running.clear()
    wanted, at, end = [], BEGIN.replace(second=0), BEGIN + timedelta(seconds=sum(pauses))
    while (at := at + timedelta(minutes=10)) <= end:
        wanted.append(at.strftime("%d %H:%M"))
    assert world.runs() == wanted
    world.close()
