"""A schema registry: Apicurio Registry, which speaks Confluent's protocol. It keeps schemas in memory."""

from __future__ import annotations

import tarfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar

from tests.servers.directories import cache_directory, locked
from tests.servers.jars import program_directory
from tests.servers.java import find_java, jvm_command
from tests.servers.ports import reserve_ports
from tests.servers.processes import ProcessGroup
from tests.servers.server import START_TIMEOUT, Server

_JAVA_MINIMUM = 11
_PROTOCOL_PATH = "/apis/ccompat/v7"


@dataclass(frozen=True, kw_only=True)
class SchemaRegistryOptions:
    """How to make a registry."""

    heap: str = "256m"
    config: Mapping[str, str] = field(default_factory=dict)
    """Further properties of the application, such as {"quarkus.log.level": "DEBUG"}."""


@dataclass(kw_only=True)
class SchemaRegistryServer(Server[SchemaRegistryOptions]):
    """A registry. Process: `registry`. Schemas are gone when it stops."""

    url: str
    """http://127.0.0.1:port and the path of the protocol."""
    heap: str = "256m"
    config: dict[str, str] = field(default_factory=dict, repr=False)

    kind: ClassVar[str] = "schema-registry"
    variable: ClassVar[str] = "HEADRACE_TEST_SCHEMA_REGISTRY"

    @classmethod
    def create(cls, directory: Path, options: SchemaRegistryOptions | None = None) -> SchemaRegistryServer:
        """See Server.create."""
        options = options or SchemaRegistryOptions()
        port = reserve_ports(1, str(directory))
        config = {"quarkus.http.host": "127.0.0.1", "quarkus.http.port": str(port), **options.config}
        made = cls(
            directory=directory, url=f"http://127.0.0.1:{port}{_PROTOCOL_PATH}", heap=options.heap, config=config
        )
        made.save()
        return made

    @classmethod
    def from_variable(cls, value: str) -> SchemaRegistryServer:
        """From a URL."""
        return cls(directory=None, url=value)

    def to_variable(self) -> str:
        """See Server.to_variable."""
        return self.url

    @classmethod
    def prepared_marker(cls) -> Path:
        """See Server.prepared_marker."""
        return _home().parent / f"prepared-{find_java(_JAVA_MINIMUM).version}"

    def _launch(self, processes: ProcessGroup) -> None:
        if processes.is_alive("registry"):
            return
        home, java = _home(), find_java(_JAVA_MINIMUM)
        command = jvm_command(java, home.parent, "registry", self.heap, record_classes=processes.record_classes)
        [jar] = home.glob("*-runner.jar")
        properties = [f"-D{name}={value}" for name, value in self.config.items()]
        processes.spawn("registry", [*command, *properties, "-jar", str(jar)])
        processes.wait_until_logged("registry", "Listening on", START_TIMEOUT)


def _home() -> Path:
    """The application's directory, unpacked once."""
    program = program_directory("apicurio")
    home = program / "home"
    with locked(cache_directory() / "apicurio.home.lock"):
        if not home.is_dir():
            [archive] = (program / "lib").glob("*.tar.gz")
            part = program / "part"
            with tarfile.open(archive) as packed:
                packed.extractall(part, filter="data")
            part.rename(home)
    return home
