"""A whole server: data directory, registry, supervisor and API put together. What ``headrace serve`` runs."""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import socket
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from types import FrameType
from typing import Literal

import uvicorn
from headrace.foundation.clock import Clock, SystemClock
from headrace.foundation.errors import JobError, OptionError
from sqlalchemy import MetaData

from headrace_server.api.token import token_of
from headrace_server.jobs_directory.versions import VersionFiles
from headrace_server.registry.database import Registry, open_engine, sqlite_url
from headrace_server.supervision.data_directory import DataDirectory
from headrace_server.supervision.processes import ChildLauncher
from headrace_server.supervision.specifications import Services
from headrace_server.supervision.supervisor import DEFAULT_SCAN_INTERVAL, Supervisor
from headrace_server.web.application import app_with_pages

logger = logging.getLogger(__name__)
DEFAULT_PORT = 8731
_LOOPBACK = ("127.0.0.1", "::1", "localhost")


@dataclass(frozen=True)
class ServerOptions:
    """The options of ``headrace serve``."""

    jobs: Path
    data: Path = Path("headrace-data")
    registry: str | None = None
    host: str = "127.0.0.1"
    port: int = DEFAULT_PORT
    #: What becomes of the jobs when the server is told to end: ``leave`` lets their processes go on.
    on_stop: Literal["stop", "leave"] = "stop"
    name: str = "main"
    scan_interval: timedelta = DEFAULT_SCAN_INTERVAL
    #: Tables of other rooms, made at the start.
    tables: Sequence[MetaData] = field(default=())


class HeadraceServer:
    """One server. ``run`` is called once, in the main thread; it returns when a signal has ended the server."""

    def __init__(self, options: ServerOptions, *, clock: Clock | None = None) -> None:
        self._options = options
        clock = clock or SystemClock()
        if not options.jobs.is_dir():
            raise OptionError(f"{options.jobs} is not a directory", option="jobs", hint="make it, and put jobs into it")
        if options.host not in _LOOPBACK:
            raise OptionError(
                "the server speaks without encryption, so it listens on this machine only",
                option="host",
                hint="put a proxy with TLS before it",
            )
        self.data = DataDirectory(options.data)
        self.data.lock()
        try:
            self.registry = Registry(
                open_engine(options.registry or sqlite_url(self.data.path / "registry.sqlite")),
                clock,
                further=options.tables,
            )
            self._socket = _listening(options.host, options.port)
        except BaseException:
            self.data.unlock()
            raise
        services = Services(
            self.registry, self.data, VersionFiles(self.data.versions), ChildLauncher(), clock, options.name
        )
        self.supervisor = Supervisor(services, options.jobs.absolute(), scan_interval=options.scan_interval)
        self.url = "http://{}:{}".format(*self._socket.getsockname()[:2])
        self.token = token_of(self.data.token)
        app = app_with_pages(self.supervisor, self.token)
        self._http = _Http(uvicorn.Config(app, log_config=None, access_log=False, timeout_graceful_shutdown=2))
        self._failure: BaseException | None = None

    def run(self) -> None:
        """Serve until SIGTERM or SIGINT. Raises what has ended the supervision, if that was an error; runners go on then."""
        self.data.note_address(self.url)
        self.registry.note_server(self._options.name, pid=os.getpid(), url=self.url)
        thread = threading.Thread(target=self._supervise, name="supervisor")
        thread.start()
        try:
            with self._http.ended_by_signals():
                self._http.run(sockets=[self._socket])
        finally:
            self.supervisor.stop(self._options.on_stop)
            thread.join()
            self.registry.end_server(self._options.name)
            self.data.address.unlink(missing_ok=True)
            self.registry.engine.dispose()
            self.data.unlock()
        if self._failure is not None:
            raise JobError(f"the supervision of jobs has failed: {self._failure!r}") from self._failure

    def stop(self) -> None:
        """End the server: also what signals do."""
        self._http.should_exit = True

    def _supervise(self) -> None:
        try:
            self.supervisor.run()
        except BaseException as error:  # raised by run() when the API has ended
            logger.exception("the supervision of jobs has failed")
            self._failure = error
        finally:
            self.stop()


class _Http(uvicorn.Server):
    """uvicorn, with signals that end it without being raised once more."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield

    @contextlib.contextmanager
    def ended_by_signals(self) -> Iterator[None]:
        """End the server on a signal; put the handlers back afterwards. In other threads than the main one signals stay as they are."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return

        def end(number: int, frame: FrameType | None) -> None:
            self.should_exit = True

        before = {number: signal.signal(number, end) for number in (signal.SIGTERM, signal.SIGINT)}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)


def _listening(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    made = socket.socket(family, socket.SOCK_STREAM)
    try:
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        made.bind((host, port))
        made.listen(128)
    except OSError as error:
        made.close()
        raise OptionError(
            f"cannot listen on {host}:{port}: {error.strerror}", option="port", hint="choose another with --port"
        ) from error
    return made
