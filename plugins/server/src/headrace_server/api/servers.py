"""The servers of a registry, as clients see them."""

from __future__ import annotations

from collections import Counter, defaultdict

from headrace.foundation.machine import available_cores

import headrace_server
from headrace_server.api.views import OtherServerView
from headrace_server.registry.records import Desired, ServerRecord
from headrace_server.sharing.member import Member
from headrace_server.supervision.supervisor import Supervisor


def servers_of(supervisor: Supervisor) -> list[OtherServerView]:
    """Return the servers of the registry by name, with what each has."""
    member, registry = supervisor.services.member, supervisor.services.registry
    jobs = registry.jobs()
    counts: Counter[str | None] = Counter()
    running: Counter[str | None] = Counter()
    for job in jobs:
        server = supervisor.statuses.server_of(job)
        counts[server] += 1
        running[server] += job.desired is Desired.RUNNING
    if member is None:
        name = supervisor.services.server
        return [
            OtherServerView(
                name=name, url=None, state="serves", jobs=len(jobs), running=running[name], cores_used=0.0,
                cores=available_cores(), version=headrace_server.__version__, reads_jobs=True, started_seconds=0.0,
                seen_seconds_ago=0.0,
            )
        ]  # fmt: skip
    cores: dict[str | None, float] = defaultdict(float)
    for unit in member.units():
        cores[unit.server] += unit.cores or 0.0
    return [_view(member, each, counts[each.name], running[each.name], cores[each.name]) for each in member.servers()]


def _view(member: Member, server: ServerRecord, jobs: int, running: int, cores: float) -> OtherServerView:
    lives = member.is_live(server.name)
    reader = member.reader()
    return OtherServerView(
        name=server.name, url=server.url, state=(server.state or "serves") if lives else "away", jobs=jobs, running=running,
        cores_used=round(cores, 2), cores=server.cores, version=server.version,
        reads_jobs=lives and reader is not None and reader.name == server.name, started_seconds=server.started_seconds,
        seen_seconds_ago=round(member.seen_seconds_ago(server.name), 1),
    )  # fmt: skip
