"""The options of the Spark backend."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Annotated, ClassVar, Literal

import msgspec
from headrace.foundation.errors import OptionError
from headrace.foundation.machine import available_cores
from headrace.foundation.secrecy import is_secret_name
from headrace.interfaces.settings import Secret, Settings, option

#: Records that a lane takes at once. Tasks read millions of them, so nobody waits for a batch, and what a batch costs is spread over more.
BATCH_RECORDS = 50_000
#: Options about starting Spark.
START_OPTIONS = ("master", "conf", "submit_arguments", "archive", "ui")


class SparkSettings(Settings, frozen=True, kw_only=True):
    """Options of the Spark backend. Those about starting Spark are without effect when a session is given or found."""

    absent: ClassVar[Mapping[str, str]] = {
        "state_memory": "on Spark, state is in the memory of Spark's Python workers; more shards and more executors have more of it"
    }

    session: Annotated[object, option("SparkSession to run in; it is not stopped at the end")] = None
    master: Annotated[str | None, option("Spark's master URL; default: local[*], with retries of failed tasks")] = None
    conf: Annotated[
        Mapping[str, object],
        option("further settings of Spark, under Spark's own names; secrets among them are never shown"),
    ] = msgspec.field(default_factory=dict)
    submit_arguments: Annotated[
        tuple[str, ...],
        option(
            "arguments of spark-submit for what has no setting of Spark, such as --packages, --queue and --properties-file; "
            "headrace's own Spark is started by it, in client mode"
        ),
    ] = ()
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
                    f"the setting {name!r} has a value of type {type(value).__name__}; Spark needs text",
                    plugin="spark",
                    option="conf",
                    hint="write true and false as texts",
                )
        _check_submit_arguments(self.submit_arguments)
        if self.session is not None:
            for name in START_OPTIONS:
                if getattr(self, name):
                    raise OptionError(
                        "has no effect, because the given session has its own settings",
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
                f"unusable value {self.master!r}: Spark does not know such a master",
                plugin="spark",
                option="master",
                hint="local[*], local[4], spark://host:7077, yarn, or k8s://https://host:443",
            )


#: Arguments of spark-submit that are options here, and would have no effect there.
_OPTIONS_INSTEAD: Mapping[str, str] = {
    "--master": "master", "--conf": "conf", "-c": "conf", "--archives": "archive", "--driver-memory": "memory",
    "--driver-java-options": 'conf={"spark.driver.extraJavaOptions": …}', "--name": 'conf={"spark.app.name": …}',
}  # fmt: skip
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
    cores = available_cores()
    return f"local[{cores if found[1] == '*' else found[1]},{_TASK_ATTEMPTS}]"


def _check_submit_arguments(arguments: Sequence[str]) -> None:
    for at, argument in enumerate(arguments):
        name, _, value = argument.partition("=")
        if name in _OPTIONS_INSTEAD:
            raise OptionError(
                f"{name} has its own option", plugin="spark", option="submit_arguments",
                hint=f"set {_OPTIONS_INSTEAD[name]} instead",
            )  # fmt: skip
        if name == "--deploy-mode" and (value or "".join(arguments[at + 1 : at + 2])) != "client":
            raise OptionError(
                "the driver runs in this process, so the deploy mode must be client",
                plugin="spark",
                option="submit_arguments",
                hint="for cluster mode, start the job's file with spark-submit: docs/cluster.md",
            )
    if arguments and not arguments[0].startswith("-"):
        raise OptionError(
            f"{arguments[0]!r} is not an option of spark-submit, and headrace sets the program itself",
            plugin="spark",
            option="submit_arguments",
            hint='for example ["--queue", "etl", "--properties-file", "spark.conf"]',
        )
