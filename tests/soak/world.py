"""The servers of a soak, the instances of its jobs, and what can happen to both."""

from __future__ import annotations

import contextlib
import json
import os
import random
import secrets
import signal
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil

from tests.chaos.elastic_world import Instance
from tests.servers.elasticsearch import ElasticsearchServer
from tests.servers.kafka import KafkaServer
from tests.servers.mysql import MySQLServer
from tests.servers.rocketmq import RocketMQServer
from tests.servers.sharing import own_server
from tests.soak.faults import Fault
from tests.soak.feeding import Feed
from tests.soak.model import ALERT_EVERY, QUEUES
from tests.soak.stores import AlertTopic, Index, Tables

sys.path.append(str(Path(__file__).resolve().parents[2] / "connectors" / "kafka" / "tests"))

from kafka_world import KafkaWorld

_SERVER_KINDS: tuple[Any, ...] = (KafkaServer, MySQLServer, RocketMQServer, ElasticsearchServer)
#: How long a server is away at least when it is restarted.
_AWAY_SECONDS = 2.0
#: An instance that ends by itself so long after the last fault was not hit by it.
_BLAME_SECONDS = 120.0


@dataclass
class Running:
    """An instance, what it runs, and since when."""

    job: str
    instance: Instance
    since: float


@dataclass
class SoakWorld:
    """Everything that runs."""

    directory: Path
    servers: dict[str, Any]
    topic: str
    tables: Tables
    alerts: AlertTopic
    index: Index
    chance: random.Random
    spark: bool
    checkpoint_interval: str = "300 ms"
    running: list[Running] = field(default_factory=list)
    versions: int = 0
    done: Counter[str] = field(default_factory=Counter)
    #: Instances that ended by themselves soon after a fault, with the end of what they said.
    ended: list[tuple[str, str]] = field(default_factory=list)
    #: What happened: seconds since the beginning, and what.
    history: list[tuple[float, str]] = field(default_factory=list)
    begun: float = field(default_factory=time.monotonic)
    _started: int = 0
    _last_fault: float = 0.0

    @property
    def seconds(self) -> float:
        return time.monotonic() - self.begun

    @property
    def rules_file(self) -> Path:
        return self.directory / "rules.yaml"

    def note(self, what: str) -> None:
        """Tell and remember that something happens."""
        self.history.append((self.seconds, what))
        print(f"{self.seconds:8.1f} s  {what}", flush=True)

    # ------------------------------------------------------------------------------------------------- instances

    def start(self, job: str) -> None:
        """Start an instance of a job, without waiting for it."""
        self._started += 1
        name = f"{job}-{self._started}"
        kafka = {
            "topic": self.topic, "servers": self.servers["kafka"].bootstrap, "session_timeout": "6 s", "metadata_interval": "2 s",
        }  # fmt: skip
        given: dict[str, Any] = {"job": job, "kafka": kafka}
        run: dict[str, Any] = {
            "backend": "light", "checkpoint_interval": self.checkpoint_interval, "max_batch_records": 500, "retry_timeout": "10 min",
            "checkpoint": str(self.checkpoint_of(job, name)),
        }  # fmt: skip
        if job == "windows":
            # Its state is in topics: what each process has on its disk is its own.
            given["mysql"] = self.tables.options
            run |= {"reliability": "high", "shards": 3}
        elif job == "rules":
            given |= {"rocketmq": self.alerts.options, "rules_file": str(self.rules_file)}
            run["workers"] = 2
        else:
            given["elasticsearch"] = self.index.options
            if self.spark:
                run["backend"] = "spark"
                del run["checkpoint_interval"]
        instance = Instance({**given, "run": run}, self.directory / f"{name}.log", module="tests.soak.soak_job")
        instance.name = name
        self.running.append(Running(job, instance, time.monotonic()))

    def checkpoint_of(self, job: str, name: str) -> Path:
        """Return the directory of an instance: that of its job, or its own where the state is in topics."""
        return self.directory / (name if job == "windows" else job)

    def check_instances(self) -> None:
        """Start anew what has ended by itself. Raises AssertionError if no fault explains the end."""
        for each in list(self.running):
            code = each.instance.process.poll()
            if code is None:
                continue
            said = each.instance.printed[-1500:]
            assert time.monotonic() - self._last_fault < _BLAME_SECONDS, (
                f"{each.instance.name} ended with {code}:\n{said}"
            )
            self.note(f"{each.instance.name} has ended with {code}; a new one is started")
            self.ended.append((each.instance.name, said))
            self.running.remove(each)
            self.start(each.job)

    def replace_rules(self) -> None:
        """Write the next version of the rules: another id, the same events."""
        self.versions += 1
        new = self.rules_file.with_suffix(".new")
        new.write_text(json.dumps([{"id": f"version-{self.versions}", "expression": f"n % {ALERT_EVERY} = 0"}]))
        new.rename(self.rules_file)

    # --------------------------------------------------------------------------------------------------- faults

    def strike(self, fault: Fault) -> None:
        """Let one fault happen."""
        self._last_fault = time.monotonic()
        if "-" in fault.kind and fault.kind != "kill-worker":
            how, _, server = fault.kind.partition("-")
            self.note(f"{how} {server}")
            self._restart(server, clean=how == "restart")
        elif fault.kind == "rules":
            self.replace_rules()
            self.note(f"rules: version {self.versions}")
        else:
            self._hit(fault)
        self.done[fault.kind] += 1
        self._last_fault = time.monotonic()

    def _hit(self, fault: Fault) -> None:
        found = [each for each in self.running if each.job == fault.job and each.instance.process.poll() is None]
        if not found:
            return
        victim = self.chance.choice(found)
        self.note(f"{fault.kind} {victim.instance.name}")
        if fault.kind == "kill":
            victim.instance.kill()
            self._replace(victim)
        elif fault.kind == "stop":
            # What has not started yet reads no input: it would be stopped before it says so.
            if time.monotonic() - victim.since > 60:
                victim.instance.stop()
                self._replace(victim)
        elif fault.kind == "pause":
            with contextlib.suppress(ProcessLookupError):
                os.killpg(victim.instance.process.pid, signal.SIGSTOP)
                time.sleep(fault.pause_seconds)
                os.killpg(victim.instance.process.pid, signal.SIGCONT)
        else:
            self._kill_worker(victim)

    def _kill_worker(self, victim: Running) -> None:
        with contextlib.suppress(psutil.NoSuchProcess):
            children = psutil.Process(victim.instance.process.pid).children(recursive=True)
            workers = [child for child in children if "python" in child.name()]
            if workers:
                self.chance.choice(workers).kill()

    def _replace(self, victim: Running) -> None:
        self.running.remove(victim)
        self.start(victim.job)

    def _restart(self, name: str, *, clean: bool) -> None:
        server = self.servers[name]
        if clean:
            server.stop()
        else:
            server.kill()
        time.sleep(_AWAY_SECONDS)
        server.start()

    # ------------------------------------------------------------------------------------------------------ end

    def stop_all(self) -> None:
        """Let all instances end in order, and see that they do so well."""
        for each in list(self.running):
            each.instance.stop()
            self.running.remove(each)

    def kill_all(self) -> None:
        """End whatever runs."""
        for each in self.running:
            each.instance.kill()
        self.running.clear()


