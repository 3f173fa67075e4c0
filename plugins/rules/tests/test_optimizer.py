"""Verbs over the same rows share one engine, and what comes out stays the same."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import headrace as hr
import pytest
from headrace.plan.graph import OperatorNode, Plan
from headrace.testing import MemorySink, MemorySource
from headrace_rules import preparing
from headrace_rules.prepared import Preparer
from headrace_rules.verb import EngineWhere, GroupedSpec, Rules

WORDS = ["alpha", "beta", "gamma", "delta", "epsilon", "zeta", "eta", "theta", "iota", "kappa"]
MANY = " OR ".join(f"a LIKE '%{word}%'" for word in WORDS)


def stream_of(values: list[Any], pipe: hr.Pipeline | None = None) -> hr.Stream:
    bodies = [json.dumps({"a": value, "n": number}).encode() for number, value in enumerate(values)]
    pipe = pipe or hr.stream("test", "optimizer")
    return pipe.from_(MemorySource({"q": bodies}), format="json", schema={"a": "string", "n": "int64"})


def grouped(plan: Plan) -> dict[str, GroupedSpec]:
    nodes = plan.of_kind(OperatorNode).items()
    return {node_id: node.spec for node_id, node in nodes if isinstance(node.spec, GroupedSpec)}


VALUES = ["an alpha", "none", None, "BETA", "beta gamma", "5", "x", ""]


def test_verbs_over_one_stream_share_an_engine() -> None:
    stream = stream_of(VALUES)
    sinks = [MemorySink() for _ in range(4)]
    job = hr.job(
        stream.rules({"r": "a LIKE '%alpha%'"}).to(sinks[0]),
        stream.rules({"s": "n = 4", "t": "a IS NULL"}, output="first").to(sinks[1]),
        stream.where("a LIKE '%gamma%'").to(sinks[2]),
        stream.where("n > 2").rules({"u": "n = 3"}).to(sinks[3]),
    )
    plan = job.plan()
    specs = grouped(plan)
    assert {node_id: type(spec) for node_id, spec in specs.items()} == {
        "rules": Rules, "rules-2": Rules, "where": EngineWhere, "rules-3": Rules
    }  # fmt: skip
    assert specs["rules"].group is specs["rules-2"].group is specs["where"].group
    assert specs["rules-3"].group is not specs["rules"].group  # it sees other rows
    assert [member.name for member in specs["rules"].group.members] == ["rules", "rules-2", "where"]
    assert set(Plan("test", "optimizer", job.sink_nodes).nodes) <= set(plan.nodes)  # ids stay
    job.run("light", max_batch_records=3)
    assert [[row["n"] for row in sink.rows] for sink in sinks] == [[0], [2, 4], [4], [3]]
    run = specs["rules"].group.run_for(stream.schema)  # type: ignore[arg-type]
    assert len(run.engine().conditions) == 4


def test_jobs_of_several_teams_read_their_source_once_and_share_an_engine(tmp_path: Path) -> None:
    (tmp_path / "in.ndjson").write_text("".join(json.dumps({"a": a, "n": n}) + "\n" for n, a in enumerate(VALUES)))
    sinks = [MemorySink() for _ in range(3)]

    def job(team: int, rule: str) -> hr.Job:
        stream = hr.stream("teams", f"team-{team}").from_file(
            tmp_path / "in.ndjson", format="json", schema={"a": "string", "n": "int64"}, name=f"events-of-{team}"
        )
        made: hr.Job = stream.rules({"r": rule}).to(sinks[team])
        return made

    both = hr.job(
        *(job(*each) for each in enumerate(["a LIKE '%alpha%'", "a LIKE '%gamma%'", "a = '5'"])), name="teams.all"
    )
    plan = both.plan()
    assert list(plan.sources) == ["events-of-0"]
    assert len({id(spec.group) for spec in grouped(plan).values()}) == 1
    assert both.run("light").records_read == len(VALUES)
    assert [[row["n"] for row in sink.rows] for sink in sinks] == [[0], [4], [5]]


@pytest.mark.parametrize(
    ("predicate", "taken"),
    [
        (MANY, True),
        (f"n >= 0 AND ({MANY})", True),
        ("a LIKE '%alpha%'", False),
        (f"NOT ({MANY})", False),
        (f"{MANY} OR n > 3", False),
        (f"({MANY}) AND CAST(substring(a, 4) AS int) IS NULL", True),
    ],
)
def test_a_condition_of_many_texts_uses_the_engine_unasked(predicate: str, taken: bool) -> None:
    rows = []
    for optimize in (True, False):
        sink, bad = MemorySink(), MemorySink()
        stream = stream_of(VALUES).dead_letters(lambda letters: letters.to(bad))  # noqa: B023
        job = stream.where(predicate if optimize else f"coalesce({predicate}, FALSE) IS TRUE").to(sink)
        assert bool(grouped(job.plan())) is (taken and optimize)
        job.run("light", max_batch_records=3)
        rows.append((sink.rows, [row["offset"] for row in bad.rows]))
    assert rows[0] == rows[1]


def test_chains_of_many_conditions_over_one_stream() -> None:
    stream = stream_of(VALUES)
    sinks = {word: MemorySink() for word in WORDS}
    job = hr.job(*(stream.where(f"a LIKE '%{word}%'").to(sink, name=word) for word, sink in sinks.items()))
    assert len({id(spec.group) for spec in grouped(job.plan()).values()}) == 1
    job.run("light")
    assert {word: len(sink.rows) for word, sink in sinks.items() if sink.rows} == {
        "alpha": 1,
        "beta": 1,
        "gamma": 1,
        "eta": 1,
    }


def test_polars_expressions_and_unknown_columns_are_left_alone() -> None:
    import polars as pl

    stream = stream_of(VALUES)
    job = hr.job(
        stream.where(pl.col("n") > 1).to(MemorySink()), stream.map(lambda row: row).where(MANY).to(MemorySink())
    )
    assert grouped(job.plan()) == {}


def test_functions_and_scanners_keep_verbs_apart() -> None:
    stream = stream_of(VALUES)
    job = hr.job(
        stream.rules({"r": "n = 1"}).to(MemorySink()), stream.rules({"r": "n = 2"}, scanner="polars").to(MemorySink())
    )
    first, second = grouped(job.plan()).values()
    assert first.group is not second.group


def test_sources_of_one_origin_are_read_once(tmp_path: Path) -> None:
    (tmp_path / "in.ndjson").write_text("".join(json.dumps({"a": value, "n": 1}) + "\n" for value in VALUES))

    def stream(path: str = "in.ndjson", **options: Any) -> hr.Stream:
        pipe = hr.stream("test", "origins")
        return pipe.from_file(tmp_path / path, format="json", schema={"a": "string", "n": "int64"}, **options)

    sinks = [MemorySink(), MemorySink()]
    job = hr.job(
        stream().rules({"r": "a LIKE '%alpha%'"}).to(sinks[0]), stream().rules({"s": "a LIKE '%beta%'"}).to(sinks[1])
    )
    plan = job.plan()
    assert list(plan.sources) == ["file"]
    first, second = grouped(plan).values()
    assert first.group is second.group
    assert job.run("light").records_read == len(VALUES)
    assert [[row["a"] for row in sink.rows] for sink in sinks] == [["an alpha"], ["beta gamma"]]
    others = [stream("*.ndjson"), stream(metadata={"at": "offset"}), stream(name="mine"), stream(max_body_bytes=1000)]
    for other in others:
        job = hr.job(stream().rules({"r": "n = 1"}).to(MemorySink()), other.rules({"s": "n = 2"}).to(MemorySink()))
        assert len(job.plan().sources) == 2
    plain = hr.job(stream().where("n = 1").to(MemorySink()), stream().where("n = 2").to(MemorySink()))
    assert len(plain.plan().sources) == 2  # without rules plans stay as they were written


def test_rules_are_prepared_once_for_building_a_job_and_running_it(monkeypatch: pytest.MonkeyPatch) -> None:
    parsed: list[str] = []
    parse = preparing.prepared

    def counted(text: str, preparer: Preparer) -> Any:
        parsed.append(text)
        return parse(text, preparer)

    monkeypatch.setattr(preparing, "prepared", counted)
    rules = {f"r{n}": f"a LIKE '%word {n}%'" for n in range(20)}
    for expected in (sorted(rules.values()), []):  # the second job finds what rules need on disk
        sink = MemorySink()
        stream_of(["word 7"]).rules(rules).to(sink).run("light")
        assert [row["rule_ids"] for row in sink.rows] == [["r7"]]
        assert sorted(parsed) == expected
        parsed.clear()
