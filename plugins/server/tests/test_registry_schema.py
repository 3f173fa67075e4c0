"""The registry of an earlier headrace: today's servers use it, and earlier ones go on beside them. Or they are refused, with the reason.

``HEADRACE_KEEP_SCHEMA=VERSION pytest ...`` writes the tables of today as those of a version that is released.
"""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import msgspec
import pytest
import sqlalchemy as sa
from fake_servers import FakeServers
from headrace.foundation.clock import ManualClock
from headrace.foundation.errors import OptionError
from headrace_lease.sql_store import TABLE as LEASES
from headrace_server.access import metadata as access_tables
from headrace_server.registry import schema
from headrace_server.registry.database import Registry
from headrace_server.registry.engines import open_engine
from headrace_server.registry.records import Desired, JobStatusRecord, RunnerNote
from headrace_server.registry.schema import check_schema, claim_schema
from headrace_server.registry.shared import SharedTables
from headrace_server.registry.tables import metadata
from headrace_server.schedules import metadata as schedule_tables
from shared_servers import database_url
from sqlalchemy.dialects import mysql, postgresql, sqlite
from sqlalchemy.schema import CreateColumn

KEPT = Path(__file__).parent / "registry_schemas"
DIALECTS: dict[str, sa.Dialect] = {
    "sqlite": sqlite.dialect(),
    "mysql": mysql.dialect(),
    "postgresql": postgresql.dialect(),  # type: ignore[no-untyped-call]
}


def today() -> dict[str, dict[str, dict[str, Any]]]:
    """Return the tables of this version: by table and column, its definition in each dialect."""
    found: dict[str, dict[str, dict[str, Any]]] = {}
    for table in (*metadata.sorted_tables, *access_tables.sorted_tables, *schedule_tables.sorted_tables, LEASES):
        for column in table.columns:
            definitions = {
                name: str(CreateColumn(column).compile(dialect=dialect)) for name, dialect in DIALECTS.items()
            }
            found.setdefault(table.name, {})[column.name] = {
                **definitions, "key": column.primary_key, "empty": bool(column.nullable or column.server_default)
            }  # fmt: skip
    return found


if (version := os.environ.get("HEADRACE_KEEP_SCHEMA")) is not None:
    (KEPT / f"{version}.json").write_text(json.dumps(today(), indent=1, sort_keys=True) + "\n")
VERSIONS = sorted(each.stem for each in KEPT.glob("*.json"))


def kept(version: str) -> dict[str, dict[str, dict[str, Any]]]:
    found: dict[str, dict[str, dict[str, Any]]] = json.loads((KEPT / f"{version}.json").read_text())
    return found


def test_tables_of_a_version_are_kept() -> None:
    assert VERSIONS


@pytest.mark.parametrize("version", VERSIONS)
def test_nothing_is_changed_and_what_is_new_may_be_empty(version: str) -> None:
    now = today()
    for table, columns in kept(version).items():
        for name, definition in columns.items():
            assert now[table][name] == definition, f"{table}.{name}: servers of {version} read and write it as it was"
        for name in now[table].keys() - columns.keys():
            assert now[table][name]["empty"], f"{table}.{name}: servers of {version} leave it empty"
            assert not now[table][name]["key"]


