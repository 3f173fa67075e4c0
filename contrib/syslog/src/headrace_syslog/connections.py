"""Accepts connections, with TLS or without, in its own thread. What a connection sent is stored before more is read
from it.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import ssl
import threading
from collections.abc import Coroutine, Mapping, Sequence
from datetime import timedelta
from typing import Any

import headrace as hr
from headrace.foundation.errors import RetriableError
from headrace_buffer import BufferFullError, RecordLog

from headrace_syslog.appends import parts_of
from headrace_syslog.framing import Framer, FramingError
from headrace_syslog.losses import CONNECTIONS, FRAMING, INCOMPLETE, NOT_STORED, REFUSED, TOO_LONG, Losses
from headrace_syslog.peers import Peers
from headrace_syslog.source_settings import SyslogSourceSettings

logger = logging.getLogger(__name__)
_NO_TIME = timedelta(0)
_HANDSHAKE_SECONDS = 30.0
#: How long a connection waits for room in the buffer, or for the disk, before it tries again.
_FULL_SECONDS = 0.05
_DISK_SECONDS = 1.0
_ACCEPT_SECONDS = 1.0


class ConnectionReceiver:
    """Serves listening sockets until ``close``. ``sockets``: each with its TLS context, or None."""

    def __init__(
        self,
        log: RecordLog,
        sockets: Sequence[tuple[socket.socket, ssl.SSLContext | None]],
        settings: SyslogSourceSettings,
        losses: Losses,
    ) -> None:
        self.log = log
        self.losses = losses
        self.settings = settings
        self.closing = False
        #: Connections that are open.
        self.open: set[Connection] = set()
        #: Tasks that store messages, and tasks that complete connections.
        self._storing: set[asyncio.Task[None]] = set()
        self._greeting: set[asyncio.Task[None]] = set()
        self._sockets = sockets
        self._failure: BaseException | None = None
        self._loop = asyncio.new_event_loop()
        self._end = asyncio.Event()
        self._thread = threading.Thread(target=self._run, name="headrace syslog connections", daemon=True)
        self._thread.start()

    @property
    def failure(self) -> BaseException | None:
        """The error that has ended the receiver, or None."""
        return self._failure

    def close(self) -> None:
        """Store what was received, and end."""
        if self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._end.set)
        self._thread.join()
        for each, _ in self._sockets:
            each.close()

    def begin_storing(self, work: Coroutine[Any, Any, None]) -> None:
        """Run a coroutine that stores messages. The receiver does not end before it is done."""
        self._begin(work, self._storing)

    async def store(self, bodies: hr.Bodies, headers: Mapping[str, bytes]) -> None:
        """Append messages to the log; when it returns, they are durable. Waits while the log is full or the disk
        refuses to write.
        """
        for part in parts_of(bodies, self.log.append_max_bytes):
            while True:
                try:
                    await asyncio.wrap_future(self.log.submit(part, headers=headers, timeout=_NO_TIME))
                    break
                except BufferFullError:
                    pause = _FULL_SECONDS
                except RetriableError as error:
                    logger.warning("syslog: messages wait, because they cannot be stored: %s", error)
                    pause = _DISK_SECONDS
                if self.closing:
                    self.losses.add(NOT_STORED, len(part))
                    break
                await asyncio.sleep(pause)

    # ------------------------------------------------------------------------------------------------------ private

    def _run(self) -> None:
        try:
            asyncio.set_event_loop(self._loop)
            self._loop.set_exception_handler(_told)
            self._loop.run_until_complete(self._serve())
        except BaseException as error:  # ``failure`` reports it, in the thread of the job
            self._failure = error
        finally:
            asyncio.set_event_loop(None)
            self._loop.close()

    async def _serve(self) -> None:
        accepting = [self._loop.create_task(self._accept(each, context)) for each, context in self._sockets]
        try:
            ended = self._loop.create_task(_wait(self._end))
            done, _ = await asyncio.wait([ended, *accepting], return_when=asyncio.FIRST_COMPLETED)
            ended.cancel()
            for task in done - {ended}:
                task.result()
        finally:
            self.closing = True
            for task in accepting:
                task.cancel()
            for connection in list(self.open):
                connection.stop()
            for task in self._greeting:
                task.cancel()
            while self._storing or self._greeting:
                await asyncio.wait([*self._storing, *self._greeting])
            for connection in list(self.open):
                connection.abort()
            # Transports close in the next round of the loop.
            await asyncio.sleep(0)
            await asyncio.sleep(0)

    async def _accept(self, listening: socket.socket, context: ssl.SSLContext | None) -> None:
        peers = Peers(self.settings.allow, "tcp" if context is None else "tls")
        under_way = 0

        async def serve(accepted: socket.socket, headers: Mapping[str, bytes]) -> None:
            nonlocal under_way
            try:
                await self._loop.connect_accepted_socket(
                    lambda: Connection(self, headers), accepted, ssl=context,
                    ssl_handshake_timeout=None if context is None else _HANDSHAKE_SECONDS,
                )  # fmt: skip
            except (OSError, ssl.SSLError) as error:  # such as a sender without a certificate
                told = error if str(error) else type(error).__name__
                logger.warning("syslog: no connection with %s: %s", headers["peer"].decode(), told)
                accepted.close()
            finally:
                under_way -= 1

        while True:
            try:
                accepted, address = await self._loop.sock_accept(listening)
            except OSError as error:  # too many files are open, for example
                logger.warning("syslog: a connection cannot be accepted: %s", error)
                await asyncio.sleep(_ACCEPT_SECONDS)
                continue
            headers = peers.headers(address[0])
            full = len(self.open) + under_way >= self.settings.max_connections
            if headers is None or full:
                self.losses.add(REFUSED if headers is None else CONNECTIONS)
                accepted.close()
                continue
            accepted.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            under_way += 1
            self._begin(serve(accepted, headers), self._greeting)

    def _begin(self, work: Coroutine[Any, Any, None], tasks: set[asyncio.Task[None]]) -> None:
        task = self._loop.create_task(work)
        tasks.add(task)
        task.add_done_callback(tasks.discard)
        task.add_done_callback(self._done)

    def _done(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and (error := task.exception()) is not None:
            self._failure = self._failure or error
            self._end.set()


class Connection(asyncio.Protocol):
    """One sender."""

    def __init__(self, receiver: ConnectionReceiver, headers: Mapping[str, bytes]) -> None:
        self._receiver = receiver
        self._headers = headers
        self._framer = Framer(receiver.settings.message_bytes)
        self._transport: Any = None
        self._waiting: list[hr.Bodies] = []
        self._storing = False
        self._stopped = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport
        self._receiver.open.add(self)
        if self._receiver.closing:
            self.abort()

    def data_received(self, data: bytes) -> None:
        if self._stopped:
            return
        before = self._framer.too_long
        try:
            self._take(self._framer.feed(data))
        except FramingError as error:
            self._take(error.whole)
            self._receiver.losses.add(FRAMING)
            logger.warning("syslog: the connection of %s is ended: %s", self._headers["peer"].decode(), error)
            self._stopped = True
            self._transport.abort()
        self._receiver.losses.add(TOO_LONG, self._framer.too_long - before)

    def connection_lost(self, error: Exception | None) -> None:
        self._receiver.open.discard(self)
        if not self._stopped:
            self._stopped = True
            last, incomplete = self._framer.end()
            self._receiver.losses.add(INCOMPLETE, int(incomplete))
            self._take(last)

    def stop(self) -> None:
        """Read no more, as the source ends."""
        self._stopped = True
        self._transport.pause_reading()
        last, incomplete = self._framer.end()
        self._receiver.losses.add(INCOMPLETE, int(incomplete or len(last) > 0))

    def abort(self) -> None:
        """End the connection."""
        self._stopped = True
        self._transport.abort()

    def _take(self, bodies: hr.Bodies) -> None:
        if not len(bodies):
            return
        self._waiting.append(bodies)
        if not self._storing:
            self._storing = True
            self._transport.pause_reading()
            self._receiver.begin_storing(self._store())

    async def _store(self) -> None:
        while self._waiting:
            await self._receiver.store(self._waiting.pop(0), self._headers)
        self._storing = False
        if not self._stopped:
            self._transport.resume_reading()


async def _wait(event: asyncio.Event) -> None:
    await event.wait()


def _told(_: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    logger.warning("syslog: %s: %s", context.get("message"), context.get("exception"))
