"""What all cursors of a file source share: its options, its clock, and the state of its files."""

from __future__ import annotations

from dataclasses import dataclass

from headrace.foundation.clock import Clock

from headrace_file.file_system import LOCAL, FileSystem
from headrace_file.framing import Framing
from headrace_file.header import FileHeader
from headrace_file.rotation import RotatedNames
from headrace_file.settings import FileSourceSettings
from headrace_file.tracker import Tracker


@dataclass
class Context:
    """The objects that all cursors of one source object share."""

    settings: FileSourceSettings
    framing: Framing
    names: RotatedNames
    tracker: Tracker
    header: FileHeader
    clock: Clock
    #: Whether the run ends at the end of the input: then a last line without newline is a record.
    until_end: bool = False
    max_record_bytes: int = 16 * 1024**2
    open_files: int = 0
    files: FileSystem = LOCAL
