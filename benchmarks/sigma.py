"""The rules of SigmaHQ together on one core: ``HEADRACE_SIGMA=/path python -m benchmarks.sigma``.

Five groups of rules, each over events of its kind, as ``logsource`` has it; and all rules as one, over all kinds of events: once as they
are, and once with the rows that their log source has, as ``logsource`` of several kinds of rows gives them; and so all rules of
a product over its events.
The columns are texts. One event in two hundred is one that SigmaHQ recorded for a rule. Seconds are CPU seconds of one
process with one thread of polars. ``--profile GROUP`` shows what costs.
"""

from __future__ import annotations

import argparse
import cProfile
import os
import pstats
import random
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

os.environ.setdefault("POLARS_MAX_THREADS", "1")

import polars as pl
from headrace.flow.schema import Schema
from headrace_columnar import dialect
from headrace_rules.engine import EngineOptions, RuleEngine
from headrace_rules.model import Rejection
from headrace_rules.sigma import rule_of
from headrace_rules.sigma_fields import SigmaOptions
from headrace_rules.sigma_sources import KEYS
from sqlglot import exp

from benchmarks.sigma_events import Events
from tests.published.sigma.__main__ import OPTIONS, documents, recorded

BATCH = 20_000
DISTINCT = 20_000
#: Which part of a fleet's events is of which kind.
SHARES = {"windows process creation": 0.25, "network": 0.25, "dns": 0.2, "web": 0.15, "linux": 0.15}


def group_of(source: Mapping[str, Any]) -> str | None:
    """Return the group of a rule by its log source; None: it is in none."""
    category, product, service = (source.get(name) for name in ("category", "product", "service"))
    if category == "process_creation" and product == "windows":
        return "windows process creation"
    if product == "linux":
        return "linux"
    if category in ("dns", "dns_query") or service in ("dns", "dns-client"):
        return "dns"
    if category in ("webserver", "proxy") or service == "http":
        return "web"
    if category in ("network_connection", "firewall") or product == "zeek":
        return "network"
    return None


@dataclass(frozen=True)
class Group:
    """Rules over the same events."""

    name: str
    rules: Sequence[str]
    frame: pl.DataFrame


def columns_of(rules: Sequence[str]) -> Schema:
    """Return columns of texts that conditions read; a field within a struct counts as one of its own name."""
    names = {
        column.name if len(column.parts) == 1 else ".".join(part.name for part in column.parts)
        for rule in rules
        for column in dialect.parse(rule).find_all(exp.Column)
    }
    return Schema({name: pl.String() for name in sorted(names)})


#: The column that says what an event is, where it is none of Windows.
KIND = "event_kind"


#: Which of all events are of a product; what SigmaHQ recorded is of Windows, as the events are among which it stands.
PRODUCTS: dict[str, Callable[[Mapping[str, Any]], bool]] = {
    "windows": lambda row: "Channel" in row,
    "linux": lambda row: row.get(KIND, "").startswith("linux/"),
}


def kind_of(source: Mapping[str, Any]) -> str:
    """Return the value of KIND for a log source."""
    return "/".join(str(source.get(name) or "").lower() for name in KEYS)


def sources_of_rows(folder: Path) -> SigmaOptions:
    """Return the options for rows of Windows, and of every other log source that a rule names."""
    sources: list[Any] = ["windows"]
    for kind, source in {kind_of(one): one for _, d in documents(folder) if (one := d.get("logsource"))}.items():
        named = {name: source[name] for name in KEYS if source.get(name)}
        if named and named.get("product") != "windows":
            sources.append({**named, "where": f"{KIND} = '{kind}'"})
    return SigmaOptions.of({"keywords": ["message"], "logsource": sources})


def product_of(source: Mapping[str, Any]) -> str | None:
    """Return the product of a rule's log source."""
    return source.get("product")


def rules_of(
    folder: Path,
    options: SigmaOptions = OPTIONS,
    group: Callable[[Mapping[str, Any]], str | None] = group_of,
) -> dict[str, dict[str, str]]:
    """Return the conditions of all rules by group (all others: ``other``) and id."""
    found: dict[str, dict[str, str]] = defaultdict(dict)
    for path, document in documents(folder):
        rule = rule_of(document, str(path), options)
        if isinstance(rule, Rejection) or not options.applies(document.get("logsource")):
            continue
        structs = any(len(column.parts) > 1 for column in dialect.parse(rule.expression).find_all(exp.Column))
        if not structs:
            found[group(document.get("logsource") or {}) or "other"][rule.id] = rule.expression
    return found


