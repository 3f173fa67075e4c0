"""RocketMQ: a name server and one or more master brokers, from the jars of Apache RocketMQ."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import ClassVar

from tests.servers.certificates import Certificates, make_certificates
from tests.servers.errors import TestServerError
from tests.servers.jars import program_directory
from tests.servers.java import find_java, jvm_command
from tests.servers.login import Login, make_login
from tests.servers.ports import reserve_ports
from tests.servers.processes import ProcessGroup
from tests.servers.rocketmq_remoting import (
    CREATE_USER,
    GET_ROUTE,
    GET_USER,
    SUCCESS,
    UPDATE_BROKER_CONFIG,
    Reply,
    request,
)
from tests.servers.server import START_TIMEOUT, Server

_SELF_TEST_TOPIC = "SELF_TEST_TOPIC"  # exists always
_JAVA_MINIMUM = 17

# The broker names its loggers' appenders in a shaded logback.
_LOGBACK = """<configuration>
  <appender name="OUT" class="org.apache.rocketmq.logging.ch.qos.logback.core.ConsoleAppender">
    <encoder><pattern>%d %-5level %logger{0} %msg%n</pattern></encoder></appender>
  <root level="WARN"><appender-ref ref="OUT"/></root>
</configuration>
"""


@dataclass(frozen=True, kw_only=True)
class RocketMQOptions:
    """How to make a RocketMQ server."""

    brokers: int = 1
    """Master brokers, named broker-0, broker-1, …"""
    secure: bool = False
    """Demand signed requests (access control) and offer TLS (see RocketMQSecurity)."""
    require_tls: bool = False
    """Refuse connections without TLS; only together with `secure`."""
    heap: str = "512m"
    """The Java heap of each broker."""
    config: Mapping[str, str] = field(default_factory=dict)
    """Further lines of broker.conf, for every broker."""


@dataclass(frozen=True, kw_only=True)
class RocketMQSecurity:
    """How to reach a secure server. The brokers demand signed requests; the name server knows TLS but no users."""

    certificates: Certificates
    require_tls: bool
    """Whether name server and brokers refuse connections without TLS; else they take both on one port."""
    user: Login
    """Access key and secret key of a super user, who may do everything."""
    outsider: Login
    """Access key and secret key of an ordinary user without any permission."""


@dataclass(kw_only=True)
class RocketMQServer(Server[RocketMQOptions]):
    """A RocketMQ name server and its brokers. Processes: `namesrv`, `broker-0`, `broker-1`, …"""

    name_server: str
    """host:port of the name server."""
    brokers: dict[str, str]
    """host:port of each master broker, by the broker's name."""
    security: RocketMQSecurity | None = None
    """Only if it was made with RocketMQOptions(secure=True)."""
    heap: str = "512m"

    kind: ClassVar[str] = "rocketmq"
    variable: ClassVar[str] = "HEADRACE_TEST_ROCKETMQ"
    # A broker's clean stop joins threads that sleep for seconds: 12 to 17 s were seen.
    stop_timeout: ClassVar[timedelta] = timedelta(seconds=60)

    @classmethod
    def create(cls, directory: Path, options: RocketMQOptions | None = None) -> RocketMQServer:
        """See Server.create."""
        options = options or RocketMQOptions()
        owner = str(directory)
        name_server_port = reserve_ports(1, owner)
        security = None
        if options.secure:
            security = RocketMQSecurity(
                certificates=make_certificates(directory / "certificates"),
                require_tls=options.require_tls,
                user=make_login("headrace"),
                outsider=make_login("outsider"),
            )
        server = cls(
            directory=directory,
            name_server=f"127.0.0.1:{name_server_port}",
            brokers={},
            security=security,
            heap=options.heap,
        )
        (directory / "logback.xml").write_text(_LOGBACK)
        (directory / "namesrv.conf").write_text(f"listenPort={name_server_port}\nbindAddress=127.0.0.1\n")
        for index in range(options.brokers):
            # A broker also listens two ports below (the "VIP" channel) and one above (replication).
            port = reserve_ports(4, owner) + 2
            name = f"broker-{index}"
            server.brokers[name] = f"127.0.0.1:{port}"
            properties = {**server._broker_properties(name, index, port), **options.config}
            lines = "".join(f"{key}={value}\n" for key, value in properties.items())
            path = directory / f"{name}.conf"
            path.touch(mode=0o600)  # of a secure broker it holds a password
            path.write_text(lines)
        server.save()
        return server

    @classmethod
    def from_variable(cls, value: str) -> RocketMQServer:
        """From host:port of a name server."""
        reply = request(value, GET_ROUTE, {"topic": _SELF_TEST_TOPIC})
        found = json.loads(reply.body)["brokerDatas"] if reply.code == 0 else []
        brokers = {broker["brokerName"]: broker["brokerAddrs"]["0"] for broker in found}
        return cls(directory=None, name_server=value, brokers=brokers)

    def to_variable(self) -> str:
        """See Server.to_variable."""
        return self.name_server

    @classmethod
    def prepared_marker(cls) -> Path:
        """See Server.prepared_marker."""
        return program_directory("rocketmq") / f"prepared-{find_java(_JAVA_MINIMUM).version}"

    def request(self, address: str, code: int, fields: Mapping[str, str] | None = None, body: bytes = b"") -> Reply:
        """Send a request to the name server or a broker, signed as the super user and over TLS where that is needed."""
        login = self.security.user if self.security else None
        tls = self.security.certificates.client_context() if self.security and self.security.require_tls else None
        return request(address, code, fields, body, login=login, tls=tls)

    def _broker_properties(self, name: str, index: int, port: int) -> dict[str, object]:
        store = self._own_directory() / f"store-{index}"
        access_control = _access_control_properties(self.security.user) if self.security else {}
        return {
            **access_control,
            "brokerClusterName": "test",
            "brokerName": name,
            "brokerId": 0,
            "brokerRole": "ASYNC_MASTER",
            "flushDiskType": "ASYNC_FLUSH",
            "brokerIP1": "127.0.0.1",
            "brokerIP2": "127.0.0.1",
            "bindAddress": "127.0.0.1",
            "listenPort": port,
            "haListenPort": port + 1,
            "namesrvAddr": self.name_server,
            "storePathRootDir": store,
            "storePathCommitLog": store / "commitlog",
            "mappedFileSizeCommitLog": 64 << 20,
            "diskMaxUsedSpaceRatio": 99,
            "autoCreateTopicEnable": "true",
            "autoCreateSubscriptionGroup": "true",
            "enablePropertyFilter": "true",  # SQL92 filters
        }

    def _launch(self, processes: ProcessGroup) -> None:
        if not processes.is_alive("namesrv"):
            main_class = "org.apache.rocketmq.namesrv.NamesrvStartup"
            processes.spawn("namesrv", self._command(processes, "namesrv", "128m", main_class))
            processes.wait_until_logged("namesrv", "boot success", START_TIMEOUT)
        spawned = [name for name in self.brokers if not processes.is_alive(name)]
        for name in spawned:
            main_class = "org.apache.rocketmq.broker.BrokerStartup"
            processes.spawn(name, self._command(processes, name, self.heap, main_class))
        for name in spawned:
            processes.wait_until_logged(name, "boot success", START_TIMEOUT)
        for name in self.brokers:
            processes.wait_until(name, partial(self._register, name), START_TIMEOUT)
            self._create_outsider(name)

    def _command(self, processes: ProcessGroup, label: str, heap: str, main_class: str) -> list[str]:
        program, directory = program_directory("rocketmq"), self._own_directory()
        archive = label.partition("-")[0]  # all brokers share one class data archive
        jvm = jvm_command(find_java(_JAVA_MINIMUM), program, archive, heap, record_classes=processes.record_classes)
        settings = [
            "-XX:MaxDirectMemorySize=256m",
            f"-Drmq.logback.configurationFile={directory}/logback.xml",
            *_tls_options(self.security),
            f"-Duser.home={directory}",
            f"-Drocketmq.home.dir={directory}",
            f"-Djava.io.tmpdir={directory}",
        ]
        return [*jvm, *settings, "-cp", f"{program}/lib/*", main_class, "-c", f"{label}.conf"]

    def _register(self, broker: str) -> bool:
        """Whether clients can find the broker; if not, make it register again.

        "boot success" in its log does not say so: a quick broker misses the name server and would try again only
        after 10 s, until when clients see no route. Setting its permission makes it register at once.
        """
        reply = self.request(self.name_server, GET_ROUTE, {"topic": _SELF_TEST_TOPIC})
        if reply.code == SUCCESS and broker in {data["brokerName"] for data in json.loads(reply.body)["brokerDatas"]}:
            return True
        self.request(self.brokers[broker], UPDATE_BROKER_CONFIG, body=b"brokerPermission=6\n")
        return False

    def _create_outsider(self, broker: str) -> None:
        if self.security is None:
            return
        address, login = self.brokers[broker], self.security.outsider
        if self.request(address, GET_USER, {"username": login.name}).body:
            return  # from an earlier start: users are part of the broker's data
        user = {"username": login.name, "password": login.password, "userType": "Normal"}
        reply = self.request(address, CREATE_USER, {"username": login.name}, json.dumps(user).encode())
        if reply.code != SUCCESS:
            raise TestServerError(f"{broker} did not create the user {login.name}: {reply}")


