"""How long queues rest when instances of a job on RocketMQ die, leave and join, while messages keep coming.

    python -m benchmarks.rocketmq_rebalance [--rounds 10] [--per-second 2000]

One instance stays; another comes and is killed (``kill -9``) or leaves, in turn. A queue's rest is the time from the kill, or
from the request to stop, to the first row of that queue which the other instance writes, by the clock of broker and machine.
When an instance joins, the other one gives it half of the queues: how long that takes, with all that is flushed, checkpointed
and committed in it, is in its log.
"""

from __future__ import annotations

import argparse
import json
import re
import secrets
import statistics
import tempfile
import threading
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from tests.chaos.rocketmq_world import Feed, World, world_of
from tests.eventually import eventually
from tests.servers.rocketmq import RocketMQServer
from tests.servers.sharing import own_server

_FINISHED = re.compile(r"gave up .* finished in ([0-9.]+) s")
_STEADY_SECONDS = 3.0


def steady(world: World, name: str) -> None:
    """Wait until an instance has its share of the queues, and a while longer."""
    eventually(lambda: world.log(name).count(": taking ") >= 4, f"{name} has queues")
    threading.Event().wait(_STEADY_SECONDS)


def rests(rows: Sequence[dict[str, Any]], victim: str, moment: datetime) -> list[float]:
    """Return the seconds that each queue of an instance rested after its end."""
    before = {row["came_from"]: row["instance"] for row in rows if row["at"] <= moment}
    found = []
    for queue in [name for name, owner in before.items() if owner == victim]:
        after = [
            row["at"] for row in rows if row["came_from"] == queue and row["instance"] != victim and row["at"] > moment
        ]
        found.append((min(after) - moment).total_seconds())
    return found


def measure(world: World, rounds: int, per_second: int) -> dict[str, list[float]]:
    """Let instances come and end; return seconds by what happened."""
    feed = Feed(world.client, world.source, per_second)
    world.start("stays")
    events: list[tuple[str, str, datetime]] = []
    for number in range(2 * rounds):
        kind, name = ("killed", "left")[number % 2], f"i{number}"
        process = world.start(name)
        steady(world, name)
        events.append((kind, name, datetime.now(UTC)))
        if kind == "killed":
            world.kill(process)
        else:
            world.leave(process)
        threading.Event().wait(_STEADY_SECONDS)
        print(f"{name} {kind}", flush=True)
    feed.stop()
    world.wait_until_done()
    schema = {"came_from": "string", "instance": "string"}
    rows = world.read(world.target, schema, metadata={"at": "time"})
    rows.sort(key=lambda row: row["at"])
    found: dict[str, list[float]] = {"killed": [], "left": []}
    for kind, name, moment in events:
        found[kind] += rests(rows, name, moment)
    found["given up under load"] = [float(text) for text in _FINISHED.findall(world.log("stays"))]
    print(world.expect_all_is_copied_once(feed.sent))
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--per-second", type=int, default=2000)
    given = parser.parse_args()
    with (
        own_server(RocketMQServer) as server,
        tempfile.TemporaryDirectory() as directory,
        world_of(server, lambda prefix: f"{prefix}-{secrets.token_hex(4)}", Path(directory)) as world,
    ):
        found = measure(world, given.rounds, given.per_second)
    for kind, seconds in found.items():
        if not seconds:
            raise RuntimeError(f"nothing was measured: {kind}")
        print(f"| {kind} | {len(seconds)} | {statistics.median(seconds):.2f} | {max(seconds):.2f} |")
    print(json.dumps({kind: [round(one, 3) for one in seconds] for kind, seconds in found.items()}))


if __name__ == "__main__":
    main()
