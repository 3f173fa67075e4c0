"""Failed logins from Redis streams to another stream, each once.

    export REDIS_PASSWORD=...
    headrace run examples/redis_logins.py --set host=localhost --set user=jobs --set streams=logins:*

An entry has the login as JSON in its field ``data``: XADD logins:web '*' data '{"user": "ann", "outcome": "failure"}'.
"""

from __future__ import annotations

import headrace as hr


def job(host: str, user: str, streams: str, port: int = 6379, out: str = "failures") -> hr.Job:
    """Return the job; ``headrace run`` sets the arguments from ``--set NAME=VALUE``."""
    place = {"host": host, "port": port, "user": user, "password": "${REDIS_PASSWORD}"}
    made: hr.Job = (
        hr.stream("examples", "logins")
        .from_redis(streams, **place, format="json", schema={"user": "string", "outcome": "string"})
        .where("outcome = 'failure'")
        .to_redis(out, **place)
    )
    return made