def _access_control_properties(user: Login) -> dict[str, object]:
    """Access control as of RocketMQ 5.3; the super user is made when the broker starts for the first time."""
    providers = "org.apache.rocketmq.auth"
    return {
        "authenticationEnabled": "true",
        "authenticationProvider": f"{providers}.authentication.provider.DefaultAuthenticationProvider",
        "authenticationMetadataProvider": f"{providers}.authentication.provider.LocalAuthenticationMetadataProvider",
        "initAuthenticationUser": json.dumps({"username": user.name, "password": user.password}),
        "innerClientAuthenticationCredentials": json.dumps({"accessKey": user.name, "secretKey": user.password}),
        "authorizationEnabled": "true",
        "authorizationProvider": f"{providers}.authorization.provider.DefaultAuthorizationProvider",
        "authorizationMetadataProvider": f"{providers}.authorization.provider.LocalAuthorizationMetadataProvider",
    }


def _tls_options(security: RocketMQSecurity | None) -> list[str]:
    if security is None:
        return ["-Dtls.server.mode=disabled"]  # else each start makes an RSA key, which takes 1 to 2 s
    files = security.certificates
    return [
        # Enforcing mode also makes the brokers use TLS between themselves and towards the name server.
        f"-Dtls.server.mode={'enforcing' if security.require_tls else 'permissive'}",
        "-Dtls.test.mode.enable=false",
        f"-Dtls.server.certPath={files.server}",
        f"-Dtls.server.keyPath={files.server_key}",
        "-Dtls.client.authServer=true",
        f"-Dtls.client.trustCertPath={files.authority}",
    ]
