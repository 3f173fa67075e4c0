"""The options of the Spark backend."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from datetime import timedelta
from typing import Annotated, Literal

import msgspec
from headrace.foundation.errors import OptionError
from headrace.foundation.secrecy import is_secret_name
from headrace.interfaces.settings import Secret, Settings, option


class SparkSettings(Settings, frozen=True, kw_only=True):
    """Options of the Spark backend. Those about starting Spark are without effect when a session is given or found."""

    session: Annotated[object, option("SparkSession to run in; it is not stopped at the end")] = None
    master: Annotated[str | None, option("Spark's master URL; default: local[*], with retries of failed tasks")] = None
    conf: Annotated[
        Mapping[str, object],
        option("further settings of Spark, under Spark's own names; secrets among them are never shown"),
    ] = msgspec.field(default_factory=dict)
    archive: Annotated[
        str | None,
        option("package of the job for the workers, made by `headrace package`; without effect with a local master"),
    ] = None
    memory: Annotated[
        str, option("heap size of the Java process, in Spark's notation: 768m, 4g", pattern=r"^[0-9]+[kmgKMG]$")
    ] = "768m"
    install_java: Annotated[bool, option("whether pip installs a Java runtime when the machine has none")] = True
    startup_cache: Annotated[
        bool, option("whether Java's loaded classes are kept in ~/.cache, so that the next start is faster")
    ] = True
    ui: Annotated[
        bool,
        option("whether Spark's web UI runs while the process does, on the loopback address; its address is printed"),
    ] = False
    log_level: Annotated[
        Literal["ERROR", "WARN", "INFO", "DEBUG"], option("lowest level of the messages in Spark's log file")
    ] = "WARN"
    trigger_interval: Annotated[
        timedelta,
        option("shortest time between the starts of two micro-batches; 0: start as soon as there are records"),
    ] = timedelta(0)
    max_micro_batch_records: Annotated[
        Annotated[int, msgspec.Meta(ge=1)] | None,
        option("maximum number of records in one micro-batch, over all queues; default: what takes 3 to 10 s"),
    ] = None
    idle_wait: Annotated[timedelta, option("pause between two polls of queues that have no new records")] = timedelta(
        milliseconds=100
    )
    retry_timeout: Annotated[timedelta, option("how long a source may be unavailable before the job fails")] = (
        timedelta(minutes=2)
    )
    parallelism: Annotated[
        Annotated[int, msgspec.Meta(ge=1)] | None, option("number of tasks per micro-batch; default: one per core")
    ] = None

    shards: Annotated[
        Annotated[int, msgspec.Meta(ge=1)] | None,
        option("number of shards of each keyed stage; fixed by the first start of a job; default: one per core"),
    ] = None

    def __post_init__(self) -> None:
        # A plain text, too, may be the name of a place: "${VARIABLE}".
        guarded = {
            name: Secret(value) if isinstance(value, str) and is_secret_name(name) else value
            for name, value in self.conf.items()
        }
        msgspec.structs.force_setattr(self, "conf", guarded)

    def revealed_conf(self) -> dict[str, str]:
        """Return ``conf`` with its secrets, for Spark itself. Raises OptionError for a secret that is not at its place."""
        return {name: value.reveal() if isinstance(value, Secret) else str(value) for name, value in self.conf.items()}

    def spark_conf(self, master: str, submitted: Mapping[str, str] | None = None) -> dict[str, str]:
        """Return the settings of Spark, with those of the package if workers are on other machines.

        ``submitted``: what spark-submit has set. Raises OptionError as ``revealed_conf`` does, and for a wrong package.
        """
        conf = self.revealed_conf()
        if is_local_master(master):
            return conf
        from headrace_spark.processes.archives import conf_with_archive  # not at the top: most jobs run on one machine

        return conf_with_archive(conf, self.archive, submitted or {})

    def validate(self) -> None:
        for name, value in self.conf.items():
            if not isinstance(value, str | int | float | Secret) or isinstance(value, bool):
                raise OptionError(
                    f"the setting {name!r} has a value of type {type(value).__name__}; Spark takes texts",
                    plugin="spark",
                    option="conf",
                    hint="write true and false as texts",
                )
        if self.session is not None:
            for name in ("master", "conf", "archive", "ui"):
                if getattr(self, name):
                    raise OptionError(
                        "has no effect: the given session has its own settings",
                        plugin="spark",
                        option=name,
                        hint="set it where the session is created",
                    )
            if not hasattr(self.session, "sparkContext"):
                raise OptionError(
                    f"{self.session!r} is not a SparkSession, or it is one of Spark Connect, which cannot be used",
                    plugin="spark",
                    option="session",
                )
        if self.master is not None and not _MASTER.match(self.master):
            raise OptionError(
                f"unusable value {self.master!r}: Spark knows no such master",
                plugin="spark",
                option="master",
                hint="local[*], local[4], spark://host:7077, yarn, or k8s://https://host:443",
            )


_MASTER = re.compile(r"^(local(\[(\*|\d+)(, *\d+)?\])?|local-cluster\[.+\]|spark://.+|yarn|k8s://.+)$")
#: Attempts of a task before its job fails. Spark's plain ``local[N]`` never tries again.
_TASK_ATTEMPTS = 4


def is_local_master(master: str | None) -> bool:
    """Return whether workers are in the process of the driver's Java, and so see its files: not with ``local-cluster``."""
    return master is not None and master.startswith("local") and not master.startswith("local-cluster")


def local_master(given: str | None) -> str:
    """Return the master URL with retries of failed tasks, and with the number of cores instead of ``*``."""
    if given is None or given == "local":
        given = "local[*]" if given is None else "local[1]"
    found = re.match(r"^local\[(\*|\d+)\]$", given)
    if found is None:
        return given
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return f"local[{cores if found[1] == '*' else found[1]},{_TASK_ATTEMPTS}]"
