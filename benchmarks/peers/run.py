"""The jobs of other stream processors on the same data, in one run with headrace light: one pinned core, all warm.

    python -m benchmarks.peers.run [--environments DIR] [--directory DIR] [--core 0] [--only rules|windows|kafka]

Job A: JSON security events from a file, those that match any of 41 or 1,000 rules to a file with the ids of the rules.
Job B: small JSON events, 100,000 Zipf keys, count and sum per key in tumbling windows of 10 s of event time, from a file to
files; for Quix Streams, which reads nothing but Kafka, from and to topics.
Each peer runs in an environment of its own, made from its requirements file here. Peers that are slow are given the first
part of the data. What it prints, and appends to the file ``--results``, is JSON lines; ``python -m benchmarks.peers.page`` makes
docs/benchmarks-peers.md of them.
"""

from __future__ import annotations

import argparse
import json
import os
import secrets
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from itertools import islice
from pathlib import Path
from typing import Any

from benchmarks.measure import ROOT, measure

HERE = Path(__file__).parent
RULE_COUNTS = (41, 1_000)
#: Messages that each is given. A run should take seconds.
RULE_MESSAGES = {
    "headrace": {41: 400_000, 1_000: 400_000},
    "plain": {41: 100_000, 1_000: 10_000},
    "bytewax": {41: 100_000, 1_000: 10_000},
    "pyflink": {41: 400_000, 1_000: 10_000},
}
WINDOW_MESSAGES = {"headrace": 2_000_000, "plain": 2_000_000, "bytewax": 100_000, "pyflink": 2_000_000}
KAFKA_MESSAGES = 200_000


def environment(name: str, directory: Path) -> str:
    """Return the Python of a peer's environment, made when it is missing."""
    place = directory / name
    if not place.exists():
        subprocess.run([sys.executable, "-m", "venv", str(place)], check=True)
        requirements = HERE / f"requirements-{name}.txt"
        subprocess.run([f"{place}/bin/python", "-m", "pip", "install", "-q", "-r", str(requirements)], check=True)
    return f"{place}/bin/python"


def peer(python: str, script: str, *arguments: str, core: int) -> dict[str, Any]:
    """Run a peer's script on one core and return what it printed last; its error when it fails."""
    done = subprocess.run(
        [python, str(HERE / f"{script}_job.py"), *arguments],
        capture_output=True,
        check=False,
        preexec_fn=lambda: os.sched_setaffinity(0, {core}),
        env={**os.environ, "PYTHONPATH": ""},
    )
    if done.returncode:
        return {"error": done.stderr.decode(errors="replace")[-3000:]}
    return dict(json.loads(done.stdout.decode().strip().splitlines()[-1]))


def own(*arguments: str, core: int) -> dict[str, Any]:
    """Run one of our own measurements in the same way."""
    environment_ = {"POLARS_MAX_THREADS": "1"}
    return dict(measure("benchmarks.peers.own", *arguments, cores=[core], environment=environment_).figures)


def make_rules(directory: Path, count: int) -> Path:
    """Write the rules as each peer takes them."""
    from headrace_columnar import dialect
    from sqlglot import exp

    from benchmarks.python_rules import python_source
    from benchmarks.rule_sets import rule_set

    def flink(text: str) -> str:
        def replaced(node: Any) -> Any:
            if isinstance(node, exp.RegexpLike):
                return exp.Anonymous(this="REGEXP", expressions=[node.this, node.expression])
            return node

        return str(dialect.parse(text).transform(replaced).sql(dialect="databricks", identify=True))

    listed = [
        {"id": rule["id"], "python": python_source(rule["expression"]), "flink": flink(rule["expression"])}
        for rule in rule_set("selective", count)
    ]
    path = directory / f"rules-{count}.json"
    path.write_text(json.dumps(listed))
    return path


def head(path: Path, count: int) -> Path:
    """Return a file with the first lines of another."""
    made = path.with_name(f"{path.stem}-{count}{path.suffix}")
    if not made.exists():
        with path.open("rb") as lines, made.open("wb") as out:
            out.writelines(islice(lines, count))
    return made


_results: Path | None = None


def say(job: str, name: str, messages: int, found: dict[str, Any], **more: Any) -> None:
    """Print one result."""
    if "error" not in found:
        found = {
            **found, "per_second": messages / found["seconds"], "per_cpu_second": messages / found["cpu_seconds"],
        }  # fmt: skip
    line = json.dumps({"job": job, "peer": name, "messages": messages, **more, **found})
    print(line, flush=True)
    if _results is not None:
        with _results.open("a") as file:
            file.write(line + "\n")


