"""Which messages of a topic a consumer wants; brokers leave out the others."""

from __future__ import annotations

import json
import time
from dataclasses import dataclass, field

from headrace_rocketmq.batch import MessageBatch
from headrace_rocketmq.codes import RequestCode
from headrace_rocketmq.errors import ConfigurationError
from headrace_rocketmq.remoting import Call, Remoting

_ALL = "*"
_TAG = "TAG"
_SQL92 = "SQL92"


def java_string_hash(text: str) -> int:
    """Java's `String.hashCode`, 32 bits, signed: brokers use it for the index of tags, and Java producers to select queues."""
    value = 0
    data = text.encode("utf-16-be", "surrogatepass")
    for at in range(0, len(data), 2):
        value = (31 * value + (data[at] << 8 | data[at + 1])) & 0xFFFFFFFF
    return value - (1 << 32) if value & 0x80000000 else value


@dataclass(frozen=True, slots=True)
class Filter:
    """A filter by tags or by an SQL92 condition on properties. Make one with `everything`, `by_tags` or `by_sql`."""

    expression: str
    kind: str
    wanted_tags: frozenset[str] = frozenset()
    version: int = field(default_factory=lambda: time.time_ns() // 1_000_000, compare=False)
    """Brokers take a group's filter of the greatest version; since 1970 in milliseconds."""

    @classmethod
    def everything(cls) -> Filter:
        """No filter."""
        return cls(_ALL, _TAG)

    @classmethod
    def by_tags(cls, *tags: str) -> Filter:
        """Messages that have one of the tags."""
        if not tags or any(not tag or tag != tag.strip() or "|" in tag or tag == _ALL for tag in tags):
            raise ConfigurationError(f"expected one or more tags without '|' and outer spaces, got {tags!r}")
        return cls(" || ".join(tags), _TAG, frozenset(tags))

    @classmethod
    def by_sql(cls, condition: str) -> Filter:
        """Messages whose properties meet a condition such as `amount > 100 AND region IN ('eu', 'us')`.

        The broker must be configured with enablePropertyFilter=true; if it is not, or if the condition does not parse, it
        refuses pulls (FilterRejectedError).
        """
        if not condition.strip():
            raise ConfigurationError("the SQL92 condition is empty")
        return cls(condition, _SQL92)

    @property
    def is_everything(self) -> bool:
        """Whether no message is left out."""
        return self.kind == _TAG and not self.wanted_tags

    @property
    def needs_check(self) -> bool:
        """Whether a broker may be unable to apply it; see `check_filter`."""
        return self.kind == _SQL92

    def pull_fields(self) -> dict[str, str]:
        """The fields of a pull request for this filter."""
        return {"subscription": self.expression, "subVersion": str(self.version), "expressionType": self.kind}

    def subscription(self, topic: str) -> dict[str, object]:
        """The part of a heartbeat for this filter."""
        return {
            "topic": topic,
            "subString": self.expression,
            "tagsSet": sorted(self.wanted_tags),
            "codeSet": sorted(java_string_hash(tag) for tag in self.wanted_tags),
            "subVersion": self.version,
            "expressionType": self.kind,
            "classFilterMode": False,
        }

    def apply(self, batch: MessageBatch) -> MessageBatch:
        """The batch without wrong messages: the broker compares hashes of tags, not tags."""
        if not self.wanted_tags:
            return batch
        rows = [row for row, tag in enumerate(batch.tags()) if tag in self.wanted_tags]
        return batch if len(rows) == len(batch) else batch.take(rows)


def check_filter(remoting: Remoting, address: str, group: str, topic: str, message_filter: Filter) -> None:
    """Ask a broker whether it can apply a filter; called before a topic is read with an SQL92 condition.

    Without this request, a broker treats a condition that it cannot parse as true for all messages.
    Raises FilterRejectedError, and what Remoting.call raises.
    """
    body = {"clientId": "check", "group": group, "subscriptionData": message_filter.subscription(topic)}
    remoting.call(
        Call(
            code=RequestCode.CHECK_CLIENT_CONFIG,
            target=lambda: (address, {}),
            body=json.dumps(body).encode(),
            topic=topic,
            detail=f"with the filter {message_filter.expression!r} for topic {topic}",
        )
    )
