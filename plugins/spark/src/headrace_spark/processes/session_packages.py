"""Gives the package of a job to a session that runs already, for what headrace runs in it and for nothing else.

A Python function of Spark names the Python that runs it. So the functions of a job can have the Python of its package, while other
functions of the same session, and of the same query, keep that of the session.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any

from headrace.foundation.errors import JobError

from headrace_spark.processes.archives import DIRECTORY, SETTING, check_package, local_path
from headrace_spark.processes.reasons import reason_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.udf import UserDefinedFunction

_UDF = "org.apache.spark.sql.execution.python.UserDefinedPythonFunction"


def give_package(session: SparkSession, archive: str, job: str) -> str | None:
    """Give the package to the executors of a session; return the Python of it, as a path in their directories.

    Called before a job starts, on a cluster. None: the session was started with a package, whose Python is that of the session.
    Raises OptionError if ``archive`` is no package, JobError if it does not fit the driver or Spark does not take it.
    """
    context: Any = session.sparkContext
    submitted = str(context.getConf().get(SETTING, "") or "")
    if DIRECTORY in [each.partition("#")[2] for each in submitted.split(",")]:
        return None
    check_package(archive)
    directory = f"{DIRECTORY}-{_version_of(archive)}"
    if not any(each.endswith(f"#{directory}") for each in context.listArchives):
        try:
            context.addArchive(f"{archive}#{directory}")
        except Exception as error:  # anything that py4j gives
            raise JobError(
                f"Spark does not take the package {archive}: {reason_of(error)}",
                job=job,
                plugin="spark",
                option="archive",
                hint="two packages of one session need different file names",
            ) from error
    return f"./{directory}/bin/python"


def _version_of(archive: str) -> str:
    """Return a text that changes when the package is made again: executors keep an unpacked package under its name."""
    path, told = local_path(archive), archive
    if path is not None:
        status = path.stat()
        told = f"{path.absolute()} {status.st_size} {status.st_mtime_ns}"
    return hashlib.blake2b(told.encode(), digest_size=6).hexdigest()


def run_by(function: UserDefinedFunction, python: str) -> None:
    """Let a function, which no query has used yet, be run by another Python than that of the session."""
    from pyspark import SparkContext

    jvm: Any = SparkContext._jvm
    made: Any = function._judf
    fields = [made.productElement(number) for number in range(made.productArity())]
    fields[1] = of_python(jvm, made.func(), python)
    function._judf_placeholder = getattr(jvm, _UDF)(*fields)


def of_python(jvm: Any, function: Any, python: str) -> Any:
    """Return a Python function of Spark's Java, run by another Python."""
    return jvm.SimplePythonFunction(
        function.command(), function.envVars(), function.pythonIncludes(), python,
        function.pythonVer(), function.broadcastVars(), function.accumulator(),
    )  # fmt: skip
