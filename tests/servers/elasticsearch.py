"""Elasticsearch: one node, put together from the jars that are published for it.

The node is the real one, but some of its modules are not published: see README.md for what it lacks.
"""

from __future__ import annotations

import base64
import os
import re
import shutil
import subprocess
import urllib.request
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar

from tests.servers.certificates import Certificates, make_certificates
from tests.servers.directories import cache_directory, digest, locked
from tests.servers.errors import TestServerError
from tests.servers.jars import program_directory
from tests.servers.java import find_java, jvm_command
from tests.servers.login import Login, make_login
from tests.servers.ports import reserve_ports
from tests.servers.processes import ProcessGroup
from tests.servers.server import START_TIMEOUT, Server

_JAVA_MINIMUM = 21
_SOURCES = Path(__file__).with_name("elasticsearch_node")
_NETTY4_PLUGIN = "org.elasticsearch.transport.netty4.Netty4Plugin"


@dataclass(frozen=True, kw_only=True)
class ElasticsearchOptions:
    """How to make an Elasticsearch server."""

    secure: bool = False
    """Use TLS and ask for a password or an API key (see ElasticsearchSecurity)."""
    heap: str = "512m"
    config: Mapping[str, str] = field(default_factory=dict)
    """Further settings of the node, such as {"action.auto_create_index": "false"}."""


@dataclass(frozen=True, kw_only=True)
class ElasticsearchSecurity:
    """How to reach a secure server. There are no roles: who gets in may do everything."""

    certificates: Certificates
    user: Login
    """For basic authentication."""
    api_key: str = field(repr=False)
    """The encoded form, base64 of "id:key", that clients take as `api_key`."""


@dataclass(kw_only=True)
class ElasticsearchServer(Server[ElasticsearchOptions]):
    """An Elasticsearch node. Process: `elasticsearch`."""

    url: str = field(repr=False)
    """http://127.0.0.1:port, or https:// if secure; for a server that is not ours perhaps with user and password."""
    security: ElasticsearchSecurity | None = None
    """Only if it was made with ElasticsearchOptions(secure=True)."""
    heap: str = "512m"
    settings: dict[str, str] = field(default_factory=dict, repr=False)

    kind: ClassVar[str] = "elasticsearch"
    variable: ClassVar[str] = "HEADRACE_TEST_ELASTICSEARCH"

    @classmethod
    def create(cls, directory: Path, options: ElasticsearchOptions | None = None) -> ElasticsearchServer:
        """See Server.create."""
        options = options or ElasticsearchOptions()
        port = reserve_ports(2, str(directory))
        security = None
        if options.secure:
            key = make_login("test-key")
            security = ElasticsearchSecurity(
                certificates=make_certificates(directory / "certificates"),
                user=make_login("headrace"),
                api_key=_base64(f"{key.name}:{key.password}"),
            )
            _write_authorizations(directory / "authorizations", security)
        (directory / "config").mkdir()
        settings = {
            "path.home": str(_home()),
            "path.data": f"{directory}/data",
            "path.logs": f"{directory}/logs",
            "network.host": "127.0.0.1",
            "http.port": str(port),
            "transport.port": str(port + 1),
            "cluster.name": "test",
            "discovery.type": "single-node",
            # A disk that is nearly full must not turn the tests' indices read-only.
            "cluster.routing.allocation.disk.threshold_enabled": "false",
            "action.destructive_requires_name": "false",
            **options.config,
        }
        scheme = "https" if security else "http"
        url = f"{scheme}://127.0.0.1:{port}"
        server = cls(directory=directory, url=url, security=security, heap=options.heap, settings=settings)
        server.save()
        return server

    @classmethod
    def from_variable(cls, value: str) -> ElasticsearchServer:
        """From a URL, with user and password in it if the server asks for them."""
        return cls(directory=None, url=value)

    def to_variable(self) -> str:
        """See Server.to_variable."""
        return self.url

    @classmethod
    def prepared_marker(cls) -> Path:
        """See Server.prepared_marker."""
        return _home().parent / f"prepared-{find_java(_JAVA_MINIMUM).version}"

    def _launch(self, processes: ProcessGroup) -> None:
        if processes.is_alive("elasticsearch"):
            return
        directory, home, java = self._own_directory(), _home(), find_java(_JAVA_MINIMUM)
        # A class data archive is bound to its class path, which is in our directory below the program's.
        jvm = jvm_command(java, home.parent, "elasticsearch", self.heap, record_classes=processes.record_classes)
        properties = [f"-Djava.io.tmpdir={directory}", f"-Des.path.home={home}"]
        if self.security:
            files = self.security.certificates
            properties += [f"-Dheadrace.certificate={files.server}", f"-Dheadrace.key={files.server_key}"]
            properties += [f"-Dheadrace.authorizations={directory}/authorizations"]
        access = ["--enable-native-access=ALL-UNNAMED", "--add-opens=java.base/java.io=ALL-UNNAMED"]
        settings = [f"{key}={value}" for key, value in self.settings.items()]
        class_path = ["-cp", f"{home}/lib/*"]
        processes.spawn("elasticsearch", [*jvm, *properties, *access, *class_path, "RunElasticsearch", *settings])
        processes.wait_until_logged("elasticsearch", "node started", START_TIMEOUT)
        self._wait_for_shards()

    def _wait_for_shards(self) -> None:
        """Wait until the indices of an earlier start can be used; they open some time after the node answers."""
        timeout_s = START_TIMEOUT.total_seconds()
        path = f"/_cluster/health?wait_for_status=yellow&timeout={timeout_s:.0f}s"
        asked = urllib.request.Request(self.url + path)
        context = None
        if self.security:
            asked.add_header("Authorization", f"ApiKey {self.security.api_key}")
            context = self.security.certificates.client_context()
        with urllib.request.urlopen(asked, timeout=timeout_s + 10, context=context) as answer:
            answer.read()


