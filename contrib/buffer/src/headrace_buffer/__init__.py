"""A durable, bounded log of records on local disk: for sources that listen, and for store-and-forward.

See docs/buffer.md.
"""

from headrace_buffer.errors import BufferFullError
from headrace_buffer.log import Appended, Gap, LogStatus, RecordLog
from headrace_buffer.records import Records
from headrace_buffer.source import BufferedSource, BufferedSourceSettings, Listener, LogReader

__version__ = "0.1.0"

__all__ = [
    "Appended",
    "BufferFullError",
    "BufferedSource",
    "BufferedSourceSettings",
    "Gap",
    "Listener",
    "LogReader",
    "LogStatus",
    "RecordLog",
    "Records",
]
