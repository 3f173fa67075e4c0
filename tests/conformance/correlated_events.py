"""Generated correlation rules of Sigma, events for them, and a plain model of the alerts that they must give."""

from __future__ import annotations

import copy
import json
import random
from collections import Counter
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import headrace as hr
import yaml

BEGIN = datetime(2026, 1, 1, tzinfo=UTC)
SCHEMA = {"n": "int64", "ts": "timestamp", "Host": "string", "User": "string", "Account": "string", "EventID": "int64"}
#: Which events each rule matches: one event may match several.
RULES = {"failed": (1, 2), "worked": (2, 3), "cleared": (4,)}
#: The same after rules were replaced.
CHANGED = {**RULES, "failed": (0, 1)}
#: An event that no rule matches.
UNMATCHED = 9
#: In events of this rule the user is called otherwise.
ALIASED = "cleared"
#: How much earlier than one before it an event of a file may be.
JITTER_SECONDS = 5
ALERT = ("rule_id", "correlation_key", "n", "correlation_count", "correlation_events", "correlation_start")
Event = dict[str, Any]
Alerts = Counter[str]


@dataclass(frozen=True)
class Correlations:
    """Documents of rules and correlations of a seed, and how alerts are given."""

    documents: list[dict[str, Any]]
    output: str

    @classmethod
    def of_seed(cls, seed: int) -> Correlations:
        chance = random.Random(seed)
        made: list[dict[str, Any]] = [
            {"title": name, "name": name, "detection": {"selection": {"EventID": list(ids)}, "condition": "selection"}}
            for name, ids in RULES.items()
        ]
        for number in range(chance.randint(2, 4)):
            kind = chance.choice(["event_count", "value_count", "temporal", "temporal_ordered"])
            rules = chance.sample(list(RULES), chance.randint(2 if kind.startswith("temporal") else 1, 3))
            section: dict[str, Any] = {
                "type": kind, "rules": rules, "group-by": chance.choice([["User"], ["Host"], ["Host", "User"]]),
                "timespan": f"{chance.choice([3, 10, 40])}s",
            }  # fmt: skip
            if not kind.startswith("temporal"):
                section["condition"] = {chance.choice(["gte", "gt", "lte", "eq"]): chance.randint(1, 3)}
            if kind == "value_count":
                section["condition"]["field"] = chance.choice(["User", "Host"])
            if ALIASED in rules and _uses(section, "User"):
                section["aliases"] = {"User": {rule: "Account" if rule == ALIASED else "User" for rule in rules}}
            made.append({"title": f"c{number}", "id": f"c{number}", "correlation": section})
        return cls(made, chance.choice(["first", "all"]))

    def write(self, path: Path) -> None:
        path.write_text(yaml.safe_dump_all(self.documents))

    def changed(self) -> Correlations:
        """Return the same correlations over rules with other conditions."""
        documents = copy.deepcopy(self.documents)
        for document in documents:
            if "detection" in document:
                document["detection"]["selection"]["EventID"] = list(CHANGED[document["name"]])
        return Correlations(documents, self.output)

    def alerts(self, events: list[Event]) -> Alerts:
        """Return the alerts, as plainly as it can be said. An event with ``changed`` met the rules that replaced others."""
        found: Alerts = Counter()
        for document in self.documents:
            if "correlation" in document:
                found.update(_alerts_of(document["id"], document["correlation"], events, self.output))
        return found


def _uses(section: dict[str, Any], name: str) -> bool:
    return name in section["group-by"] or section.get("condition", {}).get("field") == name


def events_of(seed: int, count: int) -> list[Event]:
    """Return events that are at most ``JITTER_SECONDS`` out of order, and no two of which have one time."""
    chance = random.Random(seed)
    made = []
    for number in range(count):
        seconds = number + chance.uniform(-JITTER_SECONDS / 2, JITTER_SECONDS / 2)
        at = BEGIN + timedelta(seconds=10 + seconds, microseconds=number)
        made.append(
            {
                "n": number, "ts": at.isoformat(), "Host": f"h{chance.randrange(2)}", "User": chance.choice(["a", "b", None]),
                "Account": chance.choice("ab"), "EventID": chance.choice([0, 1, 2, 3, 4]),
            }
        )  # fmt: skip
    return made


