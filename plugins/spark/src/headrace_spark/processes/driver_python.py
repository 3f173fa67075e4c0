"""Registers data sources whose Python is another one on the driver than on the workers."""

from __future__ import annotations

import sys
from importlib import resources
from pathlib import PurePosixPath
from typing import Any

from headrace.foundation.errors import JobError
from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSource
from pyspark.sql.udf import _wrap_function

from headrace_spark.processes.reasons import reason_of
from headrace_spark.processes.session_packages import of_python

_CLASS = "headrace.spark.DriverPython"
_DATA_SOURCE = "org.apache.spark.sql.execution.datasources.v2.python.UserDefinedPythonDataSource"


def register(session: SparkSession, source: type[DataSource], python: str | None = None) -> None:
    """Register a data source. The planner on the driver uses the driver's Python if the workers' path is a relative one.

    Spark unpacks archives in the working directory of each executor. A relative path such as ``./environment/bin/python``
    is valid there, and not on a driver in client mode. ``python``: that of the workers; None: that of the session.
    """
    context: Any = session.sparkContext
    workers_python = python or context.pythonExec
    if not is_relative(workers_python):
        session.dataSource.register(source)
        return
    wrapped = of_python(context._jvm, _wrap_function(context, source), workers_python)
    try:
        compiler = context._jvm.org.codehaus.janino.SimpleCompiler()
        compiler.setParentClassLoader(context._jvm.java.lang.Thread.currentThread().getContextClassLoader())
        compiler.cook(resources.files(__package__).joinpath("DriverPython.java").read_text(encoding="utf-8"))
        made = compiler.getClassLoader().loadClass(_CLASS).getConstructors()
        arguments = context._gateway.new_array(context._jvm.java.lang.Object, 2)
        arguments[0], arguments[1] = wrapped, sys.executable
        function = made[0].newInstance(arguments)
    except Exception as error:  # anything that py4j gives: another Spark
        raise JobError(
            f"this Spark cannot run the driver with another Python than {workers_python!r}: {reason_of(error)}",
            plugin="spark",
            hint="install headrace on all machines and name the Python by an absolute path in PYSPARK_PYTHON",
        ) from error
    data_source = getattr(context._jvm, _DATA_SOURCE)(function)
    session._jsparkSession.dataSource().registerPython(source.name(), data_source)


def is_relative(python: str) -> bool:
    """Return whether a program is named by a path in the working directory, not by a name or an absolute path."""
    path = PurePosixPath(python)
    return "/" in python and not path.is_absolute()
