"""Starts the Java process of a local Spark, tuned for a job on one machine: a small heap, a quick start, a quiet log."""

from __future__ import annotations

import atexit
import os
import stat
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib import resources
from pathlib import Path
from typing import Any

import pyspark
from headrace.foundation.errors import JobError
from headrace.foundation.secrecy import is_secret_name
from pyspark import SparkConf

from headrace_spark.processes.class_archive import ClassArchive, short_hash
from headrace_spark.processes.forked_python import ForkedPython
from headrace_spark.processes.java import JavaRuntime
from headrace_spark.processes.output import VARIABLE, OutputRelay
from headrace_spark.processes.temporary import lock_of, remove, remove_abandoned, temporary_directory

#: Spark moves blobs; the work is done in Python. Little is gained by compiling Java well, much by starting it quickly. A heap begins with
#: a 64th of the machine's memory otherwise, of which new objects would use a third before garbage is collected.
_JVM_FLAGS = (
    "-Xms64m",
    "-XX:+UseSerialGC",
    "-XX:TieredStopAtLevel=1",
    "-XX:-UsePerfData",
    "-Xshare:auto",
    "-Xlog:disable",
)
#: What drivers make in the temporary directory: of Spark itself, of a run, and checkpoints of jobs that keep none.
TEMPORARY_KINDS = ("spark", "run", "checkpoint")
#: A separate Java program makes the command line.
_LAUNCHER_FLAGS = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1 -XX:-UsePerfData -Xshare:auto"
#: From this version on Java warns of what Spark's libraries do unless it is allowed.
_WARNS_OF_NATIVE_ACCESS = 24
_ARCHIVES_CLASSES_SINCE = 13
#: Spark runs one task per core.
_ONE_THREAD = {"POLARS_MAX_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
_SHIM = """#!/bin/sh
# Starts Java for headrace without a module that Spark asks for, that small Java runtimes lack, and that is not needed.
for argument do
  shift
  case "$argument" in
    --add-modules=jdk.incubator.vector) ;;
    *) set -- "$@" "$argument" ;;
  esac
done
exec "{java}" "$@"
"""


def java_home(home: Path, executable: Path) -> Path:
    """Make a directory that ``JAVA_HOME`` can name, whose Java also starts Spark where the runtime is a small one; return it."""
    script = home / "bin" / "java"
    content = _SHIM.format(java=executable)
    if not script.exists() or script.read_text(encoding="utf-8") != content:
        script.parent.mkdir(parents=True, exist_ok=True)
        temporary = script.with_name(f"java.{os.getpid()}")
        temporary.write_text(content, encoding="utf-8")
        temporary.chmod(0o700)
        temporary.replace(script)
    return home


def python_of_workers(conf: Mapping[str, str]) -> str:
    """Return the Python of the workers: the one that Spark's settings or ``PYSPARK_PYTHON`` name, else this one.

    pyspark looks for it in the environment only. Without it workers use the python3 that they find first, whatever Python
    runs this program. Other machines must have it at the same path.
    """
    return conf.get("spark.pyspark.python") or os.environ.get("PYSPARK_PYTHON") or sys.executable


class LocalSpark:
    """What a local Spark needs on disk: a directory for this process, and one that is kept so that the next start is faster."""

    def __init__(self, java: JavaRuntime, *, startup_cache: bool = True) -> None:
        remove_abandoned(TEMPORARY_KINDS)
        self.directory = temporary_directory("spark")
        atexit.register(_clean_up, self.directory)
        self.log_file = self.directory / "spark.log"
        self.output = OutputRelay(self.directory / "output")
        self._java = java
        self._python = ForkedPython(self.directory)
        kept = kept_directory() if startup_cache else None
        self._kept = kept
        self._root = kept or self.directory
        self._archive: ClassArchive | None = None
        #: A Spark that the user started is not changed.
        self._installed_with_pyspark = "SPARK_HOME" not in os.environ

    def launch(self, conf: Mapping[str, str], *, log_level: str) -> Any:
        """Start Java and return py4j's gateway to it. Raises JobError when it does not start."""
        from pyspark.java_gateway import launch_gateway

        spark_conf = SparkConf(loadDefaults=False)
        flags = " ".join([*self._flags(log_level), conf.get("spark.driver.extraJavaOptions", "")]).strip()
        for key, value in {**conf, "spark.driver.extraJavaOptions": flags}.items():
            # The settings go to Java on its command line, which every user of the machine can read. The session gets
            # those with secrets later, through the connection to Java.
            if not is_secret_name(key):
                spark_conf.set(key, value)
        try:
            # Java may live for some seconds after this process was killed, and writes to its directory until then.
            inherited = [lock_of(self.directory), *(self._archive.kept_open() if self._archive is not None else ())]
            return launch_gateway(spark_conf, {"pass_fds": inherited})  # type: ignore[no-untyped-call]
        except Exception as error:  # py4j, the operating system or pyspark: Java did not start
            raise JobError(
                f"Java did not start: {error}",
                plugin="spark",
                hint=f"try {self._java.executable} -version; its output is above",
            ) from error
        finally:
            if self._archive is not None:
                self._archive.close()

    def job_has_run(self) -> None:
        """Note that a job has run to its end. Called by the handle; the class archive may then be kept for the next start."""
        if self._archive is not None:
            self._archive.job_has_run()

    @property
    def writes_archive(self) -> bool:
        """Whether Java will take some seconds to end because it writes an archive for the next start."""
        return self._archive is not None and self._archive.is_written

    def start_python(self, python: str) -> None:
        """Start the server that Python workers on this machine are forked from, if ``python`` is the interpreter of this process.

        Called first: it imports what workers need while Java starts.
        """
        if python == sys.executable:
            # As Spark does: every worker gives a text the same hash.
            self._python.start({"PYTHONHASHSEED": "0", **os.environ, **_ONE_THREAD})

    def conf(self) -> dict[str, str]:
        """Return the settings of a Spark whose workers are on this machine."""
        conf = {
            "spark.driver.host": "127.0.0.1",
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.local.dir": str(self.directory / "local"),
        }
        if self._python.is_started:
            # Through TCP, a short message of Java to a worker waits 40 ms for the acknowledgement of the one before.
            conf["spark.python.unix.domain.socket.enabled"] = "true"
            conf["spark.python.unix.domain.socket.dir"] = str(self.directory)
        return conf

    def environment(self, *, workers: bool, python: str) -> dict[str, str]:
        """Return the environment variables to start Java and pyspark with, and ``workers`` if they are on this machine.

        ``python``: the interpreter of the workers, see ``python_of_workers``.
        """
        forked = str(self._python.command) if self._python.is_started else None
        variables = {
            "JAVA_HOME": str(self._shim()),
            "PYSPARK_PYTHON": forked or python,
            # Java looks data sources up with it.
            "PYSPARK_DRIVER_PYTHON": forked or sys.executable,
            "SPARK_LAUNCHER_OPTS": _LAUNCHER_FLAGS,
        }
        if workers:
            variables |= {"SPARK_LOCAL_IP": "127.0.0.1", VARIABLE: str(self.output.path), **_ONE_THREAD}
        if self._installed_with_pyspark:
            variables["SPARK_HOME"] = str(self._home())
        return variables

    def stop_python(self) -> None:
        """End the server that Python workers are forked from, if there is one. Called when Java has ended."""
        self._python.stop()

    def _home(self) -> Path:
        """Return a copy of pyspark's Spark home without the zip file of pyspark, from which workers would import.

        A zip has no compiled files: every worker would compile pyspark again.
        """
        installed = Path(pyspark.__file__).parent
        home = self._root / f"home-{pyspark.__version__}-{short_hash(str(installed))}"
        home.mkdir(exist_ok=True)
        for part in ("bin", "sbin", "jars"):
            link = home / part
            if not link.is_symlink():
                _replace_link(link, installed / part)
        return home

    def _shim(self) -> Path:
        return java_home(self._root / f"java-{short_hash(str(self._java.home))}", self._java.executable)

    def _flags(self, log_level: str) -> Iterator[str]:
        yield from _JVM_FLAGS
        config = self.directory / "log4j2.properties"
        config.write_bytes(resources.files(__package__).joinpath("log4j2.properties").read_bytes())
        yield f"-Dlog4j2.configurationFile={config.as_uri()}"
        yield f"-Dheadrace.log.file={self.log_file}"
        yield f"-Dheadrace.log.level={log_level}"
        # What Java leaves when it is killed is removed with the rest.
        temporary = self.directory / "tmp"
        temporary.mkdir(exist_ok=True)
        yield f"-Djava.io.tmpdir={temporary}"
        if self._java.version >= _WARNS_OF_NATIVE_ACCESS:
            yield "--enable-native-access=ALL-UNNAMED"
            yield "--sun-misc-unsafe-memory-access=allow"
        if self._kept is not None and self._installed_with_pyspark and self._java.version >= _ARCHIVES_CLASSES_SINCE:
            self._archive = ClassArchive(self._kept, self._java, _JVM_FLAGS)
            yield from self._archive.flags()


def _clean_up(directory: Path) -> None:
    """Remove the directory of this process, and those of drivers that were killed, whose Java may have lived when this one started."""
    remove(directory)
    remove_abandoned(TEMPORARY_KINDS)


def kept_directory() -> Path | None:
    """Return the directory that is kept between runs; None when there can be none.

    Java loads classes from this directory, so only this user may write to it.
    """
    base = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    directory = base / "headrace" / "spark"
    try:
        directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        status = directory.stat()
        if status.st_uid != os.getuid():
            return None
        if stat.S_IMODE(status.st_mode) & 0o022:
            directory.chmod(0o700)
        return directory if os.access(directory, os.W_OK) else None
    except OSError:
        return None


def _replace_link(link: Path, target: Path) -> None:
    temporary = link.with_name(f"{link.name}.{os.getpid()}")
    temporary.symlink_to(target)
    temporary.replace(link)


@contextmanager
def environment_with(variables: Mapping[str, str]) -> Iterator[None]:
    """Set environment variables for a while."""
    before = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value
