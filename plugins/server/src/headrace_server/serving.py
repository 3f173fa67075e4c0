"""A whole server: data directory, registry, supervisor and API put together. What ``headrace serve`` runs."""

from __future__ import annotations

import contextlib
import logging
import os
import re
import secrets
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
from headrace.foundation.errors import HeadraceError, JobError, OptionError
from headrace.foundation.machine import available_cores
from sqlalchemy import MetaData
from sqlalchemy.exc import SQLAlchemyError

import headrace_server
from headrace_server.access import AuditLog, Authority, Origins, Principal, Role, TLSOptions
from headrace_server.access import metadata as access_tables
from headrace_server.api.health import HealthPort
from headrace_server.jobs_directory.versions import VersionFiles
from headrace_server.registry.database import Registry
from headrace_server.registry.engines import open_engine, sqlite_url
from headrace_server.registry.records import VersionRecord
from headrace_server.registry.schema import claim_schema
from headrace_server.registry.shared import SharedTables
from headrace_server.schedules import metadata as schedule_tables
from headrace_server.sharing.agreement import DEFAULT_LEASE_DURATION, check_agreement
from headrace_server.sharing.machines import machine_id
from headrace_server.sharing.member import Identity, Member
from headrace_server.sharing.peers import PeerKey
from headrace_server.supervision.cgroups import Cgroups, NoCgroupsError, of_this_process
from headrace_server.supervision.data_directory import DataDirectory, identity_of
from headrace_server.supervision.environments import Environments
from headrace_server.supervision.processes import ChildLauncher
from headrace_server.supervision.specifications import Services
from headrace_server.supervision.supervisor import DEFAULT_SCAN_INTERVAL, Supervisor
from headrace_server.web.application import guarded_app

logger = logging.getLogger(__name__)
DEFAULT_PORT = 8731
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
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
    #: What happens to jobs when the server is asked to end: ``leave`` lets their processes continue.
    on_stop: Literal["stop", "leave"] = "stop"
    #: Its name among the servers of a registry; None: that of the machine, or ``main`` for one that is alone on its registry.
    name: str | None = None
    #: What all servers of the registry reach: checkpoints, savepoints, rules. None: jobs stay where their checkpoint is.
    shared: Path | None = None
    #: Whether this one of several servers reads the jobs directory, when it is its turn.
    reads_jobs: bool = True
    #: For how long a process may not be able to renew the lease of its jobs.
    lease_duration: timedelta = DEFAULT_LEASE_DURATION
    scan_interval: timedelta = DEFAULT_SCAN_INTERVAL
    #: Tables of other rooms, made at the start.
    tables: Sequence[MetaData] = field(default=())


