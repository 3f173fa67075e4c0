"""A Spark standalone cluster on loopback, from the installed pyspark: a Master and some Workers, each a process of its own."""

from __future__ import annotations

import json
import os
import signal
import urllib.request
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import pyspark

from tests.servers.directories import cache_directory
from tests.servers.errors import MissingProgramError
from tests.servers.java import find_java, jvm_command
from tests.servers.ports import reserve_ports
from tests.servers.processes import ProcessGroup
from tests.servers.server import START_TIMEOUT, Server

_JAVA_MINIMUM = 17
_MASTER_CLASS = "org.apache.spark.deploy.master.Master"
_WORKER_CLASS = "org.apache.spark.deploy.worker.Worker"
#: Executors are started with a module that small Java runtimes lack and that Spark can do without.
_JAVA = """#!/bin/sh
for argument do
  shift
  case "$argument" in
    --add-modules=jdk.incubator.vector) ;;
    *) set -- "$@" "$argument" ;;
  esac
done
exec "{java}" "$@"
"""


@dataclass(frozen=True, kw_only=True)
class SparkClusterOptions:
    """How to make a cluster."""

    workers: int = 3
    cores: int = 1
    """Of each worker."""
    memory: str = "2g"
    """Of each worker, for its executors; nothing is taken before an executor is started."""


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

    kind: ClassVar[str] = "spark-cluster"
    variable: ClassVar[str] = "HEADRACE_TEST_SPARK_CLUSTER"

    @property
    def master(self) -> str:
        """The master URL."""
        return f"spark://{self.host}:{self.port}"

    @classmethod
    def create(cls, directory: Path, options: SparkClusterOptions | None = None) -> SparkCluster:
        """See Server.create."""
        options = options or SparkClusterOptions()
        if not Path("/proc/self/stat").exists():
            raise MissingProgramError(
                "the processes of a cluster are followed by /proc, which this system does not have"
            )
        port = reserve_ports(2 + 2 * options.workers, str(directory))
        made = cls(
            directory=directory, port=port, worker_count=options.workers, cores=options.cores, memory=options.memory
        )
        java = directory / "java" / "bin" / "java"
        java.parent.mkdir(parents=True)
        java.write_text(_JAVA.format(java=find_java(_JAVA_MINIMUM).executable))
        java.chmod(0o755)
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

    def state(self) -> dict[str, Any]:
        """What the master says of itself: "workers", "activeapps", "status" and more."""
        with urllib.request.urlopen(f"http://{self.host}:{self.port + 1}/json/", timeout=10) as answer:
            found: dict[str, Any] = json.load(answer)
            return found

    def workers_alive(self) -> int:
        """How many workers the master counts."""
        return sum(worker["state"] == "ALIVE" for worker in self.state()["workers"])

    def executors(self) -> list[int]:
        """The process ids of the executors that run on workers of this cluster."""
        workers = {record.pid for record in self._processes().records() if record.is_alive()}
        return [pid for pid, parent in _parents() if parent in workers]

    def kill_executor(self, pid: int) -> bool:
        """End an executor at once, as an operating system does that has no memory left; False if it has ended by itself."""
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            return False
        return True

    def start_worker(self, number: int) -> None:
        """Start a worker that does not run."""
        processes = self._processes()
        self._spawn_worker(processes, number)
        processes.wait_until_logged(f"worker-{number}", "Successfully registered with master", START_TIMEOUT)

    def _launch(self, processes: ProcessGroup) -> None:
        if not processes.is_alive("master"):
            arguments = ["--host", self.host, "--port", str(self.port), "--webui-port", str(self.port + 1)]
            processes.spawn(
                "master", [*self._java("master", processes), _MASTER_CLASS, *arguments], environment=self._environment()
            )
            processes.wait_until_logged("master", "I have been elected leader", START_TIMEOUT)
        missing = [n for n in range(self.worker_count) if not processes.is_alive(f"worker-{n}")]
        for number in missing:
            self._spawn_worker(processes, number)
        for number in missing:
            processes.wait_until_logged(f"worker-{number}", "Successfully registered with master", START_TIMEOUT)

    def _spawn_worker(self, processes: ProcessGroup, number: int) -> None:
        label = f"worker-{number}"
        port = self.port + 2 + 2 * number
        arguments = ["--host", self.host, "--port", str(port), "--webui-port", str(port + 1)]
        arguments += ["--cores", str(self.cores), "--memory", self.memory]
        arguments += ["--work-dir", str(self._own_directory() / label), self.master]
        command = [*self._java("worker", processes), _WORKER_CLASS, *arguments]
        processes.spawn(label, command, environment=self._environment())

    def _java(self, label: str, processes: ProcessGroup) -> list[str]:
        home = Path(pyspark.__file__).parent
        archives = _archives()
        archives.mkdir(parents=True, exist_ok=True)
        java = find_java(_JAVA_MINIMUM)
        log = self._own_directory() / "log4j2.properties"
        log.write_text(
            "rootLogger.level = info\nrootLogger.appenderRef.stdout.ref = console\n"
            "appender.console.type = Console\nappender.console.name = console\nappender.console.target = SYSTEM_ERR\n"
            "appender.console.layout.type = PatternLayout\nappender.console.layout.pattern = %d %p %c: %m%n\n"
        )
        return [
            *jvm_command(java, archives, label, "256m", record_classes=processes.record_classes and label == "master"),
            f"-Dlog4j2.configurationFile={log.as_uri()}",
            "-cp",
            f"{home}/jars/*",
        ]

    def _environment(self) -> dict[str, str]:
        return {
            "SPARK_HOME": str(Path(pyspark.__file__).parent),
            "JAVA_HOME": str(self._own_directory() / "java"),
            "SPARK_LOCAL_IP": self.host,
            # What Spark's start scripts set for whoever starts executors.
            "SPARK_SCALA_VERSION": _scala_version(),
            "PYTHONPATH": "",
            # Not that of a virtual environment: what a worker is to use, the job must name.
            "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
            "VIRTUAL_ENV": "",
        }


def _scala_version() -> str:
    jar = next((Path(pyspark.__file__).parent / "jars").glob("spark-core_*.jar"))
    return jar.name.removeprefix("spark-core_").partition("-")[0]


def _archives() -> Path:
    return cache_directory() / f"spark-{pyspark.__version__}"


def _parents() -> list[tuple[int, int]]:
    """Every process of this machine with its parent."""
    found = []
    for path in Path("/proc").glob("[0-9]*"):
        try:
            fields = (path / "stat").read_text().rpartition(")")[2].split()
        except (FileNotFoundError, ProcessLookupError):
            continue
        if fields[0] != "Z":
            found.append((int(path.name), int(fields[1])))
    return found
