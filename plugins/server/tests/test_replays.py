"""Replays of dead letters on a real server: one at a time, also across the death of a server."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from headrace.foundation.errors import JobError
from server_processes import ServerProcess

from tests.eventually import eventually

#: Bodies that the first version refuses and the second one takes; a replay of it waits for a file.
JOB = """
import pathlib, threading
import headrace as hr

def held(row):
    pathlib.Path({root!r}, "sending").touch()
    while not pathlib.Path({root!r}, "go").exists():
        threading.Event().wait(0.02)
    return {{"n": int(row["n"])}}

job = (hr.stream("test", "copy").from_file({events!r}, format="json", schema={{"n": {kind!r}}}){held}
       .to_file({out!r}, format="json"))
"""


def write_job(server: ServerProcess, kind: str) -> None:
    held = "" if kind == "int64" else ".map(held, schema={'n': 'int64'})"
    text = JOB.format(root=str(server.root), events=str(server.events), out=str(server.out), kind=kind, held=held)
    (server.jobs / "job.yaml").write_text("health_window: 300 ms\n")
    (server.jobs / "copy.py").write_text(text)


@pytest.fixture
def server(tmp_path: Path) -> Iterator[ServerProcess]:
    made = ServerProcess(tmp_path)
    yield made
    (tmp_path / "go").touch()  # a replay that a failed test has left must end
    made.clean_up()


def replay(server: ServerProcess) -> Any:
    letters = server.client.ask("GET", "/v1/jobs/copy/dead-letters")["letters"]
    return server.client.ask("POST", "/v1/jobs/copy/dead-letters/replay", {"letters": [each["id"] for each in letters]})


def begin_with_letters(server: ServerProcess) -> None:
    """Run a job until it has two dead letters, and roll out the version that takes them."""
    write_job(server, "int64")
    server.events.write_text('{"n": "01"}\n{"n": "02"}\n')
    server.start()
    eventually(
        lambda: server.wait_for_state("running")["figures"]["dead_letters"] == 2, "dead letters", shown=server.log
    )
    write_job(server, "string")
    server.wait_for_state("running", version=2)


def test_of_two_replays_one_is_refused_at_the_same_moment_later_and_by_the_next_server(server: ServerProcess) -> None:
    begin_with_letters(server)

    def begun() -> str:
        try:
            return str(replay(server)["state"])
        except JobError as error:
            return str(error)

    with ThreadPoolExecutor(max_workers=2) as pool:
        said = [each.result() for each in [pool.submit(begun), pool.submit(begun)]]
    assert ["being replayed at the moment" in each for each in sorted(said, key=len)] == [False, True], said
    states = [each["state"] for each in server.client.ask("GET", "/v1/operations") if each["kind"] == "replay"]
    assert len(states) == 1
    eventually((server.root / "sending").exists, "the replay runs", shown=server.log)
    with pytest.raises(JobError, match="being replayed at the moment"):
        replay(server)
    server.kill()  # the process that sends lives on
    server.start()
    server.wait_for_state("running")
    with pytest.raises(JobError, match="being replayed at the moment"):
        replay(server)
    (server.root / "go").touch()
    eventually(lambda: sum(server.rows().values()) >= 2, "rows", shown=server.log)

    def refused() -> str:
        with pytest.raises(JobError) as error:
            replay(server)
        assert "at the moment" in str(error.value) or "already replayed" in str(error.value)
        return str(error.value) if "already replayed" in str(error.value) else ""

    eventually(refused, "the lock is free, and the letters are known as sent", shown=server.log)
    assert server.rows() == Counter([1, 2])
