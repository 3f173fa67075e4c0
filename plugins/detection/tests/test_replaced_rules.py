"""Rules are replaced while a job correlates: a rule that a correlation names stays, and changed correlations are told."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import headrace as hr
import pytest
from headrace.testing import MemorySink, MemorySource
from headrace_rules.journal import RuleJournal
from headrace_rules.versions import RulesUpdate
from test_correlate import RULES

from tests.eventually import eventually

SCHEMA = {"User": "string", "Host": "string", "EventID": "int64", "ts": "timestamp"}
FAILED, WORKED, GUESSED, SPRAYED = (text.strip() for text in RULES.split("---"))
OTHER = "{title: Other, name: other, detection: {selection: {EventID: 1}, condition: selection}}"


class World:
    """A running job whose rules and correlations are in one directory."""

    def __init__(self, place: Path) -> None:
        self.rules = place / "rules.yml"
        self.source, self.sink = MemorySource({"q": []}), MemorySink()
        self.checkpoint = place / "state"
        self.sent = 0

    def write(self, *documents: str) -> None:
        self.rules.write_text("\n---\n".join(documents))

    def job(self, *, with_correlations: bool = True) -> Any:
        stream = hr.stream("test", "replaced").from_(self.source, format="json", schema=SCHEMA).watermark("ts")
        found = stream.rules(str(self.rules))
        if with_correlations:
            return found.correlate(str(self.rules), on="ts", idle_timeout=None).to(self.sink)
        return found.to(self.sink)

    def send(self, handle: Any, *events: tuple[str, int]) -> None:
        for user, event in events:
            row = {"User": user, "Host": "h1", "EventID": event, "ts": f"2026-01-01T10:00:{self.sent:02}Z"}
            self.source.append("q", json.dumps(row).encode())
            self.sent += 1
        eventually(lambda: handle.status().records_read >= len(events), "all records")


def told(update: RulesUpdate) -> list[tuple[str, str]]:
    return [(one.id, one.reason.split(";")[0]) for one in update.rejected]


@pytest.fixture
def world(tmp_path: Path) -> World:
    made = World(tmp_path)
    made.write(FAILED, WORKED, GUESSED, SPRAYED)
    return made


def test_rules_that_correlations_name_stay(world: World) -> None:
    with world.job().start("light", checkpoint=world.checkpoint) as handle:
        world.send(handle, ("eve", 4625))
        world.write(OTHER, GUESSED, SPRAYED)
        update = handle.update_rules(str(world.rules))
        assert sorted(rule.id for rule in update.rules) == ["failed", "other", "worked"]
        assert told(update) == [
            ("failed", "correlation 'guessed', 'sprayed' names it, so it stays in use until the job starts anew"),
            ("worked", "correlation 'guessed' names it, so it stays in use until the job starts anew"),
        ]
        world.send(handle, ("eve", 4624), ("eve", 9), ("eve", 1), ("eve", 1), ("eve", 4625))
    world.write(FAILED, WORKED, GUESSED, SPRAYED)
    world.job().run("light", checkpoint=world.checkpoint)
    assert "guessed" in [row["rule_id"] for row in world.sink.rows]


def test_a_rule_with_another_condition_counts_from_its_first_batch_on(world: World) -> None:
    with world.job().start("light", checkpoint=world.checkpoint) as handle:
        world.send(handle, ("eve", 4625))
        changed = FAILED.replace("4625", "[4625, 529]")
        world.write(changed, WORKED, GUESSED, SPRAYED)
        update = handle.update_rules(str(world.rules))
        assert told(update) == []
        journal = RuleJournal(world.checkpoint / "rules" / "rules")

        def switched() -> bool:
            world.send(handle, ("ann", 7))
            return bool(journal.switches("memory/q"))

        eventually(switched, "the new rules are in use")
        world.send(handle, ("bob", 529), ("joe", 529))
    world.job().run("light", checkpoint=world.checkpoint)
    assert [row["User"] for row in world.sink.rows if row["rule_id"] == "sprayed"] == ["joe"]


def test_correlations_that_changed_are_told(world: World) -> None:
    with world.job().start("light", checkpoint=world.checkpoint) as handle:
        third = SPRAYED.replace("id: sprayed", "id: third").replace("Sprayed", "Third")
        world.write(FAILED, WORKED, SPRAYED.replace("gte: 3", "gte: 2"), third)
        update = handle.update_rules(str(world.rules))
        assert told(update) == [
            ("sprayed", "the correlation has changed, and stays as it was"),
            ("third", "the correlation is new, and not in use"),
            ("guessed", "the correlation is in no file any more, and stays in use"),
        ]
        assert handle.update_rules({"failed": "EventID = 4625", "worked": "EventID = 4624"}).rejected == ()


def test_a_rule_that_was_taken_away_comes_back_when_a_correlation_names_it(world: World) -> None:
    with world.job(with_correlations=False).start("light", checkpoint=world.checkpoint / "a") as handle:
        world.send(handle, ("eve", 4625))
        update = handle.update_rules({"other": "EventID = 1", "failed": "EventID = 4625"})
        assert told(update) == [], "nothing names the rule"
    journal = RuleJournal(world.checkpoint / "a" / "rules" / "rules")
    assert [rule.id for rule in journal.read(journal.latest()).rules] == ["other", "failed"]
    with world.job().start("light", checkpoint=world.checkpoint / "a", allow_changed_input=True) as handle:
        world.send(handle, ("eve", 4624))
        eventually(lambda: journal.latest() == 3, "a version with the rule")
    assert [rule.id for rule in journal.read(3).rules] == ["other", "failed", "worked"]