def groups_of(folder: Path) -> list[Group]:
    """Return the groups with their events, and all rules over all events as the last."""
    rules, events = rules_of(folder), Events()
    chance = random.Random(3)
    hits: dict[str, list[Mapping[str, Any]]] = defaultdict(list)
    for rule_id, fields in recorded(folder):
        hits[next((name for name in SHARES if rule_id in rules[name]), "other")].append(fields)
    made: list[Group] = []
    every: list[Mapping[str, Any]] = []
    for name, make in events.kinds().items():
        rows: list[Mapping[str, Any]] = [make() for _ in range(DISTINCT)]
        for place in range(0, DISTINCT if hits[name] else 0, 200):
            rows[place] = chance.choice(hits[name])
        every += [_with_kind(name, row) for row in chance.sample(rows, int(DISTINCT * SHARES[name]))]
        made.append(_group(name, list(rules[name].values()), rows))
    chance.shuffle(every)
    made.append(
        _group("all rules over all events", [text for found in rules.values() for text in found.values()], every)
    )
    products = rules_of(folder, sources_of_rows(folder), product_of)
    for product, is_of in PRODUCTS.items():
        rows = [row for row in every if is_of(row)]
        rows = (rows * (1 + DISTINCT // len(rows)))[:DISTINCT]
        made.append(_group(f"all rules of {product}", list(products[product].values()), rows))
    routed = rules_of(folder, sources_of_rows(folder))
    made.append(
        _group("all rules over events of their log source", [text for found in routed.values() for text in found.values()], every)
    )  # fmt: skip
    return made


def _with_kind(name: str, row: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return an event with the column that says of which log source it is."""
    if "Channel" in row:
        return row
    if name == "web":
        return {**row, KIND: "/webserver/" if len(row["cs-uri-stem"]) % 2 else "/proxy/"}
    if name == "linux":
        kind = "linux/process_creation/" if "Image" in row else "linux//auditd" if "syscall" in row else "linux//sshd"
        return {**row, KIND: kind}
    return row


def _group(name: str, rules: Sequence[str], rows: Sequence[Mapping[str, Any]]) -> Group:
    schema = columns_of(rules)
    texts = [{column: None if row.get(column) is None else str(row[column]) for column in schema} for row in rows]
    frame = pl.DataFrame(texts, schema=dict(schema))
    return Group(name, rules, pl.concat([frame] * (BATCH // frame.height)).rechunk())


def measured(group: Group, rounds: int, profile: bool) -> tuple[float, RuleEngine]:
    """Return the CPU seconds per event, the least of some rounds."""
    engine = RuleEngine(group.rules, Schema(group.frame.schema), {}, EngineOptions(cache=False, background=False))
    engine.evaluate(group.frame)
    engine.evaluate(group.frame)
    engine.figures.scan_seconds = engine.figures.verify_seconds = 0.0
    engine.figures.rows = 0
    engine.figures.candidates[:] = 0
    engine.figures.matches[:] = 0
    profiler = cProfile.Profile()
    times = []
    for _ in range(rounds):
        begun = time.process_time()
        if profile:
            profiler.runcall(engine.evaluate, group.frame)
        else:
            engine.evaluate(group.frame)
        times.append(time.process_time() - begun)
    if profile:
        pstats.Stats(profiler, stream=sys.stderr).sort_stats("tottime").print_stats(25)
        _show(engine, group)
    return min(times) / group.frame.height, engine


def _show(engine: RuleEngine, group: Group) -> None:
    plan = engine.plan
    assert plan is not None
    print(f"without trigger: {len(plan.everywhere)}", file=sys.stderr)
    for rule in plan.everywhere.tolist()[:60]:
        print("   ", group.rules[rule][:200].replace("\n", " "), file=sys.stderr)
    order = engine.figures.candidates.argsort()[::-1][:25]
    print("candidates per row, rule, trigger", file=sys.stderr)
    for rule in order.tolist():
        atoms = sorted(map(str, plan.atoms[rule] or ()))[:4]
        rate = engine.figures.candidates[rule] / engine.figures.rows
        print(f"  {rate:.4f} {group.rules[rule][:120]!r} {atoms}", file=sys.stderr)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--profile", default="", help="a group's name, or the beginning of it")
    given = parser.parse_args()
    folder = Path(os.environ["HEADRACE_SIGMA"])
    total, count = 0.0, 0
    if not any(folder.glob("rules/**/*.yml")):
        parser.error(f"HEADRACE_SIGMA names {folder}, which has no rules: it must be a checkout of SigmaHQ/sigma")
    for group in groups_of(folder):
        if given.profile and not group.name.startswith(given.profile):
            continue
        seconds, engine = measured(group, given.rounds, bool(given.profile))
        figures = engine.figures
        total += SHARES.get(group.name, 0.0) * seconds
        count += len(group.rules) if group.name in SHARES else 0
        assert engine.plan is not None
        print(
            f"{group.name}: {len(group.rules):,} rules, {group.frame.width} columns, {1 / seconds:,.0f} events/s; scan"
            f" {1e6 * figures.scan_seconds / figures.rows:.2f}, verify {1e6 * figures.verify_seconds / figures.rows:.2f} us per event;"
            f" {figures.candidates.sum() / figures.rows:.3f} candidates and {figures.matches.sum() / figures.rows:.4f} matches per event;"
            f" {len(engine.plan.everywhere)} rules without trigger",
            flush=True,
        )
    if not given.profile:
        print(f"by the shares of their events {dict(SHARES)}: {1 / total:,.0f} events/s, {count:,} rules")
    return 0


if __name__ == "__main__":
    sys.exit(main())