def write_events(directory: Path, name: str, events: list[Event]) -> None:
    """Append events to a file."""
    directory.mkdir(exist_ok=True)
    with (directory / name).open("a") as file:
        file.writelines(json.dumps(event) + "\n" for event in events)


def job(place: Path, output: str) -> hr.Job:
    """Return a job over the files of ``in`` by the rules of ``rules.yml``; its alerts are in ``out``."""
    rules = str(place / "rules.yml")
    stream = hr.stream("conformance", "correlations").from_file(f"{place}/in/*.ndjson", format="json", schema=SCHEMA)
    alerts = stream.watermark("ts", delay=f"{JITTER_SECONDS} s").rules(rules).correlate(rules, on="ts", output=output)
    made: hr.Job = alerts.select(*ALERT).to_file(str(place / "out"), format="json")
    return made


def written(place: Path) -> Alerts:
    """Return the alerts that a job has written."""
    return Counter(line for part in (place / "out").glob("*.json") for line in part.read_text().splitlines())


def _rules_of(event: Event, rules: list[str]) -> list[int]:
    return [
        place
        for place, name in enumerate(rules)
        if event["EventID"] in (CHANGED if event.get("changed") else RULES)[name]
    ]


def _value(event: Event, section: dict[str, Any], place: int, name: str) -> Any:
    aliases = section.get("aliases", {}).get(name, {})
    return event[aliases.get(section["rules"][place], name)]


def _alerts_of(name: str, section: dict[str, Any], events: list[Event], output: str) -> list[str]:
    """Go through the events of each group in the order of their times."""
    groups: dict[str, list[tuple[datetime, Event, dict[int, Any]]]] = {}
    for event in events:
        own: dict[str, dict[int, Any]] = {}
        for place in _rules_of(event, section["rules"]):
            key = {each: _value(event, section, place, each) for each in section["group-by"]}
            if None not in key.values():
                field = section.get("condition", {}).get("field")
                value = None if field is None else _value(event, section, place, field)
                own.setdefault(json.dumps(key, separators=(",", ":")), {})[place] = value
        for text, places in own.items():
            groups.setdefault(text, []).append((datetime.fromisoformat(event["ts"]), event, places))
    span = timedelta(seconds=int(section["timespan"][:-1]))
    found = []
    for text, members in groups.items():
        members.sort(key=lambda each: each[0])
        was: tuple[datetime, bool] = (BEGIN, False)
        for number, (at, event, _) in enumerate(members):
            window = [each for each in members[: number + 1] if each[0] >= at - span]
            count = _count(section, window)
            true = _is_true(section, count)
            if true and not (output == "first" and was[1] and was[0] >= at - span):
                start = window[0][0].isoformat(timespec="microseconds").replace("+00:00", "Z")
                values = (name, text, event["n"], count, len(window), start)
                found.append(json.dumps(dict(zip(ALERT, values, strict=True)), separators=(",", ":")))
            was = (at, true)
    return found


def _count(section: dict[str, Any], window: list[tuple[datetime, Event, dict[int, Any]]]) -> int:
    kind = section["type"]
    if kind == "event_count":
        return len(window)
    if kind == "value_count":
        first = [
            next((value for _, value in sorted(places.items()) if value is not None), None) for _, _, places in window
        ]
        return len({value for value in first if value is not None})
    if kind == "temporal":
        return len({place for _, _, places in window for place in places})
    done = 0
    for _, _, places in window:
        done += done in places
    return done


def _is_true(section: dict[str, Any], count: int) -> bool:
    if section["type"].startswith("temporal"):
        return count == len(section["rules"])
    tests = {"gte": int.__ge__, "gt": int.__gt__, "lte": int.__le__, "eq": int.__eq__}
    return all(tests[name](count, value) for name, value in section["condition"].items() if name != "field")