class HeadraceServer:
    """One server. ``run`` is called once, in the main thread; it returns when a signal has ended the server."""

    def __init__(self, options: ServerOptions, *, clock: Clock | None = None) -> None:
        self._options = options
        clock = clock or SystemClock()
        if not options.jobs.is_dir() and options.reads_jobs:
            raise OptionError(
                f"{options.jobs} is not a directory", option="jobs", hint="create the directory, and put jobs into it"
            )
        tls = _checked_tls(options)
        self.name = _checked_name(options)
        self.data = DataDirectory(options.data, shared=options.shared)
        self.data.lock()
        with contextlib.ExitStack() as undo:
            undo.callback(self.data.unlock)
            engine = open_engine(options.registry or sqlite_url(self.data.path / "registry.sqlite"))
            undo.callback(engine.dispose)
            tables = (access_tables, schedule_tables, *options.tables)
            self.registry = Registry(engine, clock, further=tables, server=self.name)
            self.authority = Authority(engine, clock)
            self.audit = AuditLog(engine, clock)
            self.token = self.authority.local_token(self.data.token)
            self._socket = undo.enter_context(_listening(options.host, options.port, "port"))
            health = None
            if options.health_port is not None:
                health = undo.enter_context(_listening(options.health_host, options.health_port, "health_port"))
            self.url = self._reached_at()
            self.member = None if options.registry is None else self._joined(clock)
            if self.member is None:
                claim_schema(engine, headrace_server.__version__, ())
            undo.pop_all()
        cgroups, no_cgroups = _cgroups(options)
        ext = (options.ext or options.jobs.absolute().parent / "ext").absolute()
        versions = VersionFiles(self.data.versions, elsewhere=None if self.member is None else self.member.tables)
        services = Services(
            self.registry, self.data, versions, ChildLauncher(), clock, self.name,
            environments=Environments(self.data.path / "environments", ext), log_format=options.log_format, member=self.member,
            cgroups=cgroups, no_cgroups=no_cgroups,
        )  # fmt: skip
        self.supervisor = Supervisor(services, options.jobs.absolute(), scan_interval=options.scan_interval, ext=ext)
        self.supervisor.files.new_version = self._record_version
        origins = Origins(options.host_names, secure=options.tls is not None or options.behind_proxy)
        key = (
            None
            if self.member is None
            else PeerKey(self.member.tables.common("peer_secret", secrets.token_urlsafe(32)), clock)
        )
        app = guarded_app(self.supervisor, self.authority, self.audit, origins=origins, key=key)
        config = uvicorn.Config(
            app, log_config=None, access_log=False, timeout_graceful_shutdown=2, proxy_headers=options.behind_proxy,
            server_header=False, ws="none", **tls,
        )  # fmt: skip
        self._http = _Http(config)
        self._health = None if health is None else HealthPort(health, self.supervisor)
        self._failure: BaseException | None = None

    def _joined(self, clock: Clock) -> Member:
        """Become one of the servers of a registry. Raises OptionError if that cannot be, with what differs."""
        options = self._options
        tables = SharedTables(self.registry.engine)
        shared_id = None if self.data.shared is None else identity_of(self.data.shared)
        check_agreement(
            tables,
            self.registry.engine,
            shared=self.data.shared,
            shared_id=shared_id,
            lease_duration=options.lease_duration,
        )
        identity = Identity(
            name=self.name, url=self.url, data=self.data.identity(), machine=machine_id(), cores=available_cores(),
            version=headrace_server.__version__, reads_jobs=options.reads_jobs, directory=self.data.path,
        )  # fmt: skip
        member = Member(self.registry.engine, clock, identity, lease_duration=options.lease_duration)
        claim_schema(self.registry.engine, headrace_server.__version__, member.others())
        member.join()
        return member

    def run(self) -> None:
        """Serve until SIGTERM or SIGINT. Raises the error that ended the supervision, if there was one; runners continue then."""
        with contextlib.ExitStack() as signals:
            # Before anybody can know of this server: a signal that comes at once must find the handlers.
            signals.enter_context(self._http.ended_by_signals())
            thread = self._begin()
            try:
                self._http.run(sockets=[self._socket])
            finally:
                signals.close()  # a second signal interrupts what follows
                self._end(thread)
        if self._failure is not None:
            raise JobError(f"the supervision of jobs has failed: {self._failure!r}") from self._failure

    def _begin(self) -> threading.Thread:
        """Tell others of this server, and begin to supervise; return the thread that does."""
        self.data.note_address(self.url, health=None if self._health is None else self._health.url)
        self.registry.note_server(self.name, pid=os.getpid(), url=self.url)
        if self.member is not None:
            self.member.describe()
        thread = threading.Thread(target=self._supervise, name="supervisor")
        thread.start()
        self.supervisor.watch.start()
        if self._health is not None:
            self._health.start()
        return thread

    def _end(self, thread: threading.Thread) -> None:
        self.supervisor.watch.stop()
        self.supervisor.stop(self._options.on_stop)
        thread.join()
        if self._health is not None:
            self._health.stop()
        self._leave()
        self.data.address.unlink(missing_ok=True)
        self.registry.engine.dispose()
        self.data.unlock()

    def _leave(self) -> None:
        """Note that the server has ended. If the registry is away, others find it out by themselves."""
        try:
            if self.member is not None:
                self.member.leave(restarts=self._options.on_stop == "leave")
            self.registry.end_server(self.name)
        except (HeadraceError, SQLAlchemyError) as error:
            logger.warning("the registry could not be told that this server has stopped: %s", error)

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


def _checked_name(options: ServerOptions) -> str:
    """Return the name of the server among those of its registry. Raises OptionError for one that cannot be."""
    if options.registry is None and options.shared is not None:
        raise OptionError(
            "a shared directory needs a registry that the servers share",
            option="shared",
            hint="give --registry too, with the same value for each server",
        )
    found = options.name or ("main" if options.registry is None else socket.gethostname())
    if not _NAME.fullmatch(found):
        raise OptionError(
            f"{found!r} cannot be the name of a server",
            option="name",
            hint="use a-z, 0-9, ., - and _: headrace serve --name NAME",
        )
    return found


def _checked_tls(options: ServerOptions) -> dict[str, Any]:
    """Return the options of TLS for uvicorn. Raises OptionError for an address that others reach without encryption."""
    if options.tls is None and options.host not in _LOOPBACK:
        raise OptionError(
            "the server has no TLS, so it may listen only on a loopback address",
            option="host",
            hint="give --tls-certificate and --tls-key, or put a proxy with TLS in front of it and give --behind-proxy",
        )
    if options.behind_proxy and options.host not in _LOOPBACK:
        raise OptionError(
            "--behind-proxy needs a loopback address: from other machines, anybody could send the headers that only the proxy may send",
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
        # Accepted sockets have it from this one: else the second part of an answer waits 40 ms for the client's confirmation.
        made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        made.bind((host, port))
        made.listen(128)
    except OSError as error:
        made.close()
        raise OptionError(
            f"cannot listen on {host}:{port}: {error.strerror}",
            option=option,
            hint=f"choose another one with --{option.replace('_', '-')}",
        ) from error
    return made
