"""Kafka: one node that is broker and controller (KRaft), from the jars of Apache Kafka."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar

from tests.servers.certificates import Certificates, make_certificates
from tests.servers.directories import cache_directory, locked
from tests.servers.errors import TestServerError
from tests.servers.jars import program_directory
from tests.servers.java import find_java, jvm_command
from tests.servers.login import Login, make_login
from tests.servers.ports import reserve_ports
from tests.servers.processes import ProcessGroup
from tests.servers.server import START_TIMEOUT, Server

_JAVA_MINIMUM = 17
_CLUSTER_ID = "headrace-tests-000000A"  # any 16 bytes, as 22 characters of base64
_SCRAM_MECHANISMS = ("SCRAM-SHA-256", "SCRAM-SHA-512")
_PLAIN_MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule"
_SCRAM_MODULE = "org.apache.kafka.common.security.scram.ScramLoginModule"


@dataclass(frozen=True, kw_only=True)
class KafkaOptions:
    """How to make a Kafka server."""

    secure: bool = False
    """Add listeners with SASL and TLS, and an authorizer (see KafkaSecurity)."""
    heap: str = "512m"
    config: Mapping[str, str] = field(default_factory=dict)
    """Further lines of server.properties."""


@dataclass(frozen=True, kw_only=True)
class KafkaSecurity:
    """How to reach a secure Kafka server; its listeners without TLS and SASL let everybody do everything."""

    sasl_plaintext: str
    """host:port of the listener with SASL (PLAIN, SCRAM-SHA-256, SCRAM-SHA-512) without TLS."""
    sasl_ssl: str
    """host:port of the listener with SASL over TLS."""
    ssl: str
    """host:port of the listener with TLS; who presents no certificate is ANONYMOUS."""
    certificates: Certificates
    user: Login
    """May do everything."""
    outsider: Login
    """Can log in but may do nothing."""


@dataclass(kw_only=True)
class KafkaServer(Server[KafkaOptions]):
    """A Kafka server of one node; creates topics of one partition on first use. Process: `kafka`."""

    bootstrap: str
    """host:port of the listener without TLS and without SASL."""
    security: KafkaSecurity | None = None
    """Only if it was made with KafkaOptions(secure=True)."""
    heap: str = "512m"

    kind: ClassVar[str] = "kafka"
    variable: ClassVar[str] = "HEADRACE_TEST_KAFKA"

    @classmethod
    def create(cls, directory: Path, options: KafkaOptions | None = None) -> KafkaServer:
        """See Server.create."""
        options = options or KafkaOptions()
        port = reserve_ports(5, str(directory))
        security = None
        if options.secure:
            security = KafkaSecurity(
                sasl_plaintext=f"127.0.0.1:{port + 2}",
                sasl_ssl=f"127.0.0.1:{port + 3}",
                ssl=f"127.0.0.1:{port + 4}",
                certificates=make_certificates(directory / "certificates"),
                user=make_login("user"),
                outsider=make_login("outsider"),
            )
        server = cls(directory=directory, bootstrap=f"127.0.0.1:{port}", security=security, heap=options.heap)
        properties = server._properties(f"127.0.0.1:{port + 1}")
        if security:
            properties |= _security_properties(security)
        properties |= options.config
        lines = "".join(f"{key}={value}\n" for key, value in properties.items())
        (directory / "server.properties").write_text(lines)
        server._format_storage()
        server.save()
        return server

    @classmethod
    def from_variable(cls, value: str) -> KafkaServer:
        """From host:port of a listener without TLS and SASL."""
        return cls(directory=None, bootstrap=value)

    def to_variable(self) -> str:
        """See Server.to_variable."""
        return self.bootstrap

    @classmethod
    def prepared_marker(cls) -> Path:
        """See Server.prepared_marker."""
        return program_directory("kafka") / f"prepared-{find_java(_JAVA_MINIMUM).version}"

    def _properties(self, controller: str) -> dict[str, str]:
        listeners = {"PLAINTEXT": self.bootstrap}
        if self.security:
            listeners |= {
                "SASL_PLAINTEXT": self.security.sasl_plaintext,
                "SASL_SSL": self.security.sasl_ssl,
                "SSL": self.security.ssl,
            }
        advertised = ",".join(f"{name}://{address}" for name, address in listeners.items())
        return {
            "process.roles": "broker,controller",
            "node.id": "1",
            "controller.quorum.voters": f"1@{controller}",
            "controller.listener.names": "CONTROLLER",
            "listener.security.protocol.map": ",".join(f"{n}:{n}" for n in listeners) + ",CONTROLLER:PLAINTEXT",
            "listeners": f"{advertised},CONTROLLER://{controller}",
            "advertised.listeners": advertised,
            "log.dirs": f"{self._own_directory()}/data",
            "num.partitions": "1",
            "auto.create.topics.enable": "true",
            # One node cannot hold three replicas.
            "offsets.topic.replication.factor": "1",
            "transaction.state.log.replication.factor": "1",
            "transaction.state.log.min.isr": "1",
            "share.coordinator.state.topic.replication.factor": "1",
            "share.coordinator.state.topic.min.isr": "1",
            # Few files and little memory, for a quick start.
            "offsets.topic.num.partitions": "1",
            "transaction.state.log.num.partitions": "1",
            "share.coordinator.state.topic.num.partitions": "1",
            "log.cleaner.dedupe.buffer.size": str(4 << 20),
            # After a crash the node is let in again only when its old session is over (9 s by default).
            "broker.session.timeout.ms": "3000",
            "broker.heartbeat.interval.ms": "500",
            # Tests of rebalancing should not wait for the members of a production group.
            "group.initial.rebalance.delay.ms": "0",
            "group.min.session.timeout.ms": "1000",
        }

    def _format_storage(self) -> None:
        """Write the empty data directory. This costs a JVM's start, so that the plain one is made once and copied."""
        data = self._own_directory() / "data"
        if self.security:
            self._run_format(self.security)
            return
        template = program_directory("kafka") / "formatted"
        with locked(cache_directory() / "kafka.format.lock"):
            if not template.is_dir():
                self._run_format(None)
                scratch = template.with_suffix(".part")
                shutil.copytree(data, scratch, dirs_exist_ok=True)
                scratch.rename(template)
        shutil.copytree(template, data, dirs_exist_ok=True)

    def _run_format(self, security: KafkaSecurity | None) -> None:
        directory = self._own_directory()
        command = [str(find_java(_JAVA_MINIMUM).executable), *_run_options(), "kafka.tools.StorageTool", "format"]
        command += ["--cluster-id", _CLUSTER_ID, "--config", f"{directory}/server.properties"]
        for login in (security.user, security.outsider) if security else ():
            for mechanism in _SCRAM_MECHANISMS:
                command += ["--add-scram", f"{mechanism}=[name={login.name},password={login.password}]"]
        done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=directory)
        if done.returncode:
            raise TestServerError(f"Kafka's storage could not be formatted:\n{done.stdout}{done.stderr}")

    def _launch(self, processes: ProcessGroup) -> None:
        if processes.is_alive("kafka"):
            return
        record = processes.record_classes
        jvm = jvm_command(
            find_java(_JAVA_MINIMUM), program_directory("kafka"), "kafka", self.heap, record_classes=record
        )
        processes.spawn("kafka", [*jvm, *_run_options(), "kafka.Kafka", "server.properties"])
        processes.wait_until_logged("kafka", "Kafka Server started", START_TIMEOUT)


