"""The figures of the server and of all its jobs, as Prometheus reads them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import msgspec
from headrace.foundation.errors import HeadraceError
from headrace.interfaces.metrics import Snapshot
from headrace_metrics.prometheus import SnapshotCollector
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from headrace_server.registry.records import JobRecord
from headrace_server.supervision.supervisor import Supervisor

_TIMEOUT_SECONDS = 3.0
_ASKED_AT_ONCE = 8


def metrics_text(supervisor: Supervisor) -> str:
    """Return the figures in the text format of Prometheus. Called at each scrape; asks every runner for its own.

    A job whose runner does not answer within 3 s is counted in ``headrace_server_jobs_unanswered``, and its figures are missing.
    """
    jobs = supervisor.services.registry.jobs()
    running = [job for job in jobs if supervisor.statuses.figures(job) is not None]
    with ThreadPoolExecutor(max_workers=_ASKED_AT_ONCE) as pool:
        answers = list(pool.map(lambda job: _snapshot_of(supervisor, job), running))
    snapshots = [each for each in answers if each is not None]
    registry = CollectorRegistry()
    registry.register(SnapshotCollector(lambda: snapshots))
    registry.register(_ServerCollector(supervisor, jobs, unanswered=len(answers) - len(snapshots)))
    return generate_latest(registry).decode("utf-8")


def _snapshot_of(supervisor: Supervisor, job: JobRecord) -> Snapshot | None:
    try:
        found = supervisor.ask_runner(job, "metrics", timeout_seconds=_TIMEOUT_SECONDS)
        return Snapshot.from_json(found)
    except (HeadraceError, OSError, TimeoutError, msgspec.ValidationError):
        return None


class _ServerCollector(Collector):
    """What only the server knows: states of jobs, failures in a row, files that were refused."""

    def __init__(self, supervisor: Supervisor, jobs: list[JobRecord], *, unanswered: int) -> None:
        self._supervisor = supervisor
        self._jobs = jobs
        self._unanswered = unanswered

    def collect(self) -> Iterator[Any]:
        # Of its own jobs only: each server of a registry is scraped, and nothing is counted twice.
        statuses = self._supervisor.statuses.of_here(self._jobs)
        yield _gauge("jobs", "Jobs by their state.", "state", Counter(each.state for each in statuses.values()))
        failures = {name: each.failures for name, each in statuses.items()}
        yield _gauge("job_failures", "Failures in a row; 0 after 5 minutes without one.", "job", failures)
        files = GaugeMetricFamily("headrace_server_refused_files", "Files of the jobs directory that are no job.")
        files.add_metric([], len(self._supervisor.refused_files))
        yield files
        unanswered = GaugeMetricFamily("headrace_server_jobs_unanswered", "Running jobs whose process did not answer.")
        unanswered.add_metric([], self._unanswered)
        yield unanswered


def _gauge(name: str, help: str, label: str, values: dict[str, int] | Counter[str]) -> GaugeMetricFamily:
    made = GaugeMetricFamily(f"headrace_server_{name}", help, labels=[label])
    for value, count in sorted(values.items()):
        made.add_metric([value], count)
    return made
