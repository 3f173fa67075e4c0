"""Compiles every rule of a checkout of SigmaHQ/sigma, tries those that have recorded events, and writes a page of what came of it.

    HEADRACE_SIGMA=/path python -m tests.published.sigma [--page docs/sigma-results.md]

No text of a rule comes into the page. The exit code is 1 if less than 95 % of a group of rules compile, or if a rule does not
match an event that was recorded for it.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import sys
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import polars as pl
import yaml
from headrace.flow.schema import Schema
from headrace_columnar import dialect
from headrace_rules.engine import EngineOptions, RuleEngine
from headrace_rules.model import Rejection
from headrace_rules.prepared import Preparer
from headrace_rules.sigma import rule_of
from headrace_rules.sigma_fields import SigmaOptions
from sqlglot import exp

VARIABLE = "HEADRACE_SIGMA"
PART_MIN = 0.95
OPTIONS = SigmaOptions.of({"keywords": ["message"]})
#: The same for rows of several log sources: rules for events of Windows are put to these only.
ROUTED = SigmaOptions.of({"keywords": ["message"], "logsource": ["windows", {"product": "cisco", "service": "aaa"}]})


@dataclass
class Outcome:
    """What came of the rules."""

    tried: Counter[str] = field(default_factory=Counter)
    compiled: Counter[str] = field(default_factory=Counter)
    reasons: Counter[str] = field(default_factory=Counter)
    expressions: dict[str, str] = field(default_factory=dict)
    #: The same with the condition of the rows of their log source.
    routed: dict[str, str] = field(default_factory=dict)


def group_of(source: Mapping[str, Any]) -> str:
    """Return the group of a rule: its category, else its service, with its product."""
    kind = source.get("category") or source.get("service") or "any"
    return f"{source['product']}, {kind}" if source.get("product") else str(kind)


def documents(folder: Path) -> Iterator[tuple[Path, Mapping[str, Any]]]:
    """Yield the rules below the folders ``rules*``."""
    for path in sorted(folder.glob("rules*/**/*.yml")):
        for document in yaml.safe_load_all(path.read_text(encoding="utf-8")):
            if isinstance(document, Mapping) and "detection" in document:
                yield path, document


def schema_of(expression: str) -> Schema:
    """Return columns of texts, and structs of them, that a condition reads."""
    tree: dict[str, Any] = {}
    for column in dialect.parse(expression).find_all(exp.Column):
        place = tree
        for part in column.parts:
            place = place.setdefault(part.name, {})
    return Schema({name: _type_of(inner) for name, inner in tree.items()})


def _type_of(tree: Mapping[str, Any]) -> pl.DataType:
    return pl.Struct({name: _type_of(inner) for name, inner in tree.items()}) if tree else pl.String()


def compile_all(folder: Path) -> Outcome:
    """Compile every rule, each for columns of texts that are named as its fields."""
    outcome = Outcome()
    for path, document in documents(folder):
        group = group_of(document.get("logsource") or {})
        outcome.tried[group] += 1
        rule = rule_of(document, str(path.relative_to(folder)), OPTIONS)
        if isinstance(rule, Rejection):
            outcome.reasons[re.sub(r"%[^%\s]+%", "%…%", rule.reason)] += 1
            continue
        try:
            Preparer(schema_of(rule.expression)).prepare(rule.expression)
        except Exception as error:  # whatever it is, the page counts it
            outcome.reasons[str(error).splitlines()[0][:120]] += 1
            continue
        outcome.compiled[group] += 1
        outcome.expressions[rule.id] = rule.expression
        routed = rule_of(document, str(path), ROUTED) if ROUTED.applies(document.get("logsource")) else None
        if routed is not None and not isinstance(routed, Rejection):
            outcome.routed[rule.id] = routed.expression
    return outcome


def recorded(folder: Path) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield (rule id, fields of an event that was recorded for it): events of Windows as JSON, and lines."""
    for info in sorted(folder.glob("regression_data/**/info.yml")):
        told = yaml.safe_load(info.read_text(encoding="utf-8"))
        ids = [one["id"] for one in told.get("rule_metadata", ())]
        events = [fields_of(one["Event"]) for path in sorted(info.parent.glob("*.json")) for one in _values_of(path)]
        events += [
            {"message": line} for path in sorted(info.parent.glob("*.raw")) for line in path.read_text().splitlines()
        ]
        for rule_id in ids:
            for fields in events:
                yield rule_id, fields


def _values_of(path: Path) -> Iterator[Any]:
    """Yield the JSON values of a file, of which there may be several."""
    text, decoder, place = path.read_text(encoding="utf-8").strip(), json.JSONDecoder(), 0
    while place < len(text):
        value, place = decoder.raw_decode(text, place)
        yield value
        while place < len(text) and text[place].isspace():
            place += 1


