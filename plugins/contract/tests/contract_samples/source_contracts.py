"""The contract of the sample sources, as their author would write it."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

from headrace_contract import SourceContract
from headrace_contract.source_harness import SourceHarness

from contract_samples.sources import ColumnLogSource, LogSource, LogWorld


class LogHarness(SourceHarness):
    """Every method, also the optional ones."""

    kind: type[LogSource] = LogSource
    odd_bodies = (*SourceContract.odd_bodies, b"", b"two\nlines\r\n")

    @cached_property
    def world(self) -> LogWorld:
        return LogWorld(self.tmp_path / "world" / "log")

    def make_source(self) -> LogSource:
        return self.kind(self.kind.Settings(database=str(self.world.path)))

    def add_queue(self) -> str:
        return self.world.add_queue()

    def write(self, queue: str, bodies: Sequence[bytes]) -> None:
        self.world.write(queue, bodies)

    def remove_queue(self, queue: str) -> None:
        self.world.remove_queue(queue)

    def forget(self, queue: str, before: int) -> None:
        self.world.forget(queue, before)

    def begin_outage(self) -> None:
        (self.tmp_path / "world").rename(self.tmp_path / "away")

    def end_outage(self) -> None:
        (self.tmp_path / "away").rename(self.tmp_path / "world")

    def break_queue(self, queue: str) -> None:
        self.world.break_queue(queue)

    def mend_queue(self, queue: str) -> None:
        self.world.mend_queue(queue)

    def make_missing_source(self) -> LogSource:
        return self.kind(self.kind.Settings(database=str(self.tmp_path / "no" / "such" / "log")))

    def make_with_secret(self, secret: str) -> LogSource:
        return self.kind(self.kind.Settings.of({"database": str(self.tmp_path / "no" / "log"), "password": secret}))


class LogContract(LogHarness, SourceContract):
    """The contract of the source of bodies."""


class ColumnLogContract(LogContract):
    """The same for a source that gives columns."""

    kind = ColumnLogSource
