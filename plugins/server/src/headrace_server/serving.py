"""A whole server: data directory, registry, supervisor and API put together. What ``headrace serve`` runs."""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import socket
import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from types import FrameType
from typing import Any, Literal

import uvicorn
from headrace.foundation.clock import Clock, SystemClock
from headrace.foundation.errors import JobError, OptionError
from sqlalchemy import MetaData

from headrace_server.access import AuditLog, Authority, Origins, Principal, Role, TLSOptions
from headrace_server.access import metadata as access_tables
from headrace_server.api.health import HealthPort
from headrace_server.jobs_directory.versions import VersionFiles
from headrace_server.registry.database import Registry, open_engine, sqlite_url
from headrace_server.registry.records import VersionRecord
from headrace_server.schedules import metadata as schedule_tables
from headrace_server.supervision.cgroups import Cgroups, NoCgroupsError, of_this_process
from headrace_server.supervision.data_directory import DataDirectory
from headrace_server.supervision.environments import Environments
from headrace_server.supervision.processes import ChildLauncher
from headrace_server.supervision.specifications import Services
from headrace_server.supervision.supervisor import DEFAULT_SCAN_INTERVAL, Supervisor
from headrace_server.web.application import guarded_app

logger = logging.getLogger(__name__)
DEFAULT_PORT = 8731
_LOOPBACK = ("127.0.0.1", "::1", "localhost")


@dataclass(frozen=True)
class ServerOptions:
    """The options of ``headrace serve``."""

    jobs: Path
    data: Path = Path("headrace-data")
    registry: str | None = None
    #: Where wheels of plug-ins lie; None: ``ext`` beside the jobs directory.
    ext: Path | None = None
    #: How the server and its runners log.
    log_format: Literal["console", "json"] = "console"
    host: str = "127.0.0.1"
    port: int = DEFAULT_PORT
    #: Where health and readiness are served by plain http, and nothing else; None: only the main port has them.
    health_port: int | None = None
    health_host: str = "127.0.0.1"
    #: Names under which clients reach the server, beside those of loopback.
    host_names: Sequence[str] = field(default=())
    #: None: the port speaks plain http, and is open to this machine only.
    tls: TLSOptions | None = None
    #: Browsers come by https through a proxy on this machine, which says in X-Forwarded-For where they are.
    behind_proxy: bool = False
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
        tls = _checked_tls(options)
        self.data = DataDirectory(options.data)
        self.data.lock()
        try:
            self.registry = Registry(
                open_engine(options.registry or sqlite_url(self.data.path / "registry.sqlite")),
                clock,
                further=(access_tables, schedule_tables, *options.tables),
            )
            self.authority = Authority(self.registry.engine, clock)
            self.audit = AuditLog(self.registry.engine, clock)
            self.token = self.authority.local_token(self.data.token)
            self._socket = _listening(options.host, options.port, "port")
            health = (
                None
                if options.health_port is None
                else _listening(options.health_host, options.health_port, "health_port")
            )
        except BaseException:
            self.data.unlock()
            raise
        cgroups, no_cgroups = _cgroups(options)
        ext = (options.ext or options.jobs.absolute().parent / "ext").absolute()
        services = Services(
            self.registry, self.data, VersionFiles(self.data.versions), ChildLauncher(), clock, options.name,
            environments=Environments(self.data.path / "environments", ext), log_format=options.log_format,
            cgroups=cgroups, no_cgroups=no_cgroups,
        )  # fmt: skip
        self.supervisor = Supervisor(services, options.jobs.absolute(), scan_interval=options.scan_interval, ext=ext)
        self.supervisor.new_version = self._record_version
        self.url = self._reached_at()
        origins = Origins(options.host_names, secure=options.tls is not None or options.behind_proxy)
        app = guarded_app(self.supervisor, self.authority, self.audit, origins=origins)
        config = uvicorn.Config(
            app, log_config=None, access_log=False, timeout_graceful_shutdown=2, proxy_headers=options.behind_proxy,
            server_header=False, ws="none", **tls,
        )  # fmt: skip
        self._http = _Http(config)
        self._health = None if health is None else HealthPort(health, self.supervisor)
        self._failure: BaseException | None = None

    def run(self) -> None:
        """Serve until SIGTERM or SIGINT. Raises what has ended the supervision, if that was an error; runners go on then."""
        self.data.note_address(self.url, health=None if self._health is None else self._health.url)
        self.registry.note_server(self._options.name, pid=os.getpid(), url=self.url)
        thread = threading.Thread(target=self._supervise, name="supervisor")
        thread.start()
        if self._health is not None:
            self._health.start()
        try:
            with self._http.ended_by_signals():
                self._http.run(sockets=[self._socket])
        finally:
            self.supervisor.stop(self._options.on_stop)
            thread.join()
            if self._health is not None:
                self._health.stop()
            self.registry.end_server(self._options.name)
            self.data.address.unlink(missing_ok=True)
            self.registry.engine.dispose()
            self.data.unlock()
        if self._failure is not None:
            raise JobError(f"the supervision of jobs has failed: {self._failure!r}") from self._failure

    def stop(self) -> None:
        """End the server: also what signals do."""
        self._http.should_exit = True

    def _reached_at(self) -> str:
        """Return the address for clients on this machine. A certificate holds for a name, so with TLS the first one counts."""
        host, port = self._socket.getsockname()[:2]
        if self._options.tls is None:
            return f"http://{host}:{port}"
        names = [*self._options.host_names, "localhost" if host in ("0.0.0.0", "::", *_LOOPBACK) else host]
        return f"https://{names[0]}:{port}"

    def _record_version(self, record: VersionRecord, files: Mapping[str, bytes]) -> None:
        """Keep in the audit log that somebody has changed a job's files. What was submitted is recorded where it came in."""
        if record.author is not None:
            return
        newest = self.registry.newest_version(record.job)
        before = self.supervisor.services.versions.contents(record.job, newest) if newest is not None else {}
        after = {name: content.decode("utf-8", "replace") for name, content in files.items()}
        self.audit.record(
            Principal("jobs directory", Role.AUTHOR, "files"), "version", record.job,
            before=_as_text(before), after=_as_text(after),
        )  # fmt: skip

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


