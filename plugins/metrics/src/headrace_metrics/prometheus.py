"""Prometheus: the text of snapshots, and a small HTTP endpoint that gives it."""

from __future__ import annotations

import hmac
import threading
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from itertools import accumulate
from pathlib import Path
from socketserver import ThreadingMixIn
from typing import Any
from urllib.parse import urlsplit
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer, make_server

from headrace.foundation.addresses import is_loopback
from headrace.foundation.errors import JobError, OptionError
from headrace.interfaces.metrics import Metric, MetricsExporter, Series, Snapshot
from prometheus_client import CollectorRegistry, generate_latest, make_wsgi_app
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.registry import Collector

from headrace_metrics.addresses import parts_of

DEFAULT_PORT = 9464
#: Labels of every figure. Prometheus itself uses the label ``job`` for what it scrapes.
COMMON_LABELS = ("job_name", "backend")
_TOKEN_LENGTH_MIN = 16
#: How often the endpoint looks whether it is to close.
_CLOSE_SECONDS = 0.1


class SnapshotCollector(Collector):
    """Gives snapshots to prometheus_client. ``read`` is called at each scrape."""

    def __init__(self, read: Callable[[], Iterable[Snapshot]]) -> None:
        self._read = read

    def describe(self) -> Iterator[Any]:
        """Nothing is known before jobs run: else the registry would ask for figures when this is registered."""
        return iter(())

    def collect(self) -> Iterator[Any]:
        found: dict[str, tuple[Metric, list[tuple[list[str], Series]]]] = {}
        for snapshot in self._read():
            for family in snapshot.families:
                _, series = found.setdefault(family.metric.name, (family.metric, []))
                series += [([snapshot.job, snapshot.backend, *each.labels], each) for each in family.series]
        for _, (metric, series) in sorted(found.items()):
            yield _family(metric, series)


def _family(metric: Metric, series: Iterable[tuple[list[str], Series]]) -> Any:
    labels = [*COMMON_LABELS, *metric.labels]
    name = metric.prometheus_name
    if metric.kind == "histogram":
        histogram = HistogramMetricFamily(name, metric.help, labels=labels)
        bounds = [*map(str, metric.bounds), "+Inf"]
        for values, each in series:
            histogram.add_metric(values, list(zip(bounds, accumulate(each.counts), strict=True)), each.value)
        return histogram
    kind = CounterMetricFamily if metric.kind == "counter" else GaugeMetricFamily
    made = kind(name, metric.help, labels=labels)
    for values, each in series:
        made.add_metric(values, each.value)
    return made


def prometheus_text(snapshots: Iterable[Snapshot]) -> str:
    """Return the figures of jobs in the text format of Prometheus. Called by servers that run jobs in other processes.

    Two snapshots of one job must not be among them: Prometheus refuses a text with the same series twice.
    """
    listed = list(snapshots)
    registry = CollectorRegistry()
    registry.register(SnapshotCollector(lambda: listed))
    return generate_latest(registry).decode("utf-8")


