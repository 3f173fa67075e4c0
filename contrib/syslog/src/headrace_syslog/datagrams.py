"""Receives datagrams in its own thread, and appends them to the log, many at once."""

from __future__ import annotations

import logging
import socket
import threading
import time
from collections.abc import Mapping
from concurrent.futures import Future
from datetime import timedelta

import headrace as hr
from headrace.foundation.errors import HeadraceError
from headrace.foundation.sockets import wait_until_readable
from headrace_buffer import Appended, BufferFullError, RecordLog

from headrace_syslog.appends import SPARE_BYTES, parts_of
from headrace_syslog.datagram_reading import reader_of
from headrace_syslog.gathering import Gathered
from headrace_syslog.losses import KERNEL, NOT_STORED, REFUSED, TELL_SECONDS, TOO_LONG, Losses
from headrace_syslog.peers import Peers
from headrace_syslog.sockets import dropped_datagrams
from headrace_syslog.source_settings import SyslogSourceSettings

logger = logging.getLogger(__name__)
_BATCH_BYTES = 1024**2
#: Pause between two reads from the kernel.
_PAUSE_SECONDS = 0.005
_WAIT_SECONDS = 0.5
_WAIT_FOR_ROOM = timedelta(seconds=0.5)


class DatagramReceiver:
    """Receives from a socket until ``close``."""

    def __init__(
        self, log: RecordLog, receiving: socket.socket, settings: SyslogSourceSettings, losses: Losses
    ) -> None:
        self._log = log
        self._socket = receiving
        self._reader = reader_of(receiving, settings.message_bytes)
        self._message_bytes = settings.message_bytes
        self._losses = losses
        self._peers = Peers(settings.allow, "udp")
        self._gathered = Gathered(min(_BATCH_BYTES, log.append_max_bytes - SPARE_BYTES))
        self._dropped = 0
        self._counting = threading.Lock()
        self._closing = threading.Event()
        self._failure: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="headrace syslog datagrams", daemon=True)
        self._thread.start()

    @property
    def failure(self) -> BaseException | None:
        """The error that has ended the receiver, or None."""
        return self._failure

    def count_kernel_losses(self) -> None:
        """Count the datagrams that the kernel has dropped."""
        with self._counting:
            dropped = dropped_datagrams(self._socket)
            self._losses.add(KERNEL, max(0, dropped - self._dropped))
            self._dropped = max(dropped, self._dropped)

    def close(self) -> None:
        """Store the datagrams that the kernel has received so far, and end."""
        self._closing.set()
        self._thread.join()
        self.count_kernel_losses()
        self._socket.close()

    def _run(self) -> None:
        counted_seconds = time.monotonic()
        gathered = self._gathered
        try:
            while not self._closing.is_set():
                if time.monotonic() - counted_seconds >= TELL_SECONDS:
                    counted_seconds = time.monotonic()
                    self.count_kernel_losses()
                if not gathered.bodies and not wait_until_readable(self._socket, _WAIT_SECONDS):
                    continue
                more = self._take()
                if gathered.is_due(time.monotonic()):
                    self._store()
                if not more:
                    self._closing.wait(_PAUSE_SECONDS)
            self._take()
            self._store()
        except BaseException as error:  # ``failure`` reports it, in the thread of the job
            self._losses.add(NOT_STORED, len(gathered.bodies))
            self._failure = error

    def _take(self) -> bool:
        """Gather waiting datagrams, at most as many as one append can hold; return whether there may be more."""
        gathered = self._gathered
        gathered.begin_reading(time.monotonic())
        refused = too_long = 0
        more = True
        while more and not gathered.is_full:
            datagrams, peers = self._reader.read()
            more = bool(datagrams)
            for body, peer in zip(datagrams, peers, strict=True):
                found = self._peers.headers(peer)
                if found is None:
                    refused += 1
                elif len(body) > self._message_bytes:
                    too_long += 1
                elif body:
                    gathered.add(body, found)
        self._losses.add(REFUSED, refused)
        self._losses.add(TOO_LONG, too_long)
        return more

    def _store(self) -> None:
        """Append the collected datagrams."""
        bodies, headers = self._gathered.take()
        first = 0
        for part in parts_of(hr.Bodies.of(bodies), self._log.append_max_bytes):
            self._append(part, headers[first : first + len(part)])
            first += len(part)

    def _append(self, bodies: hr.Bodies, headers: list[Mapping[str, bytes]]) -> None:
        """Append messages to the log; returns as soon as their order is fixed, before they are durable. Waits while the
        log is full.
        """
        count = len(bodies)

        def done(future: Future[Appended]) -> None:
            if future.exception() is not None:
                self._losses.add(NOT_STORED, count)
                logger.warning("syslog: %d messages were lost: %s", count, future.exception())

        while True:
            try:
                self._log.submit(bodies, headers=headers, timeout=_WAIT_FOR_ROOM).add_done_callback(done)
                return
            except BufferFullError:
                if self._closing.is_set():
                    self._losses.add(NOT_STORED, count)
                    return
            except HeadraceError:
                self._losses.add(NOT_STORED, count)
                raise
