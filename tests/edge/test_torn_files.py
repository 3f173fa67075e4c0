"""A box that is killed at random and finds torn files at its next start: what it has answered is in SQLite, once."""

from __future__ import annotations

import json
import random
import sqlite3
import subprocess
import sys
import threading
from collections import Counter
from contextlib import closing
from pathlib import Path

import urllib3

from tests.edge.tearing import tear
from tests.eventually import eventually
from tests.servers.ports import release_ports, reserve_ports

JOB = str(Path(__file__).with_name("http_job.py"))
RECORDS = 100
KILLS = 3


class Sender:
    """Sends records until it is told to stop; each number in one request only, so that none can be stored twice by it."""

    def __init__(self, port: int) -> None:
        self.answered: list[int] = []
        self.stopped = False
        self._address = f"http://127.0.0.1:{port}/"
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        first = 0
        headers = {"content-type": "application/x-ndjson"}
        with urllib3.PoolManager(retries=False) as pool:
            while not self.stopped:
                numbers = range(first, first + RECORDS)
                body = "".join(json.dumps({"n": n, "pad": "x" * 100}) + "\n" for n in numbers).encode()
                try:
                    if pool.request("POST", self._address, body=body, headers=headers).status == 200:
                        self.answered += numbers
                except urllib3.exceptions.HTTPError:
                    threading.Event().wait(0.01)
                first += RECORDS

    def stop(self) -> None:
        self.stopped = True
        self._thread.join()


def test_what_was_answered_is_stored_once(tmp_path: Path) -> None:
    owner, chance = f"torn-{tmp_path.name}", random.Random(9)
    port = reserve_ports(1, owner)
    done: list[str] = []

    def started(how: str) -> subprocess.Popen[bytes]:
        with (tmp_path / "log").open("ab") as log:
            return subprocess.Popen([sys.executable, JOB, str(port), how], cwd=tmp_path, stderr=log)

    sender = Sender(port)
    try:
        for _ in range(KILLS):
            process = started("listen")
            wanted = len(sender.answered) + chance.randrange(RECORDS, 30 * RECORDS)
            try:
                eventually(lambda wanted=wanted: len(sender.answered) >= wanted, "records are answered")  # type: ignore[misc]
            finally:
                process.kill()
                process.wait()
            done += tear(tmp_path, chance)
    finally:
        sender.stop()
        release_ports(owner)
    assert started("end").wait() == 0, (tmp_path / "log").read_text()
    with closing(sqlite3.connect(tmp_path / "rows.db")) as database:
        found = Counter(n for (n,) in database.execute("SELECT n FROM rows"))
    assert set(sender.answered) <= set(found)
    assert max(found.values()) == 1
    assert (
        len(found) - len(sender.answered) <= KILLS * RECORDS
    )  # one request of each kill may be stored without an answer
    assert any(".log: " in each for each in done)
