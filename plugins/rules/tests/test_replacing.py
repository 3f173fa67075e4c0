"""Rules replaced while a job runs: from a recorded offset on, bad ones rejected one by one, nothing lost or doubled."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from datetime import timedelta
from pathlib import Path
from typing import Any

import headrace as hr
import polars as pl
import pytest
from headrace.flow.messages import INDEX, OFFSET, Batch, Queue
from headrace.flow.schema import Schema
from headrace.foundation.clock import ManualClock, SystemClock
from headrace.foundation.errors import CheckpointError, JobError, PlanError
from headrace.testing import MemorySink, MemorySource
from headrace_rules.engine import EngineOptions
from headrace_rules.group import GroupRun, Member, RuleGroup
from headrace_rules.journal import TEMPORARY, RuleJournal
from headrace_rules.loading import load, load_strictly
from headrace_rules.model import RulesError, RuleSet
from headrace_rules.prepared import Preparer
from headrace_rules.versions import RulesUpdate, now_text, update

from tests.eventually import eventually

SCHEMA = Schema({"a": pl.String(), "n": pl.Int64()})
OLD = {"foo": "a LIKE '%foo%'"}
NEW = {"bar": "a LIKE '%bar%'"}


class World:
    """A journal, and runs of one member over it, each as another process has it."""

    def __init__(self, place: Path) -> None:
        self.place = place
        self.journal = RuleJournal(place)
        self.preparer = Preparer(SCHEMA)

    def run(self, rules: Any = OLD, clock: ManualClock | None = None, **watching: Any) -> GroupRun:
        member = Member("rules", load_strictly(rules), str(self.place), **watching)
        group = RuleGroup([member], {}, EngineOptions(cache=False, background=False))
        return GroupRun(group, SCHEMA, clock)

    def update(self, rules: Any, first: Any = OLD) -> RulesUpdate:
        return update(self.journal, load_strictly(first), load(rules), self.preparer, who="tester", at="now")


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path / "journal")


def matched(run: GroupRun, first: int, count: int, queue: str = "q") -> dict[int, str]:
    """Return the rule that matched each record; every record holds both words."""
    offsets = list(range(first, first + count))
    frame = pl.DataFrame({"a": ["foo bar"] * count, "n": offsets, OFFSET: offsets, INDEX: [0] * count}).cast(
        {INDEX: pl.Int32}
    )
    found = {}
    for segment in run.segments(0, Batch(Queue(queue), frame)):
        for row, rule in zip(segment.rows.tolist(), segment.rule_numbers.tolist(), strict=True):
            found[int(segment.frame[OFFSET][row])] = segment.rules[rule].id
    assert sorted(found) == offsets
    return found


def test_a_version_holds_from_a_recorded_offset_on_also_when_records_are_read_again(world: World) -> None:
    run = world.run()
    assert set(matched(run, 0, 10).values()) == {"foo"}
    world.update(NEW)
    assert set(matched(run, 10, 10).values()) == {"bar"}
    assert world.journal.switches("q") == [(10, 2)]
    again = world.run()  # after a crash
    found = matched(again, 5, 10)
    assert found == {offset: "foo" if offset < 10 else "bar" for offset in range(5, 15)}
    assert set(matched(again, 0, 3, "other").values()) == {"bar"}  # a queue that comes later begins with the newest


def test_processes_agree_on_the_offset(world: World) -> None:
    one, other = world.run(), world.run()
    matched(one, 0, 10), matched(other, 0, 10, "r")
    world.update(NEW)
    assert set(matched(one, 10, 10).values()) == {"bar"}
    assert set(matched(other, 10, 5).values()) == {"bar"}  # the queue has moved to another process
    world.update({"both": "a LIKE '%foo%bar%'"})
    assert set(matched(other, 20, 5).values()) == {"both"}
    assert set(matched(one, 20, 5).values()) == {"both"}
    assert world.journal.switches("q") == [(10, 2), (20, 3)]


def test_several_versions_in_one_batch(world: World) -> None:
    run = world.run()
    matched(run, 0, 10)
    for number, first in ((1, 10), (2, 15), (3, 20)):
        world.update({f"v{number}": "a LIKE '%foo%'"})
        matched(run, first, 5)
    found = matched(world.run(), 8, 14)
    assert list(found.values()) == ["foo"] * 2 + ["v1"] * 5 + ["v2"] * 5 + ["v3"] * 2


def test_bad_rules_are_rejected_one_by_one_and_keep_their_last_good_form(world: World) -> None:
    made = world.update({"foo": "a LIKE", "new": "n = 1", "odd": "b = 2"})
    assert [one.id for one in made.rejected] == ["foo", "odd"]
    assert [(rule.id, rule.expression) for rule in made.rules] == [("new", "n = 1"), ("foo", OLD["foo"])]
    entries = [entry for entry in world.journal.audited() if entry["event"] == "version"]
    assert [entry["who"] for entry in entries] == ["the job", "tester"]
    assert (entries[1]["added"], entries[1]["removed"], entries[1]["changed"]) == (["new"], [], [])
    assert any("unknown column 'b'" in text for text in entries[1]["rejected"])
    with pytest.raises(RulesError, match="2 rules are wrong"):
        world.update({"x": "a LIKE", "y": "b = 2"}, first=OLD)
    assert world.journal.latest() == 2


def test_the_same_rules_make_no_version(world: World) -> None:
    assert world.update(NEW).version == 2
    assert world.update(NEW).version == 2
    assert world.update(OLD).version == 3


def test_after_a_restart_the_newest_rules_hold_unless_the_job_brings_others(world: World) -> None:
    matched(world.run(), 0, 10)
    world.update(NEW)
    assert set(matched(world.run(), 10, 10).values()) == {"bar"}
    assert set(matched(world.run(), 20, 10).values()) == {"bar"}  # the job as it was
    assert set(matched(world.run({"mine": "a LIKE '%foo%'"}), 30, 10).values()) == {"mine"}  # the job was changed
    assert set(matched(world.run({"mine": "a LIKE '%foo%'"}), 40, 10).values()) == {"mine"}
    assert [entry["version"] for entry in world.journal.audited() if entry["event"] == "switch"] == [2, 3]


def test_files_are_looked_at_now_and_then(world: World, tmp_path: Path) -> None:
    file = tmp_path / "rules.yaml"

    def write(text: str, moment: int) -> None:
        file.write_text(text)
        os.utime(file, (moment, moment))

    write("- {id: foo, expression: \"a LIKE '%foo%'\"}", 1)
    clock = ManualClock()
    run = world.run(str(file), clock, watched=str(file), reload_interval=timedelta(seconds=5))
    assert set(matched(run, 0, 10).values()) == {"foo"}
    write("- {id: bar, expression: \"a LIKE '%bar%'\"}", 2)
    assert set(matched(run, 10, 10).values()) == {"foo"}
    clock.advance(timedelta(seconds=5).total_seconds())
    assert set(matched(run, 20, 10).values()) == {"bar"}
    write("- {id: bar, expression: [}", 3)
    clock.advance(timedelta(seconds=5).total_seconds())
    assert set(matched(run, 30, 10).values()) == {"bar"}, "a file that cannot be read keeps its rules"
    file.unlink()
    clock.advance(timedelta(seconds=5).total_seconds())
    assert set(matched(run, 40, 10).values()) == {"bar"}


def test_a_new_engine_is_made_beside_the_old_one(world: World) -> None:
    member = Member("rules", RuleSet(load_strictly(OLD)), str(world.place))
    run = GroupRun(RuleGroup([member], {}, EngineOptions(cache=False)), SCHEMA)
    go_on = threading.Event()
    made = run._made

    def slowly(numbers: tuple[int, ...]) -> Any:
        if numbers != (1,):
            assert go_on.wait(60)
        return made(numbers)

    run._made = slowly  # type: ignore[method-assign]
    matched(run, 0, 10)
    world.update(NEW)
    assert set(matched(run, 10, 10).values()) == {"foo"}  # not ready: nobody waits for it
    go_on.set()
    run.settle()
    assert set(matched(run, 20, 10).values()) == {"bar"}


@pytest.mark.parametrize("watched", [False, True], ids=["given", "from a file"])
def test_the_first_batch_behind_a_quiet_time_waits_for_new_rules(world: World, tmp_path: Path, watched: bool) -> None:
    """What replaced them came when no batch did: its records are not put to rules that were replaced long ago."""
    file = tmp_path / "rules.yaml"
    file.write_text("- {id: foo, expression: \"a LIKE '%foo%'\"}")
    watching = {"watched": str(file), "reload_interval": timedelta(seconds=1)} if watched else {}
    member = Member("rules", RuleSet(load_strictly(str(file))), str(world.place), **watching)  # type: ignore[arg-type]
    clock = ManualClock()
    run = GroupRun(RuleGroup([member], {}, EngineOptions(cache=False)), SCHEMA, clock)
    assert set(matched(run, 0, 10).values()) == {"foo"}
    clock.advance(3600)
    if watched:
        file.write_text("- {id: bar, expression: \"a LIKE '%bar%'\"}")
    else:
        world.update(NEW, first=str(file))
    assert set(matched(run, 10, 10).values()) == {"bar"}
    assert world.journal.switches("q") == [(10, 2)]
    # One that was being made when the stream went quiet is in use as well.
    world.update({"both": "a LIKE '%foo%bar%'"}, first=str(file))
    assert set(matched(run, 20, 10).values()) == {"bar"}
    clock.advance(5)
    assert set(matched(run, 30, 10).values()) == {"both"}


def test_versions_that_come_faster_than_they_are_made_ready_are_not_starved(world: World) -> None:
    member = Member("rules", RuleSet(load_strictly(OLD)), str(world.place))
    run = GroupRun(RuleGroup([member], {}, EngineOptions(cache=False)), SCHEMA)
    matched(run, 0, 10)
    for number in (1, 2, 3):
        world.update({f"v{number}": "a LIKE '%foo%'"})
        assert set(matched(run, 20 * number, 10).values()) == {"foo" if number == 1 else f"v{number - 1}"}
        run.settle()
    assert set(matched(run, 100, 10).values()) == {"v3"}
    assert world.journal.switches("q") == [(40, 2), (60, 3), (100, 4)]


def test_what_only_rules_of_before_asked_for_is_not_computed_for_ever(world: World) -> None:
    run = world.run({"v0": "substr(a, 1, 3) = 'foo' AND a LIKE '%foo%'"})
    matched(run, 0, 10)
    most = 0
    for number in range(1, 5):
        rules = {
            f"v{number}-{i}": f"substr(a, 1, {100 * number + i}) = 'foo bar' AND a LIKE '%o b%'" for i in range(30)
        }
        world.update(rules)
        assert set(matched(run, 10 * number, 10).values()) == {f"v{number}-29"}
        most = max(most, len(run.preparer.slots.expressions))
    assert most < 100, "of 121 in all"


def test_a_damaged_version_and_a_place_of_others(world: World) -> None:
    world.update(NEW)
    (world.place / "versions" / "000002.json").write_text("{")
    with pytest.raises(CheckpointError, match="version 2 of the rules cannot be read"):
        matched(world.run(), 0, 10)
    world.place.chmod(0o777)
    with pytest.raises(JobError, match="can be written by other users"):
        world.journal.read(1)


def body(number: int) -> bytes:
    return json.dumps({"a": "foo bar", "n": number}).encode()


def test_a_running_job_takes_other_rules(tmp_path: Path) -> None:
    source, sink = MemorySource({"q": [body(n) for n in range(100)]}), MemorySink()
    stream = hr.stream("test", "replacing").from_(source, format="json", schema={"a": "string", "n": "int64"})
    job = stream.rules(OLD).to(sink)
    begun = now_text(SystemClock())
    with job.start("light", checkpoint=tmp_path / "checkpoint") as handle:
        started = now_text(SystemClock())
        eventually(
            lambda: handle.status().records_read == 100 and now_text(SystemClock()) > started, "100 records are read"
        )
        made = handle.update_rules({**NEW, "bad": "c = 1"}, who="alice")
        assert made.version == 2
        assert [one.id for one in made.rejected] == ["bad"]
        count = 100
        while True:
            source.append("q", body(count))
            count += 1
            eventually(lambda: handle.status().records_read == count, f"{count} records are read")  # noqa: B023
            journal = RuleJournal(tmp_path / "checkpoint" / "rules" / "rules")
            if journal.switches("memory/q"):
                break
    ((offset, version),) = journal.switches("memory/q")
    assert version == 2
    expected = [(n, ["foo"] if n < offset else ["bar"]) for n in range(count)]
    assert [(row["n"], row["rule_ids"]) for row in sink.rows] == expected
    first, second = (entry for entry in journal.audited() if entry["event"] == "version")
    assert (first["who"], second["who"]) == ("the job", "alice")
    assert begun <= first["at"] <= started < second["at"]


_RELOADS = """
import headrace as hr, json, sys
from pathlib import Path
from headrace.testing import MemorySink
from datetime import timedelta
from tests.eventually import eventually

