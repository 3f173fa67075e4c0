"""A Spark standalone cluster on loopback, from the installed pyspark: a Master and some Workers, each a process of its own."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import signal
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import ClassVar

import psutil

from tests.servers.directories import cache_directory
from tests.servers.errors import MissingProgramError
from tests.servers.java import find_java, jvm_command
from tests.servers.ports import reserve_ports
from tests.servers.processes import ProcessGroup
from tests.servers.server import START_TIMEOUT, Server

_JAVA_MINIMUM = 17
_MASTER_CLASS = "org.apache.spark.deploy.master.Master"
_WORKER_CLASS = "org.apache.spark.deploy.worker.Worker"
_LOGGING = """
rootLogger.level = info
rootLogger.appenderRef.stdout.ref = console
appender.console.type = Console
appender.console.name = console
appender.console.target = SYSTEM_ERR
appender.console.layout.type = PatternLayout
appender.console.layout.pattern = %d %p %c: %m%n
"""


@dataclass(frozen=True, kw_only=True)
class SparkClusterOptions:
    """How to make a cluster."""

    workers: int = 3
    cores: int = 1
    """Of each worker."""
    memory: str = "2g"
    """Of each worker, for its executors; nothing is taken before an executor is started."""
    conf: dict[str, str] = field(default_factory=dict)
    """Settings of Spark for master and workers."""
    recovers: bool = False
    """Whether a master that is started again knows applications and workers of before."""
    own_addresses: bool = False
    """Whether each worker has an address of its own (127.0.0.2, …): Spark runs the copy of a slow task on another machine only."""
    later_workers: int = 0
    """How many of the workers are not started at first, but by `add_worker`."""


@dataclass(kw_only=True)
class SparkCluster(Server[SparkClusterOptions]):
    """A standalone cluster. Processes: `master` and `worker-0`, `worker-1`, …; executors are children of their worker.

    Its workers have neither the path of the tests' Python nor their working directory: what a job needs there, it must bring.
    """

    host: str = "127.0.0.1"
    port: int
    worker_count: int = 3
    cores: int = 1
    memory: str = "2g"
    conf: dict[str, str] = field(default_factory=dict)
    own_addresses: bool = False
    later_workers: int = 0

    kind: ClassVar[str] = "spark-cluster"
    variable: ClassVar[str] = "HEADRACE_TEST_SPARK_CLUSTER"

    @property
    def master(self) -> str:
        """The master URL."""
        return f"spark://{self.host}:{self.port}"

    @classmethod
    def create(cls, directory: Path, options: SparkClusterOptions | None = None) -> SparkCluster:
        """See Server.create."""
        from headrace_spark.processes.launch import (
            java_home,  # not at the top: every test run loads this module, and few need Spark
        )

        options = options or SparkClusterOptions()
        if not Path("/proc/self/stat").exists():
            raise MissingProgramError(
                "the processes of a cluster are followed by /proc, which this system does not have"
            )
        port = reserve_ports(2 + 2 * options.workers, str(directory))
        conf = dict(options.conf)
        if options.recovers:
            conf |= {
                "spark.deploy.recoveryMode": "FILESYSTEM",
                "spark.deploy.recoveryDirectory": f"{directory}/recovery",
            }
        made = cls(
            directory=directory,
            port=port,
            worker_count=options.workers,
            cores=options.cores,
            memory=options.memory,
            conf=conf,
            own_addresses=options.own_addresses,
            later_workers=options.later_workers,
        )
        java_home(directory / "java", find_java(_JAVA_MINIMUM).executable)
        (directory / "log4j2.properties").write_text(_LOGGING)
        made.save()
        return made

    @classmethod
    def from_variable(cls, value: str) -> SparkCluster:
        """From host:port of a master."""
        host, _, port = value.removeprefix("spark://").rpartition(":")
        return cls(directory=None, host=host, port=int(port))

    def to_variable(self) -> str:
        """See Server.to_variable."""
        return f"{self.host}:{self.port}"

    @classmethod
    def prepared_marker(cls) -> Path:
        """See Server.prepared_marker."""
        return _archives() / f"prepared-{find_java(_JAVA_MINIMUM).version}"

    def executors(self) -> list[psutil.Process]:
        """The executors that run on workers of this cluster."""
        found = []
        for record in self._processes().records():
            with contextlib.suppress(psutil.NoSuchProcess):
                found += psutil.Process(record.pid).children()
        return found

    def log(self, label: str) -> str:
        """What a process of this cluster has logged so far."""
        return self._processes().log(label).read_text()

    def decommission(self, number: int) -> None:
        """Tell a worker that its machine will be taken away, as a cloud does. It must run with `spark.decommission.enabled`."""
        self._check_exclusive()
        for record in self._processes().records():
            if record.label == f"worker-{number}" and record.is_alive():
                os.kill(record.pid, signal.SIGPWR)

    def add_worker(self) -> str:
        """Start one of the `later_workers`; return its label."""
        self._check_exclusive()
        self.later_workers -= 1
        self.start()
        return f"worker-{self.worker_count - self.later_workers - 1}"

    def _launch(self, processes: ProcessGroup) -> None:
        if not processes.is_alive("master"):
            arguments = ["--host", self.host, "--port", str(self.port), "--webui-port", str(self.port + 1)]
            processes.spawn(
                "master", [*self._java("master", processes), _MASTER_CLASS, *arguments], environment=self._environment()
            )
            processes.wait_until_logged("master", "I have been elected leader", START_TIMEOUT)
        wanted = range(self.worker_count - self.later_workers)
        missing = [n for n in wanted if not processes.is_alive(f"worker-{n}")]
        for number in missing:
            self._spawn_worker(processes, number)
        for number in missing:
            processes.wait_until_logged(f"worker-{number}", "Successfully registered with master", START_TIMEOUT)

    def _spawn_worker(self, processes: ProcessGroup, number: int) -> None:
        label = f"worker-{number}"
        port = self.port + 2 + 2 * number
        host = f"127.0.0.{number + 2}" if self.own_addresses else self.host
        arguments = ["--host", host, "--port", str(port), "--webui-port", str(port + 1)]
        arguments += ["--cores", str(self.cores), "--memory", self.memory]
        arguments += ["--work-dir", str(self._own_directory() / label), self.master]
        command = [*self._java("worker", processes), _WORKER_CLASS, *arguments]
        processes.spawn(label, command, environment={**self._environment(), "SPARK_LOCAL_IP": host})

    def _java(self, label: str, processes: ProcessGroup) -> list[str]:
        archives = _archives()
        archives.mkdir(parents=True, exist_ok=True)
        record = processes.record_classes and label == "master"
        jvm = jvm_command(find_java(_JAVA_MINIMUM), archives, label, "256m", record_classes=record)
        log = self._own_directory() / "log4j2.properties"
        settings = [f"-D{name}={value}" for name, value in self.conf.items()]
        return [*jvm, *settings, f"-Dlog4j2.configurationFile={log.as_uri()}", "-cp", f"{_spark_home()}/jars/*"]

    def _environment(self) -> dict[str, str]:
        return {
            "SPARK_HOME": str(_spark_home()),
            "JAVA_HOME": str(self._own_directory() / "java"),
            "SPARK_LOCAL_IP": self.host,
            # What Spark's start scripts set for whoever starts executors.
            "SPARK_SCALA_VERSION": _scala_version(),
            "PYTHONPATH": "",
            # Not that of a virtual environment: what a worker is to use, the job must name.
            "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
            "VIRTUAL_ENV": "",
        }


def _spark_home() -> Path:
    """Where pyspark is installed, found without importing it."""
    spec = importlib.util.find_spec("pyspark")
    if spec is None or spec.origin is None:
        raise MissingProgramError("pyspark is not installed")
    return Path(spec.origin).parent


def _scala_version() -> str:
    jar = next((_spark_home() / "jars").glob("spark-core_*.jar"))
    return jar.name.removeprefix("spark-core_").partition("-")[0]


def _archives() -> Path:
    return cache_directory() / f"spark-{version('pyspark')}"
