"""What a team installs on its first day, in one pipeline without code: rotated logs of two kinds, grok, a preset with the names of the
Elastic Common Schema, a rule of Sigma, a webhook and Elasticsearch. It is killed while its logs are written and rotated.
"""

from __future__ import annotations

import gzip
import json
import os
import random
import shutil
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from receiver import OK, Receiver, Reply, Request

from tests.eventually import eventually
from tests.integration.stored_documents import stored_documents
from tests.servers.elasticsearch import ElasticsearchServer

pytestmark = [pytest.mark.servers, pytest.mark.timeout(600)]
PIPELINE = r"""
name: day-one
namespace: tests
sources:
  traces:
    connector: file
    path: ${LOGS}/app.log
    format: raw
    schema: {line: string}
    first_line: '^\d{4}-\d\d-\d\d '
    rotate_wait: 200 ms
    last_line_timeout: 5 s
  requests:
    connector: file
    path: ${LOGS}/access.log
    format: nginx-access
    fields: ecs
    rotate_wait: 200 ms
steps:
  - from: traces
    parse: {grok: '^%{TIMESTAMP_ISO8601:at} %{LOGLEVEL:level} %{WORD:service} ', on: line}
  - select: ['CAST(at AS TIMESTAMP) AS "@timestamp"', 'level AS "log.level"', 'service AS "service.name"', 'line AS message']
    as: app
  - from: requests
    rules:
      file: ${HERE}/rules.yml
      sigma: {fields: {cs-uri-query: '"url.original"'}, logsource: {category: webserver}}
      output: tag
    as: tagged
  - from: tagged
    where: '"rule_ids"[1] IS NOT NULL'
    as: alerts
sinks:
  app: {from: app, connector: elasticsearch, url: "${ELASTICSEARCH}", index: "${INDEX}-app", create_index: true, flush_interval: 100 ms}
  web: {from: tagged, connector: elasticsearch, url: "${ELASTICSEARCH}", index: "${INDEX}-web", create_index: true, flush_interval: 100 ms}
  alerts: {from: alerts, connector: http, url: "${WEBHOOK}", flush_interval: 100 ms, retry_after_max: 1 s}
dead_letters: {connector: file, path: "${HERE}/bad", format: json}
"""
RULES = """
title: A password file is asked for
id: passwords
level: high
logsource: {category: webserver}
detection: {selection: {cs-uri-query|contains: /etc/passwd}, condition: selection}
"""


class _Log:
    """A log of records that logrotate treats with copytruncate and compress, between two records as long as it holds still."""

    def __init__(self, path: Path) -> None:
        self._path = path
        path.touch()

    def write(self, text: str) -> None:
        with self._path.open("a") as file:
            file.write(text)

    def rotate(self) -> None:
        """Move the rotated ones on, all but the newest compressed, and begin the log anew."""
        for number in range(30, 0, -1):
            for suffix in ("", ".gz"):
                old = self._path.with_name(f"{self._path.name}.{number}{suffix}")
                if old.exists():
                    self._move(old, self._path.with_name(f"{self._path.name}.{number + 1}.gz"))
        shutil.copy2(self._path, self._path.with_name(f"{self._path.name}.1"))
        os.truncate(self._path, 0)

    @staticmethod
    def _move(old: Path, new: Path) -> None:
        if old.suffix == ".gz":
            old.rename(new)
            return
        made = new.with_name(f"{new.name}.tmp")
        made.write_bytes(gzip.compress(old.read_bytes()))
        shutil.copystat(old, made)
        made.rename(new)
        old.unlink()


class _Writer:
    """Writes both logs, and rotates them at random moments, when the job has read enough to lose nothing by copytruncate."""

    def __init__(self, directory: Path, seed: int) -> None:
        self._chance = random.Random(seed)
        self.traces, self.paths, self.broken = list[str](), list[str](), 0
        self._app, self._access = _Log(directory / "app.log"), _Log(directory / "access.log")

    def write(self, records: int) -> None:
        for _ in range(records):
            number = len(self.traces)
            lines = [f"2026-01-15 10:23:{number % 60:02d} ERROR shop failed {number}"]
            lines += [f"  at frame {frame} of {number}" for frame in range(number % 4)]
            self.traces.append("\n".join(lines))
            self._app.write(self.traces[-1] + "\n")
            path = f"/item/{number}" if number % 7 else f"/get?file=../../etc/passwd&n={number}"
            self.paths.append(path)
            self._access.write(
                f'192.0.2.7 - ida [15/Jan/2026:10:23:45 +0000] "GET {path} HTTP/1.1" 200 512 "-" "curl/8.5.0"\n'
            )
            if self._chance.random() < 0.05:
                self.broken += 1
                self._access.write(f"broken {self.broken}\n")

    def rotate(self) -> None:
        self._app.rotate()
        self._access.rotate()


