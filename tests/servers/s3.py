"""An S3 server on loopback: moto, in a Python environment of its own. It keeps objects in memory."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from tests.servers.directories import cache_directory, digest, locked
from tests.servers.errors import MissingDownloadError
from tests.servers.jars import program_directory
from tests.servers.ports import reserve_ports
from tests.servers.processes import ProcessGroup
from tests.servers.server import START_TIMEOUT, Server

_REQUIREMENTS = Path(__file__).with_name("requirements-s3.txt")
#: Jars that pyspark has itself, perhaps in another version.
_OF_SPARK = ("commons-codec-", "commons-logging-", "netty-", "slf4j-api-")


@dataclass(frozen=True, kw_only=True)
class S3Options:
    """How to make a server: there is nothing to choose."""


@dataclass(kw_only=True)
class S3Server(Server[S3Options]):
    """An S3 server. It takes any signed request; whether the signature is right it does not check."""

    host: str = "127.0.0.1"
    port: int
    access_key: str = "access"
    secret_key: str = "hidden-in-tests"
    region: str = "us-east-1"

    kind: ClassVar[str] = "s3"
    variable: ClassVar[str] = "HEADRACE_TEST_S3"

    @property
    def endpoint(self) -> str:
        """The URL of the server."""
        return f"http://{self.host}:{self.port}"

    @property
    def conf(self) -> dict[str, str]:
        """Spark's settings for this server."""
        return {
            "spark.hadoop.fs.s3a.endpoint": self.endpoint,
            "spark.hadoop.fs.s3a.endpoint.region": self.region,
            "spark.hadoop.fs.s3a.access.key": self.access_key,
            "spark.hadoop.fs.s3a.secret.key": self.secret_key,
            "spark.hadoop.fs.s3a.path.style.access": "true",
        }

    def file_system(self, **options: Any) -> Any:
        """pyarrow's file system of this server."""
        from pyarrow import fs  # not at the top: every test run loads this module

        return fs.S3FileSystem(
            access_key=self.access_key,
            secret_key=self.secret_key,
            region=self.region,
            scheme="http",
            endpoint_override=f"{self.host}:{self.port}",
            **options,
        )

    @classmethod
    def create(cls, directory: Path, options: S3Options | None = None) -> S3Server:
        """See Server.create."""
        made = cls(directory=directory, port=reserve_ports(1, str(directory)))
        made.save()
        return made

    @classmethod
    def from_variable(cls, value: str) -> S3Server:
        """From ACCESS_KEY:SECRET_KEY@host:port."""
        keys, _, address = value.rpartition("@")
        access_key, _, secret_key = keys.partition(":")
        host, _, port = address.rpartition(":")
        return cls(directory=None, host=host, port=int(port), access_key=access_key, secret_key=secret_key)

    def to_variable(self) -> str:
        """See Server.to_variable."""
        return f"{self.access_key}:{self.secret_key}@{self.host}:{self.port}"

    @classmethod
    def prepared_marker(cls) -> Path:
        """See Server.prepared_marker."""
        return _environment() / "prepared"

    def _launch(self, processes: ProcessGroup) -> None:
        if not processes.is_alive("s3"):
            command = [_environment() / "bin" / "python", "-u", "-m", "moto.server", "-H", self.host, "-p", self.port]
            processes.spawn("s3", [str(part) for part in command], environment={"PYTHONPATH": ""})
            processes.wait_until_logged("s3", "Running on", START_TIMEOUT)


def _environment() -> Path:
    """The environment of the server in the cache; made by pip the first time, which needs the network."""
    content = _REQUIREMENTS.read_bytes() + sys.version.encode()
    directory = cache_directory() / f"s3-{digest(content)}"
    with locked(cache_directory() / "s3.environment.lock"):
        if not directory.is_dir():
            scratch = Path(tempfile.mkdtemp(dir=cache_directory()))
            try:
                _run([sys.executable, "-m", "venv", str(scratch)])
                _run([str(scratch / "bin/python"), "-m", "pip", "install", "--quiet", "-r", str(_REQUIREMENTS)])
                os.rename(scratch, directory)
            finally:
                shutil.rmtree(scratch, ignore_errors=True)
    return directory


def _run(command: list[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise MissingDownloadError(f"pip could not install the S3 server:\n{done.stderr[-3000:]}")


def s3_client_jars() -> list[Path]:
    """The jars of Hadoop's s3a. Of Amazon's SDK only the parts that are used: the whole is 600 MB."""
    jars = sorted((program_directory("s3-client") / "lib").glob("*.jar"))
    return [jar for jar in jars if not jar.name.startswith(_OF_SPARK)]