Path("in.ndjson").write_text('{"a": "foo"}\\n')
rules, sink = Path("rules.yaml"), MemorySink(hr.SinkSettings(flush_interval=timedelta(0)))
rules.write_text("- {id: foo, expression: \\"a LIKE '%foo%'\\"}")
stream = hr.stream("test", "reloads").from_file("in.ndjson", format="json", schema={"a": "string"})
with stream.rules(str(rules), reload_interval="0 s").to(sink).start("light"):
    eventually(lambda: len(sink.rows) == 1, "the first row")
    rules.write_text("- {id: bar, expression: \\"a LIKE '%foo%'\\"}")

    def matched() -> bool:
        with Path("in.ndjson").open("a") as file:
            file.write('{"a": "foo"}\\n')
        return sink.rows[-1]["rule_ids"] == ["bar"]

    eventually(matched, "the rules of the changed file")
"""


def test_a_run_without_a_checkpoint_leaves_no_rules_behind(tmp_path: Path) -> None:
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    root = Path(__file__).parents[3]
    environment = {**os.environ, "TMPDIR": str(temporary), "PYTHONPATH": str(root)}
    subprocess.run([sys.executable, "-c", _RELOADS], cwd=tmp_path, env=environment, check=True)
    assert not list(temporary.glob(f"{TEMPORARY}*"))


@pytest.mark.spark
def test_a_running_job_on_spark_takes_other_rules(tmp_path: Path) -> None:
    place, rules = tmp_path / "in", tmp_path / "rules.yaml"
    place.mkdir()
    rules.write_text("- {id: foo, expression: \"a LIKE '%foo%'\"}")
    stream = hr.stream("test", "replacing").from_file(
        f"{place}/*.ndjson", format="json", schema={"a": "string", "n": "int64"}
    )
    job = stream.rules(str(rules), reload_interval="50 ms").to_file(tmp_path / "out", format="json")

    def rows() -> list[dict[str, Any]]:
        files = sorted((tmp_path / "out").glob("*.json"))
        return [json.loads(line) for file in files for line in file.read_text().splitlines()]

    count = 0
    with job.start("spark", checkpoint=tmp_path / "checkpoint", master="local[2]") as handle:

        def until(rule: str) -> None:
            """Write records until one of them is matched by the rule."""
            nonlocal count
            while not any(row["rule_ids"] == [rule] for row in rows()):
                with (place / "a.ndjson").open("ab") as file:
                    file.write(body(count) + b"\n")
                count += 1
                eventually(lambda: len(rows()) == count, f"{count} rows")  # noqa: B023

        until("foo")
        handle.update_rules(NEW, who="alice")
        until("bar")
        rules.write_text("- {id: file, expression: \"a LIKE '%oo b%'\"}")
        until("file")
    journal = RuleJournal(tmp_path / "checkpoint" / "rules" / "rules")
    (queue,) = {entry["queue"] for entry in journal.audited() if entry["event"] == "switch"}
    switches = journal.switches(queue)
    assert [version for _, version in switches] == [2, 3]
    found = {row["n"]: row["rule_ids"][0] for row in rows()}
    second, third = switches[0][0], switches[1][0]
    assert found == {n: "foo" if n < second else "bar" if n < third else "file" for n in range(count)}


def test_which_rules_are_meant(tmp_path: Path) -> None:
    pipe = hr.stream("test", "replacing")
    stream = pipe.from_(MemorySource({"q": []}), format="json", schema={"a": "string", "n": "int64"})
    with (
        stream.where("n > 1").to(MemorySink()).start("light") as handle,
        pytest.raises(PlanError, match="the job has no verb rules"),
    ):
        handle.update_rules(NEW)
    job = hr.job(stream.rules(OLD).to(MemorySink()), stream.rules(NEW).to(MemorySink()))
    with job.start("light") as handle:
        with pytest.raises(PlanError, match="several rules: rules, rules-2"):
            handle.update_rules(NEW)
        with pytest.raises(PlanError, match="did you mean 'rules-2'"):
            handle.update_rules(NEW, node="rule-2")
        assert handle.update_rules(OLD, node="rules-2").version == 2
    shaped = stream.map(lambda row: row).rules(OLD).to(MemorySink())
    with shaped.start("light") as handle, pytest.raises(PlanError, match="unknown columns"):
        handle.update_rules(NEW)
