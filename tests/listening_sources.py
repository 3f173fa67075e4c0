"""What tests of sources share that listen and keep what they hear in a buffer."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Protocol, TypeVar

import headrace as hr
import pytest
import urllib3
from headrace.foundation.errors import OptionError
from headrace_buffer.log import RecordLog


class Closable(Protocol):
    """What is closed after a test."""

    def close(self) -> None: ...


ClosableT = TypeVar("ClosableT", bound=Closable)


def each_closed(kind: Callable[..., ClosableT], directory: Path) -> Iterator[Callable[..., ClosableT]]:
    """Give a function that makes one more in a directory of its own; all are closed afterwards. For use in a fixture."""
    made: list[ClosableT] = []

    def start(**options: Any) -> ClosableT:
        made.append(kind(directory / str(len(made)), **options))
        return made[-1]

    yield start
    for each in made:
        each.close()


def forget(source: hr.Source, queue: str, before: int) -> None:
    """Let a source forget the records before an offset, as a checkpoint does, and close it."""
    source.open(hr.Queue(queue), hr.EARLIEST)
    source.stored({hr.Queue(queue): hr.ReadPosition(before)})
    source.close()


class Listening:
    """A source that listens, opened, with its buffer and its listener."""

    def __init__(self, source: Any) -> None:
        self.source = source
        self.reader = source.open(hr.Queue("buffer"), hr.EARLIEST)
        shared = source._shared
        assert shared is not None
        assert shared.listener is not None
        self.log: RecordLog = shared.log
        self.listener: Any = shared.listener

    def stored(self) -> list[bytes]:
        """Return the bodies that the buffer holds."""
        bodies: list[bytes] = []
        offset = self.log.earliest
        while (found := self.log.read(offset, 10_000)) is not None:
            bodies += found.bodies
            offset = found.end
        return bodies

    def close(self) -> None:
        self.source.close()


class HttpListening(Listening):
    """A source that listens for HTTP, and the connections of a client."""

    def __init__(self, source: Any, *, client_ca: str | None = None) -> None:
        super().__init__(source)
        self.url = self.listener.url
        self.pool = urllib3.PoolManager(retries=False, ca_certs=client_ca)

    def close(self) -> None:
        self.pool.clear()
        super().close()


def expect_refused(make: Callable[[], object], option: str, message: str) -> None:
    """Check that options are refused, and that the error names the option and says why."""
    with pytest.raises(OptionError) as refused:
        make()
    assert refused.value.option == option
    assert message in str(refused.value)
