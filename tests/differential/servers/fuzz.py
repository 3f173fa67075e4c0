"""Starts servers and runs seeds of the jobs that write into them: ``python -m tests.differential.servers.fuzz 200``.

``--into mysql,kafka`` leaves out the others. Further options are those of ``tests.differential.fuzz``.
"""

from __future__ import annotations

import argparse
import os
import sys
from contextlib import ExitStack
from typing import Any

from tests.differential import fuzz
from tests.servers.elasticsearch import ElasticsearchServer
from tests.servers.kafka import KafkaServer
from tests.servers.mysql import MySQLServer
from tests.servers.rocketmq import RocketMQServer
from tests.servers.sharing import shared_server

SERVERS: dict[str, Any] = {
    "mysql": MySQLServer, "kafka": KafkaServer, "rocketmq": RocketMQServer, "elasticsearch": ElasticsearchServer,
}  # fmt: skip


def main(arguments: list[str] | None = None) -> int:
    """Run seeds into each server and return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m tests.differential.servers.fuzz", add_help=False)
    parser.add_argument("seeds", nargs="?", default="200")
    parser.add_argument("--into", default=",".join(SERVERS))
    given, rest = parser.parse_known_args(arguments)
    failed = 0
    for name in given.into.split(","):
        kind = SERVERS[name]
        with ExitStack() as stack:
            if not os.environ.get(kind.variable):
                os.environ[kind.variable] = stack.enter_context(shared_server(kind, kind.kind)).to_variable()
                stack.callback(os.environ.pop, kind.variable)
            sys.stderr.write(f"into {name}\n")
            failed |= fuzz.main([given.seeds, "--only", name, *rest])
    return failed


if __name__ == "__main__":
    sys.exit(main())