def _base64(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


def _write_authorizations(path: Path, security: ElasticsearchSecurity) -> None:
    basic = _base64(f"{security.user.name}:{security.user.password}")
    path.touch(mode=0o600)
    path.write_text(f"Basic {basic}\nApiKey {security.api_key}\n")


def _home() -> Path:
    """The node's home directory, put together once: the server's jars in lib/, its modules in modules/.

    It is in a directory named for our Java sources, so that a change of them makes a new one.
    """
    program = program_directory("elasticsearch")
    sources = sorted(_SOURCES.glob("*.java"))
    home = program / f"node-{digest(b''.join(source.read_bytes() for source in sources))}" / "home"
    with locked(cache_directory() / "elasticsearch.home.lock"):
        if not home.is_dir():
            part = home.with_name("part")
            shutil.rmtree(part, ignore_errors=True)
            _build_home(program / "lib", sources, part)
            part.rename(home)
    return home


def _build_home(jars: Path, sources: list[Path], home: Path) -> None:
    library, netty, root = home / "lib", home / "modules" / "transport-netty4", home / "modules" / "root"
    for directory in (library, netty, root):
        directory.mkdir(parents=True)
    for jar in jars.glob("*.jar"):
        is_netty = jar.name.startswith(("netty-", "transport-netty4-"))
        os.link(jar, (netty if is_netty else library) / jar.name)
    classes = home / "classes"
    _compile(sources, [library, netty], classes)
    # Jars, because class data archives do not take class files; each module's class in the module's own jar, because
    # its own class loader must define it.
    _pack(classes, "RunElasticsearch", library / "run-elasticsearch.jar")
    _pack(classes, "RootPlugin", root / "root.jar")
    _pack(classes, "SecureNetty4Plugin", netty / "secure-netty4.jar")
    shutil.rmtree(classes)

    with zipfile.ZipFile(next(netty.glob("transport-netty4-*.jar"))) as jar_file:
        published = "META-INF/es-plugins/transport-netty4/plugin-descriptor.properties"
        descriptor = jar_file.read(published).decode()
    descriptor = re.sub(r"(?m)^(modulename=|#).*\n", "", descriptor)  # the node runs without Java modules
    if _NETTY4_PLUGIN not in descriptor:
        raise TestServerError(f"{published} does not name {_NETTY4_PLUGIN}; the new version needs another way in")
    (netty / "plugin-descriptor.properties").write_text(descriptor.replace(_NETTY4_PLUGIN, "SecureNetty4Plugin"))
    root_descriptor = descriptor.replace(_NETTY4_PLUGIN, "RootPlugin").replace("transport-netty4", "root")
    (root / "plugin-descriptor.properties").write_text(root_descriptor)


def _compile(sources: list[Path], libraries: list[Path], output: Path) -> None:
    compiler = program_directory("java-compiler") / "lib"
    class_path = os.pathsep.join(str(jar) for library in libraries for jar in sorted(library.glob("*.jar")))
    command = [str(find_java(_JAVA_MINIMUM).executable), "-cp", f"{compiler}/*"]
    command += ["org.eclipse.jdt.internal.compiler.batch.Main", "-source", "21", "-target", "21", "-nowarn"]
    command += ["-cp", class_path, "-d", str(output), *map(str, sources)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise TestServerError(f"the Java sources in {_SOURCES} do not compile:\n{done.stdout}{done.stderr}")


def _pack(classes: Path, name: str, jar: Path) -> None:
    """Put a class and its inner classes into a jar."""
    with zipfile.ZipFile(jar, "w") as archive:
        for path in sorted(classes.glob(f"{name}*.class")):
            archive.write(path, path.name)