@pytest.fixture(
    params=[
        "sqlite",
        pytest.param("mysql", marks=pytest.mark.servers),
        pytest.param("postgresql", marks=pytest.mark.servers),
    ]
)
def engine(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[sa.Engine]:
    made = open_engine(database_url(request, request.param, tmp_path))
    yield made
    made.dispose()


def make_old_tables(engine: sa.Engine, version: str, *, without: tuple[str, ...] = ()) -> None:
    """Make the tables of a version, as it has made them."""
    for table, columns in kept(version).items():
        parts = [each[engine.dialect.name] for name, each in columns.items() if f"{table}.{name}" not in without]
        keys = ", ".join(name for name, each in columns.items() if each["key"])
        with engine.begin() as transaction:
            transaction.exec_driver_sql(f"CREATE TABLE {table} ({', '.join(parts)}, PRIMARY KEY ({keys}))")


def test_servers_that_start_at_the_same_moment_make_the_tables_together(engine: sa.Engine) -> None:
    count, begin = 6, threading.Barrier(6)

    def start() -> None:
        own = open_engine(engine.url.render_as_string(hide_password=False))
        begin.wait()
        Registry(own, ManualClock(), further=[access_tables, schedule_tables])
        own.dispose()

    with ThreadPoolExecutor(count) as pool:
        for each in [pool.submit(start) for _ in range(count)]:
            each.result()
    assert set(today()) - {LEASES.name} <= set(sa.inspect(engine).get_table_names())


@pytest.mark.parametrize("version", VERSIONS)
def test_an_earlier_server_goes_on_beside_a_new_one(engine: sa.Engine, version: str) -> None:
    """The tables are those of an earlier version, less some columns, as if these were new now."""
    new = ("headrace_jobs.starts", "headrace_jobs.offered_version", "headrace_servers.schema", "headrace_units.cores")
    make_old_tables(engine, version, without=new)
    with engine.begin() as transaction:
        transaction.execute(
            sa.text(
                "INSERT INTO headrace_jobs (name, desired, present, labels, unit) VALUES ('old', 'running', :yes, '{}', 'old')"
            ),
            {"yes": True},
        )
    registry = Registry(engine, ManualClock(1_000_000.0), further=[access_tables, schedule_tables], server="new")
    columns = {column["name"] for column in sa.inspect(engine).get_columns("headrace_jobs")}
    assert {"starts", "offered_version"} <= columns
    [job] = registry.jobs()
    assert (job.name, job.desired, job.offered_version, job.starts) == ("old", Desired.RUNNING, None, None)
    registry.count_start("old")
    registry.add_job("new", desired=Desired.STOPPED, labels={"team": "a"}, unit="new")
    with engine.begin() as transaction:  # as the earlier one goes on: it knows nothing of the new columns
        transaction.execute(
            sa.text("INSERT INTO headrace_servers (name, pid, started_seconds) VALUES ('before', 1, 1000000.5)")
        )
        added = sa.text("INSERT INTO headrace_units (unit, server, epoch, busy) VALUES ('old', 'before', 0, :no)")
        transaction.execute(added, {"no": False})
        transaction.execute(sa.text("UPDATE headrace_jobs SET desired = 'paused' WHERE name = 'old'"))
        names = transaction.execute(sa.text("SELECT name, desired FROM headrace_jobs ORDER BY name")).all()
    assert [tuple(each) for each in names] == [("new", "stopped"), ("old", "paused")]
    assert registry.job("old").starts == 1
    tables = SharedTables(engine)
    assert tables.units()["old"].server == "before"
    assert [(each.name, each.started_seconds) for each in tables.servers()] == [("before", 1000000.5)]
    Registry(engine, ManualClock(), further=[access_tables, schedule_tables])  # and once more


#: What earlier versions have written as JSON into columns.
RUNNER = b'{"server":"a","machine":"m","pid":7,"generation":"g","specification":"/s","socket":"/k","token":3}'
STATUS = b'{"state":"running","pid":7,"failures":0,"figures":{"records_read":1}}'


def test_what_is_stored_as_json_is_read_by_both() -> None:
    assert msgspec.json.decode(RUNNER, type=RunnerNote).token == 3
    assert msgspec.json.decode(STATUS, type=JobStatusRecord).pid == 7
    for text, kind in ((RUNNER, RunnerNote), (STATUS, JobStatusRecord)):
        later = text.replace(b"{", b'{"of_a_later_version":[1],', 1)
        assert msgspec.json.decode(later, type=kind) == msgspec.json.decode(text, type=kind)
        known = msgspec.json.decode(msgspec.json.encode(msgspec.json.decode(text, type=kind)))
        assert known.keys() >= msgspec.json.decode(text).keys()


def test_a_registry_that_a_later_headrace_uses_in_another_way_is_refused(
    engine: sa.Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    Registry(engine, ManualClock())
    claim_schema(engine, "0.1.0", ())
    check_schema(engine, "0.1.0")
    with monkeypatch.context() as later:
        later.setattr(schema, "SCHEMA", 2)
        later.setattr(schema, "OLDEST_BESIDE", 2)
        claim_schema(engine, "0.9.0", ())
        claim_schema(engine, "0.9.0", ())
        check_schema(engine, "0.9.0")
    with pytest.raises(
        OptionError, match=r"headrace 0\.9\.0 uses this registry, and headrace 0\.1\.0 cannot read what"
    ):
        check_schema(engine, "0.1.0")
    before = sa.inspect(engine).get_table_names()
    with pytest.raises(OptionError, match="upgrade headrace on this server"):
        Registry(engine, ManualClock(), further=[access_tables])
    assert sa.inspect(engine).get_table_names() == before  # nothing was made


def test_a_later_headrace_is_refused_while_one_runs_that_cannot_go_on_beside_it(
    engine: sa.Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    registry = Registry(engine, ManualClock())
    claim_schema(engine, "0.1.0", ())
    registry.note_server("a", pid=1, url=None)
    SharedTables(engine).change_server("a", version="0.1.0")
    monkeypatch.setattr(schema, "SCHEMA", 2)
    monkeypatch.setattr(schema, "OLDEST_BESIDE", 2)
    with pytest.raises(
        OptionError, match=r"the server 'a' with headrace 0\.1\.0 runs on this registry, and cannot run together"
    ):
        claim_schema(engine, "0.9.0", ["a"])
    monkeypatch.undo()
    check_schema(engine, "0.1.0")  # the refused one has changed nothing
    SharedTables(engine).change_server("a", schema=None)  # one from before that was noted
    monkeypatch.setattr(schema, "OLDEST_BESIDE", 2)
    with pytest.raises(OptionError, match="runs on this registry"):
        claim_schema(engine, "0.9.0", ["a"])
    claim_schema(engine, "0.9.0", ["b"])


def test_a_job_of_a_later_headrace_is_refused_by_this_one_and_disturbs_no_other(tmp_path: Path) -> None:
    """Its settings have something that only the later one knows, such as a new limit: to run it without would be wrong."""
    world = FakeServers(tmp_path)
    try:
        world.add("a")
        world.write("later", settings="")
        world.write("other")
        world.pass_time(8)
        registry = world.by_name["a"].registry
        assert len(world.runners()) == 2
        stored = json.loads(registry.version("later", 1).settings) | {"limit_of_a_later_version": 7}
        number = registry.next_version("later")
        record = msgspec.structs.replace(registry.version("later", 1), number=number, settings=json.dumps(stored))
        registry.add_version(record)
        registry.change_job("later", current_version=number, desired="scheduled")
        for _, runner in world.runners():
            runner.kill()
        world.pass_time(20)
        assert registry.job("later").desired is Desired.SCHEDULED  # whether it has a schedule is not known here
        registry.change_job("later", desired="running")
        world.pass_time(40)
        [(_, runner)] = world.runners()
        assert [each.name for each in runner.specification.jobs] == ["other"]
        assert "a newer headrace has stored its version 2" in str(registry.job("later").problem)
        assert "limit_of_a_later_version" in str(registry.job("later").problem)
    finally:
        world.close()
