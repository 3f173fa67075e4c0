"""Instances that stand still for so long that others take their shards, and then go on as if nothing had happened.

What they had is stored by two processes then, one of which does not know that it has lost it: in a topic of the broker, or in
tables. The table of results is compared with a plain model, as in the other elastic tests.
"""

from __future__ import annotations

import os
import signal
import time

import pytest

from tests.chaos.elastic_world import Feed, Instance, MakeWorld
from tests.servers.mysql import MySQLServer

pytestmark = pytest.mark.timeout(1800)


def pause(instance: Instance, seconds: float) -> None:
    """Let an instance stand still: its sessions end meanwhile."""
    os.killpg(instance.process.pid, signal.SIGSTOP)
    try:
        time.sleep(seconds)
    finally:
        os.killpg(instance.process.pid, signal.SIGCONT)


@pytest.mark.parametrize("store", ["topic", "mysql"])
def test_one_stands_still_and_goes_on_and_another_is_killed(
    make_world: MakeWorld, mysql_server: MySQLServer, mysql_database: str, store: str
) -> None:
    login = {name: getattr(mysql_server, name) for name in ("host", "port", "user", "password")}
    options = {**login, "database": mysql_database} if store == "mysql" else {}
    world = make_world(state_store=store, state_options=options)
    first, second = world.start(), world.start()
    first.wait_until_started()
    second.wait_until_started()
    feed = Feed(world.broker, per_second=400)
    time.sleep(3)
    pause(first, 12)
    time.sleep(3)
    third = world.start()
    third.wait_until_started()
    world.kill(second)
    time.sleep(2)
    pause(third, 12)
    time.sleep(3)
    print("\n" + world.expect_exactly(feed.stop(), seconds=240))