@contextmanager
def soak_world(directory: Path, seed: int, *, spark: bool, checkpoint_interval: str) -> Iterator[SoakWorld]:
    """Start servers, make topic, tables, index; all is gone at the end."""
    directory.mkdir(parents=True, exist_ok=True)
    with ExitStack() as stack:
        servers: dict[str, Any] = {kind.kind: stack.enter_context(own_server(kind)) for kind in _SERVER_KINDS}
        topic = f"soak_{secrets.token_hex(4)}"
        kafka = KafkaWorld(servers["kafka"].bootstrap)
        kafka.create_topic(topic, QUEUES)
        kafka.close()
        alerts, index = AlertTopic(servers["rocketmq"]), Index(servers["elasticsearch"])
        stack.callback(alerts.close)
        stack.callback(index.close)
        world = SoakWorld(
            directory,
            servers,
            topic,
            Tables(servers["mysql"]),
            alerts,
            index,
            random.Random(seed),
            spark,
            checkpoint_interval,
        )
        world.replace_rules()
        try:
            yield world
        finally:
            world.kill_all()


def feed_of(world: SoakWorld, per_second: int, bursts_per_second: int) -> Feed:
    """Begin to write events."""
    return Feed(world.servers["kafka"].bootstrap, world.topic, per_second, bursts_per_second)