def fields_of(event: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the fields of an event of Windows as rules name them: without the blanks that Defender's names have."""
    system = event["System"]
    fields = {"EventID": system.get("EventID"), "Channel": system.get("Channel"),
              "Provider_Name": system.get("Provider", {}).get("#attributes", {}).get("Name")}  # fmt: skip
    data = event.get("EventData") or event.get("UserData") or {}
    inner = next(iter(data.values())) if len(data) == 1 else None
    for name, value in (inner if isinstance(inner, dict) else data).items():
        fields[name] = value
        fields.setdefault(name.replace(" ", ""), value)
    return fields


def counted(folder: Path) -> dict[str, int]:
    """Return how many of its recorded events a rule matches at least, as those who recorded them say, where they do."""
    found = {}
    for info in sorted(folder.glob("regression_data/**/info.yml")):
        told = yaml.safe_load(info.read_text(encoding="utf-8"))
        counts = [test.get("match_count") for test in told.get("regression_tests_info") or ()]
        if len(told.get("rule_metadata", ())) == 1 and counts and None not in counts:
            found[told["rule_metadata"][0]["id"]] = sum(counts)
    return found


def unmatched(expressions: Mapping[str, str], folder: Path) -> tuple[int, list[str]]:
    """Put recorded events to their rules. Return how many rules have some, and what was wrong: rules that do not match as often as told."""
    tried, missed = 0, []
    events: dict[str, list[Mapping[str, Any]]] = defaultdict(list)
    for rule_id, fields in recorded(folder):
        events[rule_id].append(fields)
    told = counted(folder)
    for rule_id, listed in events.items():
        expression = expressions.get(rule_id)
        if expression is None:
            continue
        schema = schema_of(expression)
        rows = [{name: None if (value := one.get(name)) is None else str(value) for name in schema} for one in listed]
        frame = pl.DataFrame(rows, schema=dict(schema))
        engine = RuleEngine([expression], schema, {}, EngineOptions(cache=False, background=False))
        tried += 1
        found = len(engine.evaluate(frame).pairs)
        if found < max(1, told.get(rule_id, 1)):
            missed.append(f"{rule_id}: {found} of {len(listed)} events, told {told.get(rule_id)}")
    return tried, missed


#: The part of the page that benchmarks.sigma is the source of. It is kept as it is.
FIGURES = "## How fast they are"


def page(outcome: Outcome, tried: int, missed: int, before: str = "") -> str:
    """Return the page. ``before``: the page of now, whose figures are kept."""
    total, good = outcome.tried.total(), outcome.compiled.total()
    lines = [
        "# Rules that SigmaHQ publishes", "",
        "After this page you know which of the public Sigma rules headrace compiles. `make sigma` writes it, from a checkout of",
        "SigmaHQ/sigma that the variable `HEADRACE_SIGMA` names. The rules have a licence of their own and are not part of headrace.", "",
        f"{good:,} of {total:,} rules compile ({100 * good / total:.1f} %), with `keywords` given and without `placeholders`."
        " The columns are texts with the names of the fields.", "",
        f"SigmaHQ keeps events that were recorded for some rules. {tried - missed} of {tried} such rules match their events, with and"
        " without `logsource: windows`, as often as is told there or oftener. The blanks that Windows Defender has in the names of"
        " its fields were taken out, because rules name them so.", "",
        "## By log source", "", "| log source | rules | compile |", "|---|---|---|",
    ]  # fmt: skip
    few: Counter[bool] = Counter()
    for name, count in outcome.tried.most_common():
        if count >= 5:
            lines.append(f"| {name} | {count:,} | {outcome.compiled[name]:,} |")
        else:
            few[True] += count
            few[False] += outcome.compiled[name]
    lines += [f"| all others | {few[True]:,} | {few[False]:,} |", "", "## Why rules are refused", "",
              "| reason | rules |", "|---|---|"]  # fmt: skip
    lines += [f"| {reason.replace('|', chr(92) + '|')} | {count} |" for reason, count in outcome.reasons.most_common()]
    figures = before[before.index(FIGURES) :] if FIGURES in before else ""
    return "\n".join(lines) + "\n" + (f"\n{figures}" if figures else "")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--page", type=Path, default=Path("docs/sigma-results.md"))
    given = parser.parse_args()
    folder = Path(os.environ.get(VARIABLE, ""))
    if not os.environ.get(VARIABLE) or not (folder / "rules").is_dir():
        print(f"{VARIABLE} must name a checkout of SigmaHQ/sigma: a folder with 'rules'", file=sys.stderr)
        return 2
    outcome = compile_all(folder)
    tried, missed = unmatched(outcome.expressions, folder)
    routed, missed_routed = unmatched(outcome.routed, folder)
    missed += missed_routed + ([] if routed == tried else [f"{tried - routed} rules are for no log source"])
    before = given.page.read_text(encoding="utf-8") if given.page.exists() else ""
    given.page.write_text(page(outcome, tried, len(missed), before), encoding="utf-8")
    print(f"{outcome.compiled.total():,} of {outcome.tried.total():,} rules compile; {tried - len(missed)} of {tried} match"
          f" a recorded event; {given.page}")  # fmt: skip
    for rule_id in missed:
        print(f"does not match its event: {rule_id}")
    wide = [name for name, count in outcome.tried.items() if count >= 20 and outcome.compiled[name] < PART_MIN * count]
    for name in wide:
        print(f"less than {100 * PART_MIN:.0f} % compile: {name}")
    return 1 if missed or wide else 0


if __name__ == "__main__":
    sys.exit(main())
