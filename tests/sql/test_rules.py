"""WHERE with many patterns: the rule engine looks for all of them at once, and the rows are the same."""

# ruff: noqa: S608  # texts are put together from constants
from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import headrace as hr
import polars as pl
import pytest
from headrace.plan.explain import plan_as_text
from headrace.plan.graph import OperatorNode

PATTERNS = [*(f"/a{number}.sh" for number in range(5)), *(f"/tmp/{number}" for number in range(10, 16))]
COMMANDS = [f"curl http://x{n}/a{n % 7}.sh | sh" if n % 3 else f"ls -la /tmp/{n}" for n in range(300)]


def like(suffix: str = "") -> str:
    return " OR ".join(f"cmd LIKE '%{pattern}%'{suffix}" for pattern in PATTERNS)


def any_pattern(command: str) -> bool:
    return any(pattern in command for pattern in PATTERNS)


@pytest.fixture(autouse=True)
def commands() -> None:
    hr.register("c", pl.DataFrame({"cmd": [*COMMANDS, None], "n": [*range(len(COMMANDS)), None]}))


CASES: list[tuple[str, Callable[[str, int], bool]]] = [
    (like(), lambda command, n: any_pattern(command)),
    (like(" ESCAPE '!'"), lambda command, n: any_pattern(command)),
    (f"({like()}) AND n > 50", lambda command, n: any_pattern(command) and n > 50),
    (f"({like()}) AND NOT n > 50", lambda command, n: any_pattern(command) and n <= 50),
    (f"{like()} OR LOWER(cmd) LIKE '%x29%'", lambda command, n: any_pattern(command) or "x29" in command),
    (f"cmd SIMILAR TO '(ls|cp)%' OR {like()}", lambda command, n: any_pattern(command) or command.startswith("ls")),
    (
        " OR ".join(f"REGEXP(cmd, 'x{number}[0-9]/a{number}[.]sh')" for number in range(8)),
        lambda command, n: any(f"x{k}{i}/a{k}.sh" in command for k in range(8) for i in range(10)),
    ),
]


@pytest.mark.parametrize(("condition", "wanted"), CASES)
def test_many_patterns_go_to_the_rule_engine(condition: str, wanted: Callable[[str, int], bool]) -> None:
    job = hr.sql(f"SELECT n FROM c WHERE {condition}")
    assert "EngineWhere" in [type(node.spec).__name__ for node in job.plan().of_kind(OperatorNode).values()]
    assert job.collect()["n"].to_list() == [n for n, command in enumerate(COMMANDS) if wanted(command, n)]


def test_explain_tells() -> None:
    few = hr.sql("SELECT n FROM c WHERE cmd LIKE '%a%' OR cmd LIKE '%b%'")
    many = hr.sql(f"SELECT n FROM c WHERE {like()}")
    assert "rule engine" not in plan_as_text(few.plan())
    assert "rule engine" in plan_as_text(many.plan())


def test_wheres_of_several_inserts_share_an_engine(tmp_path: Path) -> None:
    inserts = "".join(
        f"CREATE TABLE s{at} (n BIGINT) WITH ('connector' = 'blackhole');"
        f"INSERT INTO s{at} SELECT n FROM c WHERE cmd LIKE '%{pattern}%' OR cmd LIKE '%{pattern}0%';"
        for at, pattern in enumerate(PATTERNS)
    )
    job = hr.sql(inserts)
    specs = [node.spec for node in job.plan().of_kind(OperatorNode).values()]
    groups = {id(spec.group) for spec in specs if type(spec).__name__ == "EngineWhere"}
    assert len(groups) == 1
    found = job.collect()
    for at, pattern in enumerate(PATTERNS):
        assert found[f"s{at}"]["n"].to_list() == [n for n, command in enumerate(COMMANDS) if pattern in command]
