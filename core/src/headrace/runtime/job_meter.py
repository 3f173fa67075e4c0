"""The meter of the process that starts a job: it gives metrics and spans to the exporters that ``metrics=`` names."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from typing import Any

from headrace.foundation.errors import JobError, OptionError
from headrace.interfaces.backend import JobStatus
from headrace.interfaces.meter import Meter
from headrace.interfaces.metrics import Metric, MetricsExporter, Snapshot, Span
from headrace.interfaces.registry import default_registry

logger = logging.getLogger(__name__)


class JobMeter(Meter):
    """Counts for one job. ``exporters``: each with whether it belongs to this job, and is closed with it."""

    def __init__(self, job: str, exporters: Sequence[tuple[MetricsExporter, bool]], **options: Any) -> None:
        super().__init__(spans=any(exporter.wants_spans for exporter, _ in exporters), **options)
        self._job = job
        self._exporters = list(exporters)
        self._starting = threading.Lock()
        self._read: Callable[[], Snapshot] | None = None
        self._last: Snapshot | None = None

    def open(self) -> None:
        """Open the exporters. If one of them fails, close those that were opened, and raise JobError."""
        try:
            for exporter, _ in self._exporters:
                exporter.open()
        except BaseException:
            self.close()
            raise

    def started(self, read: Callable[[], Snapshot]) -> None:
        """Called when the job has started; it may have ended already. ``read`` returns its metrics."""
        with self._starting:
            self._read = read
            self._tell(lambda exporter: exporter.job_started(self._job, read))
            if self._last is not None:
                self._tell_end(self._last)

    def ended(self, status: JobStatus) -> None:
        with self._starting:
            self._last = self.snapshot(status, metric_definitions())
            if self._read is not None:
                self._tell_end(self._last)

    def span(self, span: Span) -> None:
        self._tell(lambda exporter: exporter.take_span(self._job, span) if exporter.wants_spans else None)

    def close(self) -> None:
        """Close the exporters that belong to the job. May be called twice."""
        for exporter, own in self._exporters:
            if own:
                exporter.close()

    def _tell_end(self, last: Snapshot) -> None:
        self._tell(lambda exporter: exporter.job_ended(self._job, last))
        self.close()

    def _tell(self, tell: Callable[[MetricsExporter], object]) -> None:
        for exporter, _ in self._exporters:
            try:
                tell(exporter)
            except Exception as error:  # an error of an exporter must not end the job
                logger.warning("job %s: figures cannot be exported: %s: %s", self._job, type(error).__name__, error)


def metric_definitions() -> dict[str, Metric]:
    """Return the metrics that plug-ins define, by name."""
    registry = default_registry()
    return {name: registry.find("metric", name) for name in registry.names("metric")}


def meter_of(job: str, given: Any) -> JobMeter | None:
    """Return the meter that the option ``metrics`` asks for, None if it asks for none. Raises OptionError."""
    if given is None or given is False:
        return None
    listed = [] if given is True else list(given) if isinstance(given, list | tuple) else [given]
    return JobMeter(job, [_exporter(job, each) for each in listed])


def _exporter(job: str, given: Any) -> tuple[MetricsExporter, bool]:
    if isinstance(given, MetricsExporter):
        return given, False
    scheme, separator, _ = given.partition("://") if isinstance(given, str) else ("", "", "")
    if not separator:
        raise OptionError(
            f"unusable value of type {type(given).__name__}: it must be a URL or an exporter",
            job=job,
            option="metrics",
            hint='metrics="prometheus://127.0.0.1:9464", metrics=True, or an object of headrace_metrics',
        )
    try:
        kind = default_registry().find("metrics exporter", scheme)
    except JobError as error:
        error.option, error.job = "metrics", job
        raise
    exporter: MetricsExporter = kind.from_url(given)
    return exporter, True
