"""What all cursors of a file source share: its options, its clock, and what is known of its files."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from headrace.foundation.clock import Clock

from headrace_file.file_system import LOCAL, FileSystem
from headrace_file.framing import Framing
from headrace_file.rotation import RotatedNames
from headrace_file.settings import FileSourceSettings
from headrace_file.tracker import Tracker

if TYPE_CHECKING:
    from collections.abc import Callable


@dataclass
class Context:
    """The objects that all cursors of one source object share."""

    settings: FileSourceSettings
    framing: Framing
    names: RotatedNames
    tracker: Tracker
    clock: Clock
    #: Whether the run ends at the end of the input: then a last line without newline is a record.
    until_end: bool = False
    max_record_bytes: int = 16 * 1024**2
    #: Called with the header record of each file, if there is one: raises when it does not fit.
    check_header: Callable[[str, bytes], None] | None = None
    open_files: int = 0
    files: FileSystem = LOCAL

    @property
    def header_records(self) -> int:
        return self.settings.skip_lines + self.settings.header
