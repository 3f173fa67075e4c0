"""Command line of the test servers.

python -m tests.servers prepare [NAME ...]   download and build once (network); later starts need none
python -m tests.servers up NAME [--dir DIR]  start, wait until it answers, print the variable for the tests
python -m tests.servers down NAME [--dir DIR]    stop and remove
python -m tests.servers status               what runs, with process ids and memory

NAME is rocketmq, kafka, mysql, postgresql, elasticsearch, redis, mosquitto, spark-cluster, s3 or schema-registry.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.servers.directories import run_directory
from tests.servers.elasticsearch import ElasticsearchServer
from tests.servers.errors import TestServerError
from tests.servers.kafka import KafkaServer
from tests.servers.mosquitto import MosquittoServer
from tests.servers.mysql import MySQLServer
from tests.servers.postgresql import PostgreSQLServer
from tests.servers.processes import ProcessGroup
from tests.servers.redis import RedisServer
from tests.servers.rocketmq import RocketMQServer
from tests.servers.s3 import S3Server
from tests.servers.schema_registry import SchemaRegistryServer
from tests.servers.server import Server
from tests.servers.spark_cluster import SparkCluster

KINDS: dict[str, type[Server[Any]]] = {
    kind.kind: kind
    for kind in (
        RocketMQServer,
        KafkaServer,
        MySQLServer,
        PostgreSQLServer,
        ElasticsearchServer,
        RedisServer,
        MosquittoServer,
        SparkCluster,
        S3Server,
        SchemaRegistryServer,
    )
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; the exit status is 1 for an error that is told in words."""
    options = _parser().parse_args(arguments)
    try:
        options.command(options)
    except TestServerError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.servers", description="Real servers for the tests.")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    prepare = commands.add_parser("prepare", help="download and build once")
    prepare.add_argument("names", nargs="*", metavar="NAME", help=", ".join(KINDS))
    prepare.set_defaults(command=_prepare)
    for name, command, text in (("up", _up, "start"), ("down", _down, "stop and remove")):
        one = commands.add_parser(name, help=text)
        one.add_argument("name", choices=KINDS, metavar="NAME", help=", ".join(KINDS))
        one.add_argument("--dir", type=Path, help="the server's directory, to run several of one kind")
        one.set_defaults(command=command)
    status = commands.add_parser("status", help="list running servers")
    status.set_defaults(command=_status)
    return parser


def _directory(options: argparse.Namespace) -> Path:
    chosen: Path | None = options.dir
    return chosen.absolute() if chosen else run_directory() / "manual" / options.name


def _prepare(options: argparse.Namespace) -> None:
    for name in options.names or KINDS:
        begun = time.monotonic()
        KINDS[name].prepare()
        print(f"{name}: prepared in {time.monotonic() - begun:.1f} s", flush=True)


def _up(options: argparse.Namespace) -> None:
    kind, directory = KINDS[options.name], _directory(options)
    kind.prepare()
    if (directory / "server.json").exists():
        server = kind.load(directory)
    else:
        directory.mkdir(parents=True, exist_ok=True)
        directory.parent.chmod(0o755)
        server = kind.create(directory)
    begun = time.monotonic()
    server.start()
    print(f"# ready after {time.monotonic() - begun:.1f} s, in {directory}", file=sys.stderr)
    print(f"export {server.variable}={server.to_variable()}")


def _down(options: argparse.Namespace) -> None:
    directory = _directory(options)
    if not (directory / "server.json").exists():
        raise TestServerError(f"no {options.name} server was started in {directory}")
    KINDS[options.name].load(directory).destroy()


def _status(_: argparse.Namespace) -> None:
    for path in sorted(run_directory().glob("*/*/processes.json")):
        for record in ProcessGroup(path.parent).records():
            state = f"running, {record.memory_mb()} MiB" if record.is_alive() else "not running"
            print(f"{path.parent}\t{record.label}\tpid {record.pid}\t{state}")


if __name__ == "__main__":
    raise SystemExit(main())
