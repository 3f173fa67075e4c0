"""What the server does with jobs, with runners that are no processes."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from headrace.foundation.errors import JobError
from headrace.runtime.kept_versions import keeps_versions
from headrace_server.registry.records import Desired, JobRecord, VersionState
from headrace_server.runner.protocol import RunnerAwayError
from headrace_server.supervision.restart_policy import FAILURES_MAX
from headrace_server.supervision.specifications import Services
from headrace_server.supervision.unit import Unit
from server_world import FakeRunner, World
from sqlalchemy.exc import OperationalError


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    made = World(tmp_path)
    yield made
    made.close()


def test_a_file_becomes_a_job_that_runs(world: World) -> None:
    world.write("team/orders")
    world.pass_time()
    job = world.registry.job("team/orders")
    assert (job.desired, job.current_version, job.problem) == (Desired.RUNNING, 1, None)
    assert world.supervisor.phase("team/orders") == "running"
    [version] = world.registry.versions("team/orders")
    assert (version.state, version.plan) == (VersionState.ACCEPTED, "the plan")
    assert [run.version for run in world.registry.runs_of("team/orders")] == [1]


def test_a_changed_file_is_prepared_before_the_old_version_stops(world: World) -> None:
    world.write("orders")
    world.pass_time()
    old = world.runner
    world.write("orders", "two")
    world.pass_time(20)
    new = world.runner
    assert new is not old
    assert old.asked.index("plan") < old.asked.index("stop")  # compared while it ran
    assert new.asked.index("compare") < new.asked.index("load_ahead") < new.asked.index("go")
    assert world.registry.job("orders").current_version == 2
    runs = world.registry.runs_of("orders")
    assert [(run.version, run.outcome) for run in runs] == [(2, None), (1, "stopped")]


@pytest.mark.parametrize("what", ["the new process ends", "the server ends"])
def test_the_old_version_goes_on_if_nothing_can_take_over_after_its_state_was_loaded(
    world: World, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    world.write("orders")
    world.pass_time()
    old, ask = world.runner, FakeRunner.ask

    def asked(runner: FakeRunner, do: str, **given: Any) -> Any:
        found = ask(runner, do, **given)
        if do == "load_ahead":
            assert keeps_versions(world.services.data.checkpoint("orders"))
            if what == "the server ends":
                world.supervisor._stopping.set()
            else:
                runner.kill()
        return found

    monkeypatch.setattr(FakeRunner, "ask", asked)
    place = world.services.data.checkpoint("orders")
    place.mkdir(parents=True)
    world.write("orders", "two")
    world.pass_time(20)
    assert world.runner is old
    assert "stop" not in old.asked
    assert not keeps_versions(place)
    state = world.registry.versions("orders")[0].state
    if what == "the server ends":
        assert state is VersionState.NEW, "the next server tries it again"
    else:
        assert state is VersionState.REFUSED
        assert "while it loaded the state" in str(world.registry.job("orders").problem)
        assert "SIGKILL" in str(world.registry.job("orders").problem)


class SlowRunner(FakeRunner):
    """Does not answer the first time, and then needs a second."""

    hurried = 0

    def ask(self, do: str, *, timeout_seconds: float = 5.0, **arguments: Any) -> Any:
        if do == "status" and ("go" in self.asked or not self.specification.wait):
            first = not self.hurried
            if first or timeout_seconds < 1:
                self.hurried += timeout_seconds < 1 or first
                raise RunnerAwayError("it takes longer")
        return super().ask(do, timeout_seconds=timeout_seconds, **arguments)


def test_a_process_that_is_only_slow_is_heard_after_it_did_not_answer(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("server_world.FakeRunner", SlowRunner)
    world.write("orders")
    world.pass_time(20)
    assert isinstance(world.runner, SlowRunner)
    assert world.runner.hurried > 2, "others do not wait for it each time"
    assert world.runner.hurried < 15, "it is given time again"
    assert world.supervisor.phase("orders") == "running"
    world.write("orders", "two")
    world.pass_time(20)
    [version, _] = world.registry.versions("orders")
    assert version.state is VersionState.ACCEPTED, "a slow version is healthy"


def test_the_loop_and_a_roll_out_that_meet_at_a_new_unit_have_the_same_one(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    both = threading.Barrier(2, timeout=60)

    class SlowUnit(Unit):
        def __init__(self, name: str, services: Services, *, group: bool) -> None:
            both.wait()
            super().__init__(name, services, group=group)

    monkeypatch.setattr("headrace_server.supervision.supervisor.Unit", SlowUnit)
    with ThreadPoolExecutor(2) as pool:
        one, other = (pool.submit(world.supervisor.unit, "orders", {}) for _ in range(2))
    assert one.result() is other.result() is world.supervisor.units["orders"]


def test_what_has_no_effect_in_a_version_is_noted_with_it(world: World) -> None:
    world.write("orders", "hint")
    world.pass_time()
    assert world.registry.version("orders", 1).note == "a hint has no effect"


def test_a_version_that_does_not_plan_is_refused_and_the_old_one_goes_on(world: World) -> None:
    world.write("orders")
    world.pass_time()
    old = world.runner
    world.write("orders", "refused")
    world.pass_time()
    assert world.runner is old
    assert "stop" not in old.asked
    job = world.registry.job("orders")
    assert job.current_version == 1
    assert job.problem == "version 2 is refused: unknown column"
    assert world.registry.version("orders", 2).state is VersionState.REFUSED


def test_a_version_whose_state_does_not_fit_is_refused(world: World) -> None:
    world.write("orders")
    world.pass_time()
    old = world.runner
    world.write("orders", "other state")
    world.pass_time()
    assert world.runner is old
    assert world.registry.version("orders", 2).reason == "the state does not fit"


@pytest.mark.parametrize(
    ("before", "after", "reason"),
    [
        ("in topics, other state", "in topics", "the running version could not read what the new one stores (the state does not fit)"),
        ("one", "in topics", "state does not move between them"),
        ("in topics", "one", "state does not move between them"),
    ],
)  # fmt: skip
def test_a_version_without_a_way_back_is_refused_before_anything_stops_and_comes_in_while_the_job_is_stopped(
    world: World, before: str, after: str, reason: str
) -> None:
    world.write("orders", before)
    world.pass_time()
    old = world.runner
    world.write("orders", after)
    world.pass_time()
    assert (world.runner, "stop" in old.asked) == (old, False)
    assert reason in str(world.registry.version("orders", 2).reason)
    world.supervisor.desire([world.registry.job("orders")], Desired.STOPPED)
    world.pass_time()
    world.supervisor.roll_out_later("upgrade", {"orders": 2})
    world.pass_time()
    world.supervisor.desire([world.registry.job("orders")], Desired.RUNNING)
    world.pass_time()
    assert [each.version for each in world.runner.specification.jobs] == [2]


def test_a_version_whose_state_in_topics_the_running_one_can_read_is_taken_back(world: World) -> None:
    world.write("orders", "in topics")
    world.pass_time()
    world.write("orders", "in topics, fails")
    world.pass_time(20)
    assert world.registry.version("orders", 2).state is VersionState.FELL_BACK
    assert [each.version for each in world.runner.specification.jobs] == [1]


@pytest.mark.parametrize(
    ("text", "reason"),
    [("fails", "no such table"), ("all bad", "all of the 10 records that it has read became dead letters")],
)
def test_a_version_that_is_not_healthy_is_taken_back(world: World, text: str, reason: str) -> None:
    world.write("orders")
    world.pass_time()
    world.write("orders", text)
    world.pass_time(20)
    assert world.registry.job("orders").current_version == 1
    assert world.registry.version("orders", 2).state is VersionState.FELL_BACK
    assert world.registry.version("orders", 2).reason == reason
    assert [each.version for each in world.runner.specification.jobs] == [1]
    assert world.supervisor.phase("orders") == "running"
    [operation] = [each for each in world.registry.operations() if each.state == "failed"]
    assert reason in str(operation.error)


def test_a_first_version_has_nothing_to_fall_back_to_and_is_tried_again(world: World) -> None:
    world.write("orders", "fails")
    world.pass_time(2)
    assert world.registry.job("orders").current_version == 1
    world.pass_time(60)
    assert world.supervisor.phase("orders") == "resting"
    assert len(world.registry.runs_of("orders")) == FAILURES_MAX
    assert "rests after 5 failures in a row; the last one: no such table" in str(world.registry.job("orders").problem)


def test_a_killed_runner_is_started_again(world: World) -> None:
    world.write("orders")
    world.pass_time()
    world.runner.alive = False
    world.supervisor.step()
    assert "ended by SIGKILL" in str(world.registry.job("orders").problem)
    assert world.launcher.alive == []
    world.pass_time(3)
    assert world.supervisor.phase("orders") == "running"
    assert world.registry.job("orders").problem is None
    assert [run.outcome for run in world.registry.runs_of("orders")] == [None, "killed"]


def test_a_runner_that_does_not_answer_is_not_started_twice(world: World) -> None:
    world.write("orders")
    world.pass_time()
    world.runner.answers = False
    world.pass_time(120)
    assert len(world.launcher.runners) == 1


def test_a_process_that_does_not_listen_yet_when_it_is_to_end_is_told_again(world: World) -> None:
    world.write("one")
    world.pass_time()
    runner = world.runner
    runner.answers = False
    world.supervisor.desire(world.registry.jobs(), Desired.STOPPED)
    world.pass_time(2)
    assert runner.alive
    runner.answers = True
    world.pass_time(2)
    assert runner.asked[-1] == "exit"
    assert not runner.alive


def test_a_job_that_is_stopped_stays_stopped_and_one_that_is_started_forgets_its_failures(world: World) -> None:
    world.write("orders")
    world.pass_time()
    world.supervisor.desire([world.registry.job("orders")], Desired.STOPPED)
    world.pass_time(10)
    assert world.launcher.alive == []
    assert world.registry.runs_of("orders")[0].outcome == "stopped"
    world.supervisor.desire([world.registry.job("orders")], Desired.RUNNING)
    world.pass_time(2)
    assert world.supervisor.phase("orders") == "running"


def test_a_bounded_job_that_has_finished_is_not_started_again(world: World) -> None:
    world.write("orders")
    world.pass_time()
    world.runner.phases["orders"] = "finished"
    world.runner.alive = False
    world.pass_time(10)
    assert world.registry.job("orders").desired is Desired.FINISHED
    assert len(world.launcher.runners) == 1


def test_a_changed_file_of_a_stopped_job_is_planned_and_not_started(world: World) -> None:
    world.write("orders")
    world.pass_time()
    world.supervisor.desire([world.registry.job("orders")], Desired.STOPPED)
    world.pass_time(3)
    world.write("orders", "two")
    world.pass_time()
    assert world.registry.job("orders").current_version == 2
    assert world.launcher.alive == []


def test_two_files_with_the_same_pipeline_do_not_run_both(world: World) -> None:
    world.write("first", "same pipeline")
    world.pass_time()
    world.write("second", "same pipeline")
    world.write("stopped", "same pipeline")
    world.pass_time()
    assert world.supervisor.phase("first") == "running"
    job = world.registry.job("second")
    assert job.current_version is None
    assert job.problem is not None
    assert "the pipeline 't.same' is already that of the job 'first'" in job.problem
    world.write("first", "same pipeline, changed")  # its own next version is no twin of it
    world.pass_time(20)
    assert world.registry.job("first").current_version == 2
    (world.jobs / "first.py").unlink()
    world.pass_time(20)
    world.write("second", "same pipeline, again")
    world.pass_time(20)
    assert world.supervisor.phase("second") == "running"


def test_a_job_whose_file_comes_back_does_not_run_beside_the_one_that_has_its_pipeline_now(world: World) -> None:
    world.write("first", "same pipeline")
    world.pass_time()
    (world.jobs / "first.py").unlink()
    world.pass_time()
    world.write("second", "same pipeline")
    world.pass_time()
    assert world.supervisor.phase("second") == "running"
    world.write("first", "same pipeline")
    world.pass_time(20)
    assert world.supervisor.phase("first") == "refused"
    assert "is already that of the job 'second'" in str(world.registry.job("first").problem)
    assert world.supervisor.phase("second") == "running"
    assert len(world.launcher.alive) == 1


@pytest.mark.parametrize("roll_out", ["automatic", "manual"])
def test_a_job_whose_file_comes_back_runs_its_version_again(world: World, roll_out: str) -> None:
    (world.jobs / "job.yaml").write_text(f"roll_out: {roll_out}\n")
    world.write("orders")
    world.pass_time()
    if roll_out == "manual":
        upgrade(world, "orders", 1)
    (world.jobs / "orders.py").unlink()
    world.pass_time()
    assert world.launcher.alive == []
    world.write("orders")
    world.pass_time(20)
    job = world.registry.job("orders")
    assert (job.present, job.desired, job.current_version, job.problem) == (True, Desired.RUNNING, 1, None)
    assert world.supervisor.phase("orders") == "running"


def test_a_removed_file_stops_its_job(world: World) -> None:
    world.write("orders")
    world.pass_time()
    (world.jobs / "orders.py").unlink()
    world.pass_time()
    job = world.registry.job("orders")
    assert (job.present, job.desired) == (False, Desired.STOPPED)
    assert world.launcher.alive == []
    with pytest.raises(JobError, match="is not in the jobs directory"):
        world.supervisor.desire([job], Desired.RUNNING)


def test_jobs_of_a_group_share_a_process_and_only_the_one_that_fails_is_started_again(world: World) -> None:
    (world.jobs / "job.yaml").write_text("group: small\n")
    for name in ("a", "b", "c"):
        world.write(name)
    world.pass_time()
    runner = world.runner
    assert sorted(runner.phases) == ["a", "b", "c"]
    runner.phases["b"], runner.errors["b"] = "failed", "boom"
    world.clock.advance(1)
    world.supervisor.step()
    assert "boom" in str(world.registry.job("b").problem)
    world.pass_time(3)
    assert world.runner is runner
    assert runner.phases["b"] == "running"
    assert [len(world.registry.runs_of(name)) for name in ("a", "b", "c")] == [1, 2, 1]


def test_a_group_takes_good_versions_although_one_of_them_is_refused(world: World) -> None:
    (world.jobs / "job.yaml").write_text("group: small\n")
    for name in ("a", "b"):
        world.write(name)
    world.pass_time()
    world.write("a", "two")
    world.write("b", "refused")
    world.pass_time(20)
    assert {each.name: each.version for each in world.runner.specification.jobs} == {"a": 2, "b": 1}
    assert "refused" in str(world.registry.job("b").problem)


def test_a_server_that_was_killed_finds_its_runners(world: World, tmp_path: Path) -> None:
    world.write("lives")
    world.write("died")
    world.pass_time()
    lives, died = sorted(world.launcher.alive, key=lambda each: each.specification.unit, reverse=True)
    died.alive = False
    again = World(tmp_path, world.launcher)
    try:
        again.supervisor.find_runners()
        assert again.supervisor.units["lives"].runner is lives
        assert again.registry.runs_of("died")[0].outcome == "killed"
        again.pass_time(4)
        assert again.supervisor.phase("died") == "running"
        assert len(again.launcher.alive) == 2
        assert len(again.registry.runs_of("lives")) == 1
    finally:
        again.close()


def test_a_runner_gets_the_secrets_that_it_names_and_no_others(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("DB_PASSWORD", "OTHER_PASSWORD"):
        monkeypatch.setenv(name, "s3cret-" + name)
    monkeypatch.setenv("PLAIN", "seen")
    (world.jobs / "job.yaml").write_text("secrets: [DB_PASSWORD]\nenvironment: {ZONE: north}\n")
    world.write("orders")
    world.pass_time()
    environment = world.launcher.environments[-1]
    assert environment["DB_PASSWORD"] == "s3cret-DB_PASSWORD"
    assert "OTHER_PASSWORD" not in environment
    assert (environment["PLAIN"], environment["ZONE"]) == ("seen", "north")
    assert "s3cret" not in world.registry.version("orders", 1).settings


def test_a_secret_that_is_missing_refuses_the_version(world: World) -> None:
    (world.jobs / "job.yaml").write_text("secrets: [NOT_THERE_PASSWORD]\n")
    world.write("orders")
    world.pass_time()
    assert "NOT_THERE_PASSWORD" in str(world.registry.job("orders").problem)
    assert world.launcher.runners == []


def test_secrets_come_from_files_by_name_and_are_never_in_the_version(world: World, tmp_path: Path) -> None:
    file = tmp_path / "db"
    file.write_text("s3cret-of-file\n")
    file.chmod(0o600)
    (world.jobs / "job.yaml").write_text(f'secrets: {{DB_PASSWORD: "${{file:{file}}}"}}\n')
    world.write("orders")
    world.pass_time()
    assert world.launcher.environments[-1]["DB_PASSWORD"] == "s3cret-of-file"
    assert "s3cret" not in world.registry.version("orders", 1).settings
    file.chmod(0o644)
    world.write("other")
    world.pass_time()
    assert "can be read or changed by other users" in str(world.registry.job("other").problem)
    (world.jobs / "job.yaml").write_text("secrets: {DB_PASSWORD: hunter2}\n")
    world.pass_time()
    refused = str(world.supervisor.refused_files)
    assert "must be given by the place where it is stored" in refused
    assert "hunter2" not in refused


def upgrade(world: World, name: str, number: int) -> None:
    """Roll a version out as ``headrace upgrade`` does."""
    world.supervisor.roll_out_later("upgrade", {name: number})
    world.supervisor.wait_for_roll_outs()
    world.pass_time(2)


def test_every_version_waits_for_an_upgrade_where_roll_outs_are_manual_also_the_first(world: World) -> None:
    (world.jobs / "job.yaml").write_text("roll_out: manual\n")
    world.write("orders")
    world.pass_time()
    assert world.launcher.runners == []
    assert world.supervisor.phase("orders") == "waiting"
    with pytest.raises(JobError, match="no version of the job was accepted") as error:
        world.supervisor.desire([world.registry.job("orders")], Desired.RUNNING)
    assert error.value.hint == "headrace upgrade orders rolls out its first version"
    upgrade(world, "orders", 1)
    assert world.supervisor.phase("orders") == "running"
    world.write("orders", "two")
    world.pass_time()
    job = world.registry.job("orders")
    assert (job.current_version, job.problem) == (1, None)
    assert [each.number for each in world.registry.versions("orders")] == [2, 1]
    upgrade(world, "orders", 2)
    assert world.registry.job("orders").current_version == 2


def test_a_first_version_that_is_refused_is_shown_as_such_where_roll_outs_are_manual(world: World) -> None:
    (world.jobs / "job.yaml").write_text("roll_out: manual\n")
    world.write("orders", "refused")
    world.pass_time()
    upgrade(world, "orders", 1)
    assert world.supervisor.phase("orders") == "refused"


def test_a_changed_file_that_comes_back_waits_and_the_accepted_version_runs_where_roll_outs_are_manual(
    world: World,
) -> None:
    (world.jobs / "job.yaml").write_text("roll_out: manual\n")
    world.write("orders")
    world.pass_time()
    upgrade(world, "orders", 1)
    (world.jobs / "orders.py").unlink()
    world.pass_time()
    assert world.launcher.alive == []
    world.write("orders", "two")
    world.pass_time(20)
    assert world.supervisor.phase("orders") == "running"
    assert [each.version for each in world.runner.specification.jobs] == [1]


@pytest.mark.parametrize("when", ["first", "upgrade"])
def test_a_roll_out_that_ends_while_the_loop_looks_is_not_undone(
    world: World, monkeypatch: pytest.MonkeyPatch, when: str
) -> None:
    """The loop reads the jobs, a roll-out ends in its thread, and the loop goes on with what it has read."""
    if when == "upgrade":
        world.write("orders")
        world.pass_time()
    read = world.supervisor._all_jobs

    def read_then_finish() -> list[JobRecord]:
        found = read()
        if threading.current_thread() is threading.main_thread():  # roll-outs read the jobs, too
            world.supervisor.wait_for_roll_outs()
        return found

    monkeypatch.setattr(world.supervisor, "_all_jobs", read_then_finish)
    world.write("orders", "new")
    world.pass_time(10)
    assert world.supervisor.phase("orders") == "running"
    assert "exit" not in world.runner.asked
    assert len(world.registry.runs_of("orders")) == (1 if when == "first" else 2)


def test_an_old_version_that_is_killed_while_the_new_one_is_compared_refuses_nothing(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.write("orders")
    world.pass_time()
    old, ask = world.runner, world.runner.ask

    def killed_at_the_plan(do: str, **arguments: Any) -> Any:
        if do == "plan":
            old.alive = False
        return ask(do, **arguments)

    monkeypatch.setattr(old, "ask", killed_at_the_plan)
    world.write("orders", "two")
    world.pass_time(20)
    assert world.registry.job("orders").current_version == 2
    assert world.supervisor.phase("orders") == "running"


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (JobError("there is no queue 'x'"), "there is no queue 'x'"),
        (TimeoutError("they have not stopped within 5 s"), "they have not stopped within 5 s"),
        (OSError(28, "No space left on device", "/srv/secret-place/x"), "OSError: No space left on device; the server's log has the rest"),
        (OperationalError("SELECT secret", {"name": "secret"}, OSError("secret")), "OperationalError; the server's log has the rest"),
        (KeyError("secret"), "KeyError; the server's log has the rest"),
    ],
)  # fmt: skip
def test_who_looks_at_an_operation_reads_no_statements_and_places(world: World, error: Exception, said: str) -> None:
    def work(_: str) -> None:
        raise error

    operation = world.supervisor.begin("test", [], work)
    assert world.supervisor.wait_for_operations(timedelta(minutes=1))
    assert world.registry.operation(operation).error == said
