"""Creates and removes topics and consumer groups; finds the cluster's brokers."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping

from headrace_rocketmq import fastjson
from headrace_rocketmq.codes import MASTER_BROKER_ID, RequestCode, ResponseCode, TopicPermission
from headrace_rocketmq.errors import ConfigurationError, ConnectionFailedError, ProtocolError, TopicNotFoundError
from headrace_rocketmq.remoting import Call, Remoting
from headrace_rocketmq.routes import MessageQueue, Route, RouteTable

_SINGLE_TAG = "SINGLE_TAG"


class Topics:
    """Operations on whole topics and groups. Thread safe. All methods raise what Remoting.call_all raises."""

    def __init__(self, remoting: Remoting, routes: RouteTable) -> None:
        self._remoting = remoting
        self._routes = routes

    def masters(self, cluster: str | None = None) -> dict[str, str]:
        """The addresses of all master brokers, by broker name; of one cluster if that is named.

        Raises ConfigurationError for a cluster that does not exist, ConnectionFailedError if there is no broker.
        """
        frame = self._remoting.call_name_server(RequestCode.GET_BROKER_CLUSTER_INFO, {})
        info = fastjson.loads(frame.body)
        try:
            clusters: Mapping[str, Iterable[str]] = info.get("clusterAddrTable") or {}
            brokers = info.get("brokerAddrTable") or {}
            if cluster is not None and cluster not in clusters:
                raise ConfigurationError(
                    f"there is no cluster {cluster!r}; there are {', '.join(sorted(clusters)) or 'none'}"
                )
            names = sorted(brokers) if cluster is None else sorted(clusters[cluster])
            addresses = {name: brokers[name]["brokerAddrs"].get(str(MASTER_BROKER_ID)) for name in names}
        except (AttributeError, KeyError, TypeError) as error:
            raise ProtocolError(f"the name server's description of the cluster cannot be read: {error!r}") from error
        masters = {name: str(address) for name, address in addresses.items() if address is not None}
        if not masters:
            raise ConnectionFailedError(
                "any broker", "the name server knows no master broker: check that one is running"
            )
        return masters

    def names(self) -> list[str]:
        """The names of all topics that the name server knows, sorted; including those that brokers created for themselves."""
        frame = self._remoting.call_name_server(RequestCode.GET_ALL_TOPICS_FROM_NAME_SERVER, {})
        try:
            return sorted(map(str, fastjson.loads(frame.body)["topicList"]))
        except (KeyError, TypeError) as error:
            raise ProtocolError(f"the name server's list of topics cannot be read: {error!r}") from error

    def create(
        self,
        topic: str,
        queues: int,
        *,
        brokers: Iterable[str] | None = None,
        cluster: str | None = None,
        attributes: Mapping[str, str] | None = None,
    ) -> list[MessageQueue]:
        """Make a topic with `queues` queues on each of the brokers, or change an existing one; gives its queues.

        By default on all brokers, or all of a cluster. Fewer queues than before hide messages, without removing them.
        `attributes` are those of brokers from 5.0 on, such as {"message.type": "DELAY"}.
        """
        if queues < 1:
            raise ConfigurationError(f"topic {topic!r} needs at least one queue, not {queues}")
        masters = self.masters(cluster)
        wanted = masters.keys() if brokers is None else set(brokers)
        if unknown := sorted(set(wanted) - masters.keys()):
            raise ConfigurationError(f"no such broker: {', '.join(unknown)}; there are {', '.join(sorted(masters))}")
        fields = {
            "topic": topic,
            "defaultTopic": "TBW102",
            "readQueueNums": str(queues),
            "writeQueueNums": str(queues),
            "perm": str(int(TopicPermission.READ | TopicPermission.WRITE)),
            "topicFilterType": _SINGLE_TAG,
            "topicSysFlag": "0",
            "order": "false",
        }
        if attributes:
            fields["attributes"] = ",".join(f"+{name}={value}" for name, value in attributes.items())
        self._call_masters({name: masters[name] for name in wanted}, RequestCode.CREATE_TOPIC, fields, topic=topic)
        return list(self._wait_for_queues(topic, set(wanted), queues).readable_queues)

    def _wait_for_queues(self, topic: str, brokers: set[str], queues: int) -> Route:
        # Brokers register the topic at the name servers after they answered, though mostly within milliseconds.
        def attempt(remaining_s: float) -> Route:
            try:
                route = self._routes.get(topic, refresh=True, timeout_s=remaining_s)
            except TopicNotFoundError as error:
                raise ConnectionFailedError("the name server", str(error)) from error
            ready = {each.broker_name for each in route.counts if each.read_queues == queues}
            if not brokers <= ready:
                missing = ", ".join(sorted(brokers - ready))
                raise ConnectionFailedError("the name server", f"topic {topic!r} is not yet known to be on {missing}")
            return route

        return self._remoting.retrying(attempt)

    def delete(self, topic: str) -> None:
        """Remove a topic and its messages from all brokers and name servers, if it exists. This cannot be undone."""
        self._call_masters(self.masters(), RequestCode.DELETE_TOPIC_IN_BROKER, {"topic": topic}, topic=topic)
        accept = (ResponseCode.SUCCESS, ResponseCode.TOPIC_NOT_EXIST)
        self._remoting.call_name_server(RequestCode.DELETE_TOPIC_IN_NAME_SERVER, {"topic": topic}, accept=accept)
        self._routes.forget(topic)

    def create_group(self, group: str, *, cluster: str | None = None) -> None:
        """Make a consumer group, where brokers do not make groups by themselves (autoCreateSubscriptionGroup=false)."""
        config = {"groupName": group, "consumeEnable": True, "notifyConsumerIdsChangedEnable": True}
        body = json.dumps(config).encode()
        self._call_masters(self.masters(cluster), RequestCode.CREATE_SUBSCRIPTION_GROUP, {}, body, detail=group)

    def _call_masters(
        self,
        masters: Mapping[str, str],
        code: RequestCode,
        fields: Mapping[str, str],
        body: bytes = b"",
        *,
        topic: str = "",
        detail: str = "",
    ) -> None:
        calls = [
            Call(code=code, target=_fixed(address, fields), body=body, detail=detail or topic)
            for _, address in sorted(masters.items())
        ]
        self._remoting.call_all(calls)


def _fixed(address: str, fields: Mapping[str, str]) -> Callable[[], tuple[str, Mapping[str, str]]]:
    return lambda: (address, fields)