def _run_options() -> list[str]:
    quiet = "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn"
    ready = "-Dorg.slf4j.simpleLogger.log.kafka.server.KafkaRaftServer=info"  # says "Kafka Server started"
    return [quiet, ready, "-cp", f"{program_directory('kafka')}/lib/*"]


def _security_properties(security: KafkaSecurity) -> dict[str, str]:
    certificates = security.certificates
    # Kafka wants the key and the certificate in one file.
    key_store = certificates.server.with_name("server-with-key.pem")
    key_store.write_text(certificates.server_key.read_text() + certificates.server.read_text())
    key_store.chmod(0o600)
    users = " ".join(f'user_{login.name}="{login.password}"' for login in (security.user, security.outsider))
    properties = {
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(key_store),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(certificates.authority),
        "listener.name.ssl.ssl.client.auth": "requested",
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": f"User:ANONYMOUS;User:{security.user.name};User:CN=client",
        "allow.everyone.if.no.acl.found": "false",
    }
    for listener in ("sasl_plaintext", "sasl_ssl"):
        prefix = f"listener.name.{listener}"
        properties[f"{prefix}.sasl.enabled.mechanisms"] = ",".join(["PLAIN", *_SCRAM_MECHANISMS])
        properties[f"{prefix}.plain.sasl.jaas.config"] = f"{_PLAIN_MODULE} required {users};"
        for mechanism in _SCRAM_MECHANISMS:
            properties[f"{prefix}.{mechanism.lower()}.sasl.jaas.config"] = f"{_SCRAM_MODULE} required;"
    return properties