def rules(directory: Path, environments: Path, core: int) -> None:
    """Job A."""
    from demo.security_events import events

    path = directory / "security.ndjson"
    if not path.exists():
        with path.open("w") as file:
            for event in events(max(RULE_MESSAGES["headrace"].values()), suspicious_share=0.01):
                file.write(json.dumps(event) + "\n")
    for count in RULE_COUNTS:
        listed = make_rules(directory, count)
        for name, given in RULE_MESSAGES.items():
            messages = given[count]
            source = head(path, messages)
            out = directory / f"out-{name}"
            _remove(out)
            if name in ("headrace", "plain"):
                found = own(f"rules-{name}", str(count), str(source), str(out), core=core)
            else:
                python = environment(name, environments)
                found = peer(python, name, "rules", str(listed), str(source), str(out), core=core)
            say("rules", name, messages, found, rules=count)


def windows(directory: Path, environments: Path, core: int) -> None:
    """Job B, files."""
    from benchmarks.keyed import make

    path = directory / "events.ndjson"
    if not path.exists():
        make(directory)
    for name, messages in WINDOW_MESSAGES.items():
        source = head(path, messages)
        out = directory / f"out-{name}"
        _remove(out)
        if name in ("headrace", "plain"):
            found = own(f"windows-{name}", str(source), str(out), core=core)
        else:
            found = peer(environment(name, environments), name, "windows", str(source), str(out), core=core)
        say("windows", name, messages, found)


def kafka(directory: Path, environments: Path, core: int) -> None:
    """Job B, topics: a topic with one partition, keyed as Quix Streams needs it, ended by an event that closes all windows."""
    import confluent_kafka as ck
    from confluent_kafka import admin as ck_admin

    from benchmarks.keyed import make
    from tests.servers.kafka import KafkaServer
    from tests.servers.sharing import own_server

    path = directory / "events.ndjson"
    if not path.exists():
        make(directory)
    with own_server(KafkaServer) as server:
        topic = f"benchmark-{secrets.token_hex(4)}"
        admin: Any = ck_admin.AdminClient({"bootstrap.servers": server.to_variable()})
        [created] = admin.create_topics([ck_admin.NewTopic(topic, 1, 1)]).values()  # type: ignore[attr-defined]
        created.result()
        producer: Any = ck.Producer({"bootstrap.servers": server.to_variable(), "linger.ms": 20})
        bodies = head(path, KAFKA_MESSAGES).read_bytes().splitlines()
        bodies.append(b'{"key":"end","ts":"2030-01-01T00:00:00.000Z","v":0}')
        for start in range(0, len(bodies), 10_000):
            part = bodies[start : start + 10_000]
            producer.produce_batch(topic, [{"key": json.loads(body)["key"].encode(), "value": body} for body in part])
            producer.flush()
        found = own("kafka-headrace", server.to_variable(), topic, str(directory / "out-kafka"), core=core)
        say("kafka", "headrace", KAFKA_MESSAGES, found)
        state = tempfile.mkdtemp(prefix="quix-", dir=directory)
        python = environment("quix", environments)
        found = peer(python, "quix", server.to_variable(), topic, secrets.token_hex(4), state, core=core)
        say("kafka", "quix", KAFKA_MESSAGES, found)


def _remove(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    base = Path(tempfile.gettempdir()) / "headrace-peers"
    parser.add_argument("--environments", type=Path, default=base / "environments")
    parser.add_argument("--directory", type=Path, default=base / "data")
    parser.add_argument("--core", type=int, default=0)
    parser.add_argument("--only", choices=("rules", "windows", "kafka"))
    parser.add_argument("--results", type=Path)
    given = parser.parse_args(arguments)
    global _results
    _results = given.results
    if _results is not None:
        _results.parent.mkdir(parents=True, exist_ok=True)
        _results.unlink(missing_ok=True)
    given.directory.mkdir(parents=True, exist_ok=True)
    given.environments.mkdir(parents=True, exist_ok=True)
    os.chdir(ROOT)
    for name, job in {"rules": rules, "windows": windows, "kafka": kafka}.items():
        if given.only in (None, name):
            job(given.directory, given.environments, given.core)


if __name__ == "__main__":
    main()
