"""A client of Apache RocketMQ in plain Python, and headrace's RocketMQ connector.

Names are imported when they are first used: every headrace job imports this package, but few need the client.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

_MODULES = {
    "headrace_rocketmq.allocation": (
        "averagely",
        "consistent_hash",
    ),
    "headrace_rocketmq.batch": ("MessageBatch",),
    "headrace_rocketmq.client": ("Client",),
    "headrace_rocketmq.compression": ("Compression",),
    "headrace_rocketmq.consumer": (
        "Consumer",
        "Start",
    ),
    "headrace_rocketmq.credentials": ("Credentials",),
    "headrace_rocketmq.errors": ("RocketMQError",),
    "headrace_rocketmq.filters": ("Filter",),
    "headrace_rocketmq.member": ("Member",),
    "headrace_rocketmq.message": ("Message",),
    "headrace_rocketmq.producer": (
        "SendResult",
        "SendStatus",
    ),
    "headrace_rocketmq.reader": (
        "Reader",
        "ReaderOptions",
    ),
    "headrace_rocketmq.routes": ("MessageQueue",),
    "headrace_rocketmq.transport": ("Tls",),
}
_HOME = {name: module for module, names in _MODULES.items() for name in names}

__all__ = sorted(_HOME)

if TYPE_CHECKING:
    from headrace_rocketmq.allocation import averagely as averagely
    from headrace_rocketmq.allocation import consistent_hash as consistent_hash
    from headrace_rocketmq.batch import MessageBatch as MessageBatch
    from headrace_rocketmq.client import Client as Client
    from headrace_rocketmq.compression import Compression as Compression
    from headrace_rocketmq.consumer import Consumer as Consumer
    from headrace_rocketmq.consumer import Start as Start
    from headrace_rocketmq.credentials import Credentials as Credentials
    from headrace_rocketmq.errors import RocketMQError as RocketMQError
    from headrace_rocketmq.filters import Filter as Filter
    from headrace_rocketmq.member import Member as Member
    from headrace_rocketmq.message import Message as Message
    from headrace_rocketmq.producer import SendResult as SendResult
    from headrace_rocketmq.producer import SendStatus as SendStatus
    from headrace_rocketmq.reader import Reader as Reader
    from headrace_rocketmq.reader import ReaderOptions as ReaderOptions
    from headrace_rocketmq.routes import MessageQueue as MessageQueue
    from headrace_rocketmq.transport import Tls as Tls


def __getattr__(name: str) -> Any:
    module = _HOME.get(name)
    if module is None:
        raise AttributeError(f"module 'headrace_rocketmq' has no attribute {name!r}")
    value = getattr(importlib.import_module(module), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted([*globals(), *_HOME])
