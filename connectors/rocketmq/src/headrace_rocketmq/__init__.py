"""A client of Apache RocketMQ in plain Python, and headrace's RocketMQ connector."""

from headrace_rocketmq.allocation import averagely, consistent_hash
from headrace_rocketmq.batch import MessageBatch
from headrace_rocketmq.client import Client
from headrace_rocketmq.compression import Compression
from headrace_rocketmq.consumer import Consumer, Start
from headrace_rocketmq.credentials import Credentials
from headrace_rocketmq.errors import RocketMQError
from headrace_rocketmq.filters import Filter
from headrace_rocketmq.member import Member
from headrace_rocketmq.message import Message
from headrace_rocketmq.producer import SendResult, SendStatus
from headrace_rocketmq.reader import Reader, ReaderOptions
from headrace_rocketmq.routes import MessageQueue
from headrace_rocketmq.transport import Tls

__all__ = [
    "Client",
    "Compression",
    "Consumer",
    "Credentials",
    "Filter",
    "Member",
    "Message",
    "MessageBatch",
    "MessageQueue",
    "Reader",
    "ReaderOptions",
    "RocketMQError",
    "SendResult",
    "SendStatus",
    "Start",
    "Tls",
    "averagely",
    "consistent_hash",
]