def _checked_tls(options: ServerOptions) -> dict[str, Any]:
    """Return the options of TLS for uvicorn. Raises OptionError for an address that others reach without encryption."""
    if options.tls is None and options.host not in _LOOPBACK:
        raise OptionError(
            "the server speaks without encryption, so it listens on this machine only",
            option="host",
            hint="give --tls-certificate and --tls-key, or put a proxy with TLS before it and give --behind-proxy",
        )
    if options.behind_proxy and options.host not in _LOOPBACK:
        raise OptionError(
            "a proxy is trusted only on this machine: others could say that they are somebody else",
            option="behind_proxy",
            hint="let the server listen on a loopback address",
        )
    return {} if options.tls is None else options.tls.uvicorn_options()


def _cgroups(options: ServerOptions) -> tuple[Cgroups | None, str]:
    """Return the control groups for runners; None and the reason if this process may make none."""
    try:
        found = of_this_process(on_stop=options.on_stop)
    except NoCgroupsError as error:
        logger.info("jobs are limited by limits of their processes: %s", error.message)
        return None, error.message
    logger.info("jobs with limits have control groups in %s", found.root)
    return found, ""


def _as_text(files: Mapping[str, str]) -> str:
    return "\n".join(f"{name}: {line}" for name, text in sorted(files.items()) for line in text.splitlines())


def _listening(host: str, port: int, option: str) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    made = socket.socket(family, socket.SOCK_STREAM)
    try:
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        made.bind((host, port))
        made.listen(128)
    except OSError as error:
        made.close()
        raise OptionError(
            f"cannot listen on {host}:{port}: {error.strerror}",
            option=option,
            hint=f"choose another with --{option.replace('_', '-')}",
        ) from error
    return made
