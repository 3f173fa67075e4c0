"""Prints what EXPLAIN gives."""

from __future__ import annotations

import sys
from typing import ClassVar

from headrace.interfaces.sink import Sink, SinkBatch, SinkSettings

RESULT = "result"


class PlanSink(Sink):
    """Prints plans as they are, line by line: what EXPLAIN gives where nothing collects it."""

    Settings: ClassVar[type[SinkSettings]] = SinkSettings

    def __init__(self, settings: SinkSettings | None = None) -> None:
        self.settings = settings if settings is not None else SinkSettings()

    @property
    def prints_to_terminal(self) -> bool:
        """Whether rows appear on the terminal of this process, where nothing else should be drawn at the same time."""
        return sys.stdout.isatty()

    def batch_insert(self, batch: SinkBatch) -> None:
        for text in batch.frame[RESULT].to_list():
            print(text.rstrip("\n"))
        sys.stdout.flush()