class PrometheusExporter(MetricsExporter):
    """Serves the figures of jobs at ``http://HOST:PORT/metrics``, also after they have ended, until ``close``.

    ``port`` 0 takes a free one. ``token``: what a request must bring as ``Authorization: Bearer …``. Beyond this machine there is no
    endpoint without a token. The text is not encrypted: put a proxy with TLS before it where others can listen.
    """

    def __init__(self, host: str = "127.0.0.1", port: int = DEFAULT_PORT, *, token: str | None = None) -> None:
        if token is not None and len(token) < _TOKEN_LENGTH_MIN:
            raise OptionError(f"the token has fewer than {_TOKEN_LENGTH_MIN} characters", option="token")
        if token is None and not is_loopback(host):
            raise OptionError(
                f"{host} can be reached from other machines, so a token is required",
                option="metrics",
                hint="bind 127.0.0.1, or name a file that holds a token: prometheus://HOST:PORT?token_file=PATH",
            )
        self._host = host
        self._port = port
        self._token = token
        self._jobs: dict[str, Callable[[], Snapshot]] = {}
        self._lock = threading.Lock()
        self._registry = CollectorRegistry()
        self._registry.register(SnapshotCollector(self.snapshots))
        self._server: WSGIServer | None = None

    @classmethod
    def from_url(cls, url: str) -> PrometheusExporter:
        parts, port, options = parts_of(url, default_port=DEFAULT_PORT, options=("token_file",))
        if parts.path.strip("/"):
            raise OptionError(
                f"unusable path {parts.path!r}: metrics are always at /metrics; leave the path out", option="metrics"
            )
        token = None
        if "token_file" in options:
            try:
                token = Path(options["token_file"]).read_text(encoding="utf-8").strip()
            except (OSError, ValueError) as error:
                raise OptionError(
                    f"the file {options['token_file']!r} of the token cannot be read: {type(error).__name__}",
                    option="metrics",
                ) from error
        assert parts.hostname is not None
        return cls(parts.hostname, port, token=token)

    @property
    def port(self) -> int:
        """The port; of an endpoint that is open, the one that it has."""
        return self._port if self._server is None else int(self._server.server_port)

    def open(self) -> None:
        with self._lock:
            if self._server is not None:
                return
            try:
                self._server = make_server(self._host, self._port, self._answer, _Server, handler_class=_Handler)
            except OSError as error:
                raise JobError(
                    f"no metrics endpoint at {self._host}:{self._port}: {error.strerror}",
                    option="metrics",
                    hint="name another port, or 0 for a free one",
                ) from error
            serve = partial(self._server.serve_forever, poll_interval=_CLOSE_SECONDS)
            threading.Thread(target=serve, name="headrace metrics", daemon=True).start()

    def job_started(self, job: str, read: Callable[[], Snapshot]) -> None:
        with self._lock:
            self._jobs[job] = read

    def job_ended(self, job: str, last: Snapshot) -> None:
        with self._lock:
            self._jobs[job] = lambda: last

    def snapshots(self) -> list[Snapshot]:
        """Return the figures of all jobs now."""
        with self._lock:
            reading = list(self._jobs.values())
        return [read() for read in reading]

    def text(self) -> str:
        """Return what the endpoint gives."""
        return generate_latest(self._registry).decode("utf-8")

    def close(self) -> None:
        with self._lock:
            server, self._server = self._server, None
        if server is not None:
            server.shutdown()
            server.server_close()

    def _answer(self, environ: Any, start_response: Any) -> Any:
        def refuse(status: str, text: str, *headers: tuple[str, str]) -> list[bytes]:
            start_response(status, [("Content-Type", "text/plain; charset=utf-8"), *headers])
            return [f"{text}\n".encode()]

        if self._token is not None:
            given = environ.get("HTTP_AUTHORIZATION", "")
            if not hmac.compare_digest(given.encode(), f"Bearer {self._token}".encode()):
                return refuse("401 Unauthorized", "a token is needed", ("WWW-Authenticate", "Bearer"))
        elif not is_loopback(urlsplit(f"//{environ.get('HTTP_HOST', '')}").hostname or ""):
            # A page of another host, whose name was made to lead here, must not read it in the user's browser.
            return refuse("403 Forbidden", "this endpoint accepts only the names of this machine in the Host header")
        if environ["PATH_INFO"] != "/metrics" or environ["REQUEST_METHOD"] not in ("GET", "HEAD"):
            return refuse("404 Not Found", "metrics are at /metrics")
        return make_wsgi_app(self._registry)(environ, start_response)


class _Server(ThreadingMixIn, WSGIServer):
    daemon_threads = True


class _Handler(WSGIRequestHandler):
    #: A connection that sends nothing must not hold its thread for ever.
    timeout = 10

    def log_message(self, format: str, *args: Any) -> None:
        """Scrapes are not logged."""
