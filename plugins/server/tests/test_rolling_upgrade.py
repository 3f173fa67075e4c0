"""Servers of two versions of headrace on one registry, as real processes: one after the other is upgraded, and goes back."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
from server_processes import make_environment
from shared_servers import SharedServers

JOBS = ("one", "two", "three", "four")
#: A later headrace: more columns and a table in the registry, more in what its processes tell.
LATER = """
import sys
if any("headrace" in each for each in sys.orig_argv):
    import headrace_server
    headrace_server.__version__ = "0.9.0"
    import sqlalchemy as sa
    from headrace_server.registry import tables
    for each in (tables.jobs, tables.servers, tables.runs):
        each.append_column(sa.Column("of_a_later_version", sa.Text, nullable=True))
    sa.Table("headrace_of_a_later_version", tables.metadata, sa.Column("name", sa.String(40), primary_key=True))
    from headrace_server.registry import schema
    schema.SCHEMA = {schema}
    schema.OLDEST_BESIDE = {oldest}
"""


def versions(servers: SharedServers) -> dict[str, str]:
    return {each["name"]: each["version"] for each in servers.ask("/v1/servers") if each["state"] != "away"}


def move_rows(servers: SharedServers) -> None:
    for job in JOBS:
        servers.add_events(job)
    servers.wait_for_rows()


@pytest.mark.slow
def test_one_server_after_the_other_is_upgraded_and_goes_back_while_rows_flow(
    servers: SharedServers, tmp_path: Path
) -> None:
    later = make_environment(tmp_path / "later", LATER.format(schema=1, oldest=1))
    for job in JOBS:
        servers.write_job(job)
    names = ("a", "b")
    for name in names:
        servers.add(name)
    balanced = {"a": 2, "b": 2}
    servers.wait_for_owners(lambda by: Counter(by.values()) == balanced, "two jobs on each server")
    today = servers.by_name["a"].python
    move_rows(servers)
    seen = []
    for python in (later, today):
        for name in names:
            server = servers.by_name[name]
            assert server.stop() == 0
            move_rows(servers)  # by the other one, of whichever version
            server.python = python
            server.begin()
            servers.wait_for_owners(lambda by: Counter(by.values()) == balanced, "two jobs on each server")
            move_rows(servers)
            seen.append(versions(servers))
    present = seen[-1]["a"]
    assert seen == [
        {"a": "0.9.0", "b": present}, {"a": "0.9.0", "b": "0.9.0"}, {"a": present, "b": "0.9.0"}, {"a": present, "b": present}
    ]  # fmt: skip
    # A job that a server of one version has stored is started, changed and shown by the other.
    assert {job["name"] for job in servers.ask()} == set(JOBS)
    assert all(run["outcome"] in (None, "stopped") for job in JOBS for run in servers.ask(f"/v1/jobs/{job}")["runs"])


@pytest.mark.slow
def test_servers_that_cannot_go_on_beside_each_other_are_refused_with_the_reason(
    servers: SharedServers, tmp_path: Path
) -> None:
    later = make_environment(tmp_path / "later", LATER.format(schema=2, oldest=2))
    servers.write_job("one")
    first = servers.add("a")
    servers.add_events("one")
    servers.wait_for_rows()
    today, first_name = first.python, "a"
    second = servers.make("b")
    second.python = later
    with pytest.raises(
        AssertionError, match=r"the server 'a' with headrace .* and cannot run together with headrace 0\.9\.0"
    ):
        second.begin()
    servers.add_events("one")
    servers.wait_for_rows()  # the first one was not disturbed
    assert first.stop() == 0
    second.begin()
    servers.add_events("one")
    servers.wait_for_rows()
    assert second.stop() == 0
    assert servers.by_name[first_name].python == today
    with pytest.raises(AssertionError, match=r"headrace 0\.9\.0 uses this registry, and headrace .* cannot read what"):
        first.begin()