class _World:
    """The servers around the pipeline, and its process."""

    def __init__(self, place: Path, elasticsearch: str, index: str) -> None:
        self.place, self._elasticsearch, self._index = place, elasticsearch, index
        (place / "pipeline.yaml").write_text(PIPELINE)
        (place / "rules.yml").write_text(RULES)
        (place / "logs").mkdir()
        self._answers = random.Random(1)
        self.receiver = Receiver(self._answer)

    def _answer(self, request: Request) -> Reply:
        return self._answers.choice([OK, OK, (500, {}, b"try again")])

    def command(self, until: str) -> list[str]:
        given = {
            "LOGS": self.place / "logs", "ELASTICSEARCH": self._elasticsearch, "INDEX": self._index, "WEBHOOK": self.receiver.url
        }  # fmt: skip
        sets = [part for name, value in given.items() for part in ("--set", f"{name}={value}")]
        options = ["-o", "checkpoint_interval=200 ms"] if until == "never" else []
        begin = [sys.executable, "-m", "headrace_console.command", "run", "pipeline.yaml", "--backend", "light"]
        return [*begin, "--until", until, "--checkpoint", "state", *options, *sets]

    @contextmanager
    def running(self) -> Iterator[None]:
        """Run it until the end of the block, and kill it there."""
        with (self.place / "log.txt").open("ab") as log:
            process = subprocess.Popen(self.command("never"), cwd=self.place, stdout=log, stderr=log)
        try:
            yield
            assert process.poll() is None, (self.place / "log.txt").read_text()[-3000:]
        finally:
            process.send_signal(signal.SIGKILL)
            process.wait()

    def documents(self, kind: str) -> list[dict[str, Any]]:
        return stored_documents(self._elasticsearch, f"{self._index}-{kind}")


@pytest.fixture
def world(tmp_path: Path, elasticsearch_server: ElasticsearchServer, index_name: str) -> Iterator[_World]:
    made = _World(tmp_path, elasticsearch_server.url, index_name)
    yield made
    made.receiver.stop()


@pytest.mark.parametrize(("seed", "kills"), [(1, 2), pytest.param(2, 6, marks=pytest.mark.slow)])
def test_every_record_is_there_once_though_logs_are_rotated_and_the_pipeline_is_killed(
    world: _World, seed: int, kills: int
) -> None:
    writer, chance = _Writer(world.place / "logs", seed), random.Random(seed)
    for _ in range(kills):
        with world.running():
            for _ in range(chance.randrange(2, 4)):
                seen = len(world.documents("web"))
                writer.write(chance.randrange(30, 80))
                eventually(lambda: len(world.documents("web")) > seen, "documents come", seconds=240, pause_seconds=0.5)  # noqa: B023
                writer.write(chance.randrange(1, 20))
                writer.rotate()
                writer.write(chance.randrange(1, 20))
        writer.write(chance.randrange(1, 20))
        if chance.random() < 0.5:
            writer.rotate()  # while nobody reads
            writer.write(chance.randrange(1, 20))
    for _ in range(2):  # the second run finds nothing more
        done = subprocess.run(world.command("end"), cwd=world.place, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr[-3000:]
    assert Counter(each["message"] for each in world.documents("app")) == Counter(writer.traces)
    web = world.documents("web")
    assert Counter(each["url.original"] for each in web) == Counter(writer.paths)
    found = {each["url.original"] for each in web if each["rule_ids"]}
    assert found == {path for path in writer.paths if "passwd" in path}
    assert {row["url.original"] for row in world.receiver.rows()} == found
    letters = [
        json.loads(line) for part in (world.place / "bad").glob("*.json") for line in part.read_bytes().splitlines()
    ]
    assert len(letters) == writer.broken
