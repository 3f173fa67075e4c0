"""Notices that a client of librdkafka does not find back to a cluster that answers others."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import Any

import confluent_kafka as ck
import confluent_kafka.admin as ck_admin
from headrace.foundation.errors import HeadraceError

from headrace_kafka.confluent_client import Troubles, confluent_properties, is_away, made
from headrace_kafka.errors import StuckClient
from headrace_kafka.settings import KafkaSourceSettings

logger = logging.getLogger(__name__)
#: After so long without a record or an answer, the client is asked whether it reaches a broker.
_SILENCE_SECONDS = 5.0
#: How long a client may be without a broker before another one is asked to reach the cluster.
_UNREACHED_SECONDS = 10.0
#: How long commits may fail because of the group's coordinator before another client is asked to reach it.
_UNCOMMITTED_SECONDS = 30.0
#: How much longer than another client this one may need to reach the cluster again.
_BEHIND_SECONDS = 5.0
_PROBE_SECONDS = 0.5
#: How long another client has to reach the cluster, which it does not know yet.
_OTHER_SECONDS = 2.0


class Liveness:
    """Watches one consumer. Used by the thread that uses the consumer.

    librdkafka (2.10 to 2.16 at least) forgets all brokers, those of ``bootstrap.servers`` too, when one of them answers that the cluster
    has none, as a broker does that has just started and is not let in yet. Then it connects to nothing any more, and says nothing: no
    record comes, and commits fail with "waiting for coordinator" for ever. Only a new client helps.
    See https://github.com/confluentinc/librdkafka/issues/5301.
    """

    def __init__(self, settings: KafkaSourceSettings, troubles: Troubles, ask: Callable[[float], Any]) -> None:
        """``ask``: asks the consumer for metadata, waiting for so many seconds."""
        self._settings = settings
        self._troubles = troubles
        self._ask = ask
        self._heard = time.monotonic()
        self._next_look = 0.0
        self._unreached_since: float | None = None
        self._uncommitted_since: float | None = None
        #: When another client was made to compare, and since when it reaches brokers that this one does not reach.
        self._others_asked = 0.0
        self._others_since: float | None = None
        #: Why the client is stuck, once that is known. If it could not be replaced, the next ``check`` raises it again.
        self._stuck: str | None = None

    def heard(self) -> None:
        """Called when a record, or an answer of a broker, has come."""
        self._heard = time.monotonic()
        self._unreached_since = self._others_since = self._stuck = None

    def committed(self) -> None:
        """Called when the group's coordinator has accepted a commit."""
        self.heard()
        self._uncommitted_since = None

    def not_committed(self, error: Any) -> None:
        """Called when a commit has failed. Only errors about the coordinator count, because a rebalance may take
        long.
        """
        if not is_away(error):
            self._uncommitted_since = None
        elif self._uncommitted_since is None:
            self._uncommitted_since = time.monotonic()

    def not_answered(self, since: float) -> None:
        """Called when a request made at that time got no answer. Raises StuckClient if another client would get one."""
        self._unreached_since = self._unreached_since or since
        self._compare_reach()

    def check(self) -> None:
        """Called when nothing came. Raises RetriableError when no broker is reached, StuckClient when others reach it."""
        if self._stuck is not None:
            raise StuckClient(self._stuck, plugin="kafka")
        now = time.monotonic()
        silent = now - self._heard >= _SILENCE_SECONDS
        if not self._troubles.away and (now < self._next_look or not (silent or self._uncommitted_since is not None)):
            return
        self._next_look = now + _SILENCE_SECONDS
        if (silent or self._troubles.away) and not self._is_reached():
            self._unreached_since = self._unreached_since or now
            self._compare_reach()
            raise self._troubles.error()
        if self._uncommitted_since is not None and now - self._uncommitted_since >= _UNCOMMITTED_SECONDS:
            self._compare(self._has_coordinator, "the consumer does not find back to its group's coordinator")

    def _compare_reach(self) -> None:
        if self._unreached_since is not None and time.monotonic() - self._unreached_since >= _UNREACHED_SECONDS:
            self._compare(self._has_brokers, f"the consumer does not find back to {self._settings.servers}")

    def _compare(self, reach: Callable[[Any], bool], what: str) -> None:
        """Let another client try. Raises StuckClient if that client has reached the cluster for a while and this one
        has not.
        """
        now = time.monotonic()
        if now - self._others_asked < _BEHIND_SECONDS:
            return
        self._others_asked = now
        if not self._others_reach(reach):
            self._others_since = None
        elif self._others_since is None:
            self._others_since = now
        else:
            self._stuck = what
            raise StuckClient(what, plugin="kafka")

    def _is_reached(self) -> bool:
        try:
            found = self._ask(_PROBE_SECONDS)
        except ck.KafkaException as error:
            logger.debug("no broker is reached: %s", error)
            return False
        if not found.brokers:
            return False
        self._troubles.clear()
        self.heard()
        return True

    def _others_reach(self, reach: Callable[[Any], bool]) -> bool:
        """Return whether a new client reaches brokers that this one does not reach."""
        try:
            return reach(made(ck_admin.AdminClient, confluent_properties(self._settings, {}), self._settings))
        except (ck.KafkaException, HeadraceError) as error:
            logger.debug("another client does not reach it either: %s", error)
            return False

    def _has_brokers(self, other: Any) -> bool:
        return bool(other.list_topics(self._settings.topics[0], timeout=_OTHER_SECONDS).brokers)

    def _has_coordinator(self, other: Any) -> bool:
        groups = [ck.ConsumerGroupTopicPartitions(str(self._settings.group))]
        [future] = other.list_consumer_group_offsets(groups, request_timeout=_OTHER_SECONDS).values()
        future.result()
        return True
