"""The Spark session of a job: the user's, or one of headrace's own on this machine, tuned for it."""

from __future__ import annotations

import atexit
import contextlib
import logging
import os
import shlex
import signal
import subprocess
import sys
import threading
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any

from headrace.foundation.errors import JobError, OptionError
from pyspark import SparkConf, SparkContext
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from headrace_spark.processes.driver_changes import DriverChanges
from headrace_spark.processes.java import find_or_install_java
from headrace_spark.processes.launch import LocalSpark, environment_with, python_of_workers
from headrace_spark.processes.reasons import killed_because, reason_of
from headrace_spark.processes.settings import START_OPTIONS, SparkSettings, is_local_master, local_master

logger = logging.getLogger(__name__)

#: Set on every session that a job runs in, headrace's own or not; they concern the query only.
_QUERY_CONF = {
    # An envelope is a whole batch: without this Spark gathers 10,000 of them before it hands them on.
    "spark.sql.execution.arrow.maxRecordsPerBatch": "16",
    "spark.sql.streaming.minBatchesToRetain": "10",
    "spark.sql.streaming.numRecentProgressUpdates": "10",
    "spark.sql.streaming.noDataMicroBatches.enabled": "false",
    "spark.sql.adaptive.enabled": "false",
}
_OWN_CONF = {
    "spark.app.name": "headrace",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.python.daemon.module": "headrace_spark.processes.daemon",
    "spark.python.worker.reuse": "true",
    # Spark keeps a history of everything for its UI.
    "spark.ui.retainedJobs": "10",
    "spark.ui.retainedStages": "10",
    "spark.ui.retainedTasks": "100",
    "spark.sql.ui.retainedExecutions": "5",
    "spark.sql.streaming.ui.enabled": "false",
    "spark.sql.streaming.metricsEnabled": "false",
    # Envelopes are compressed: as Arrow, column by column, which is smaller and takes less time.
    "spark.shuffle.compress": "false",
    # No code is generated for a plan that only hands batches from one Python process to another.
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
}
#: With ``ui``, over the settings above.
_UI_CONF = {
    "spark.ui.enabled": "true",
    "spark.sql.streaming.ui.enabled": "true",
    "spark.ui.retainedJobs": "200",
    "spark.ui.retainedStages": "400",
    "spark.ui.retainedTasks": "5000",
    "spark.sql.ui.retainedExecutions": "200",
}
_END_SECONDS_MAX = 10.0
_LOCAL_FILES_CLASS = "headrace.spark.LocalFiles"
_CHECKPOINT_FILES_CLASS = "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"


@dataclass(frozen=True)
class SessionInUse:
    """A session to run a job in. Its settings concern no other session of the same Spark."""

    session: SparkSession
    #: Whether workers run on this machine and see its files.
    local: bool
    #: headrace's own Spark on this machine, if it is that.
    spark: LocalSpark | None

    @property
    def log_file(self) -> Path | None:
        """The file with what headrace's own Spark logs; it is there until this process ends."""
        return None if self.spark is None else self.spark.log_file


@dataclass(frozen=True)
class _OwnSpark:
    session: SparkSession
    key: tuple[object, ...]
    spark: LocalSpark
    files: Mapping[str, str]
    changes: DriverChanges


_own: _OwnSpark | None = None
#: The session that was made for options of a job in a submitted program, and these options.
_of_submit: tuple[SparkContext, tuple[object, ...]] | None = None
_queries: list[StreamingQuery] = []
_lock = threading.Lock()


@contextmanager
def active(session: SparkSession) -> Iterator[None]:
    """Make a session the active one of this thread for a while: Spark looks up sinks there, wherever data comes from."""
    jvm: Any = session.sparkContext._jvm
    sessions = getattr(jvm, "org.apache.spark.sql.classic.SparkSession")
    before = sessions.getActiveSession()
    sessions.setActiveSession(session._jsparkSession)
    try:
        yield
    finally:
        if before.isDefined():
            sessions.setActiveSession(before.get())
        else:
            sessions.clearActiveSession()


def session_for(settings: SparkSettings) -> SessionInUse:
    """Return a session for a job.

    The one that is given; else one that this process has already, for example because ``spark-submit`` started it; else
    headrace's own, which is started on first use and stays until the process ends. Raises JobError when Spark cannot
    start, OptionError when options do not fit a Spark that runs already.
    """
    with _lock:
        own = _own_if_usable()
        if settings.session is not None:
            assert isinstance(settings.session, SparkSession)
            return _in_use(settings.session, own)
        context = SparkContext._active_spark_context
        if context is not None and own is None:
            if _of_submit != (context, _key(settings)):  # else the same job is started again, or another one like it
                _refuse_start_options(settings)
            return _in_use(SparkSession(context), None)
        if "PYSPARK_GATEWAY_PORT" in os.environ:
            # Started by spark-submit, which has the options; Java runs already.
            return _in_use(_submitted(settings), None)
        if own is not None and own.key != _key(settings):
            _stop_for_restart(own)
            own = None
        return _in_use((own or _start(settings)).session, _own)


def start_ahead(settings: SparkSettings) -> None:
    """Start headrace's own Spark if ``session_for`` would. Raises JobError when it cannot start.

    A Spark that runs already is left as it is: whether the options fit it is for ``session_for`` to say.
    """
    with _lock:
        elsewhere = SparkContext._active_spark_context is not None or "PYSPARK_GATEWAY_PORT" in os.environ
        if settings.session is None and not elsewhere and _own_if_usable() is None:
            _start(settings)


def session_of(session: SparkSession) -> SessionInUse:
    """Return the session of a DataFrame, to run a job in as it is: a DataFrame belongs to one session."""
    with _lock:
        own = _own_if_usable()
    local = is_local_master(session.sparkContext.master)
    if own is not None and session.sparkContext is not own.session.sparkContext:
        own = None
    if own is not None and local:
        own.changes.tell(session.sparkContext.environment)
    return SessionInUse(session, local, None if own is None else own.spark)


def stop_own_session() -> None:
    """Stop headrace's own Spark, if it runs. Jobs in it end. Called at the end of the process."""
    global _own
    with _lock:
        own, _own = _own, None
    if own is not None:
        _stop(own)


def _in_use(session: SparkSession, own: _OwnSpark | None) -> SessionInUse:
    used = session.newSession()
    if own is not None and session.sparkContext is not own.session.sparkContext:
        own = None
    for key, value in {**_QUERY_CONF, **(own.files if own is not None else {})}.items():
        used.conf.set(key, value)
    local = is_local_master(session.sparkContext.master)
    if own is not None and local:
        own.changes.tell(session.sparkContext.environment)
    return SessionInUse(used, local, None if own is None else own.spark)


def _own_if_usable() -> _OwnSpark | None:
    """Return headrace's own Spark unless somebody has stopped it or its Java has died."""
    global _own
    if _own is not None and (_own.session.sparkContext._jsc is None or not _answers(_own)):
        _stop(_own)
        _own = None
    return _own


def _answers(own: _OwnSpark) -> bool:
    gateway = own.session.sparkContext._gateway
    process = getattr(gateway, "proc", None)
    return process is None or process.poll() is None


def _refuse_start_options(settings: SparkSettings) -> None:
    for name in START_OPTIONS:
        if getattr(settings, name):
            raise OptionError(
                "has no effect: this process already has a Spark session with its own settings",
                plugin="spark",
                option=name,
                hint="set the option where the session is created, or stop that session first",
            )


def _submitted(settings: SparkSettings) -> SparkSession:
    global _of_submit
    builder = SparkSession.builder
    if settings.master is not None:
        builder = builder.master(settings.master)
    SparkContext._ensure_initialized()
    submitted = dict(SparkConf().getAll())
    conf = settings.spark_conf(settings.master or submitted.get("spark.master", ""), submitted)
    for key, value in conf.items():
        builder = builder.config(key, value)
    with environment_with({"PYSPARK_PYTHON": python_of_workers(conf)}):
        session = builder.getOrCreate()
    _of_submit = session.sparkContext, _key(settings)
    return session


def _key(settings: SparkSettings) -> tuple[object, ...]:
    return (
        local_master(settings.master),
        settings.memory,
        settings.log_level,
        settings.ui,
        tuple(sorted(settings.revealed_conf().items())),
        settings.archive,
        settings.submit_arguments,
    )


def _stop_for_restart(own: _OwnSpark) -> None:
    """Stop headrace's own Spark because other options are asked for, unless jobs run in it."""
    global _own
    if any(query.isActive for query in _queries):
        raise OptionError(
            "another job of this process already runs in a Spark session with other options",
            plugin="spark",
            hint="use the same master, conf, memory, ui and log_level for jobs that run at the same time",
        )
    _own = None
    _stop(own)


def note_query(query: StreamingQuery) -> None:
    """Record that a job runs in headrace's own Spark session, which must not be restarted until the job has ended."""
    with _lock:
        _queries[:] = [other for other in _queries if other.isActive]
        _queries.append(query)


def _stop(own: _OwnSpark) -> None:
    gateway: Any = own.session.sparkContext._gateway
    process = getattr(gateway, "proc", None)
    for stop in (own.session.stop, gateway.shutdown):
        try:
            stop()
        except Exception as error:  # Java may have died before us: then there is nothing to stop
            logger.debug("while stopping Spark: %s", error)
    if process is not None:
        process.stdin.close()  # at its end Java ends
        try:
            # What Java may write at its end for the next start is not waited for.
            process.wait(0.0 if own.spark.writes_archive else _END_SECONDS_MAX)
        except subprocess.TimeoutExpired:
            # At the end of this process no thread can begin any more, and the system takes the child over.
            with contextlib.suppress(RuntimeError):
                threading.Thread(target=process.wait, name="headrace-spark-end", daemon=True).start()
    own.spark.stop_python()
    _forget_gateway()


def _forget_gateway() -> None:
    """Let pyspark start a new Java when it needs one."""
    _queries.clear()
    SparkContext._gateway = None
    SparkContext._jvm = None
    SparkContext._active_spark_context = None
    SparkSession._instantiatedSession = None


def _start(settings: SparkSettings) -> _OwnSpark:
    global _own
    master = local_master(settings.master)
    java = find_or_install_java(install=settings.install_java)
    local = LocalSpark(java, startup_cache=settings.startup_cache)
    on_this_machine = is_local_master(master)
    given = settings.spark_conf(master)
    python = python_of_workers(given)
    if on_this_machine:
        local.start_python(python)
    conf = {
        **_OWN_CONF,
        **(_UI_CONF if settings.ui else {}),
        **(local.conf() if on_this_machine else {}),
        "spark.master": master,
        "spark.driver.memory": settings.memory,
        "spark.sql.warehouse.dir": str(local.directory / "warehouse"),
        **given,
    }
    try:
        variables = local.environment(workers=on_this_machine, python=python)
        if settings.submit_arguments:
            # The arguments that pyspark appends for spark-submit; the last word replaces the program.
            variables["PYSPARK_SUBMIT_ARGS"] = shlex.join([*settings.submit_arguments, "pyspark-shell"])
        with environment_with(variables):
            gateway = local.launch(conf, log_level=settings.log_level)
            session = _session_in(gateway, conf, local)
    except BaseException:
        local.stop_python()
        raise
    if settings.ui:
        print(f"Spark's UI: {session.sparkContext.uiWebUrl}", file=sys.stderr)
    files = _quick_local_files(session) if on_this_machine else {}
    _own = _OwnSpark(session, _key(settings), local, files, DriverChanges())
    atexit.register(stop_own_session)
    return _own


def _session_in(gateway: Any, conf: Mapping[str, str], local: LocalSpark) -> SparkSession:
    on_interrupt = signal.getsignal(signal.SIGINT)
    try:
        with warnings.catch_warnings():
            # pyspark looks at what pandas is installed and warns of it; no job uses it.
            warnings.simplefilter("ignore", FutureWarning)
            spark_conf = SparkConf(loadDefaults=True, _jvm=gateway.jvm)
            for key, value in conf.items():
                spark_conf.set(key, value)
            return SparkSession(SparkContext(conf=spark_conf, gateway=gateway))
    except Exception as error:  # Java's, py4j's or pyspark's: Spark did not start
        reason = reason_of(error)  # asked of Java, which ends with the gateway
        gateway.shutdown()
        _forget_gateway()
        hint = f"its log is {local.log_file}"
        killed = killed_because(local.log_file.read_text(errors="replace")) if local.log_file.exists() else None
        if killed is not None:
            reason, hint = killed, f"is this address the one with which the master was started, and does it run? {hint}"
        raise JobError(
            f"Spark did not start with master {conf['spark.master']!r}: {reason}", plugin="spark", hint=hint
        ) from error
    finally:
        if threading.current_thread() is threading.main_thread():
            # Spark's context takes Ctrl-C to cancel what runs; a job is to stop in its own way.
            signal.signal(signal.SIGINT, on_interrupt)


def _quick_local_files(session: SparkSession) -> Mapping[str, str]:
    """Make checkpoints on the local disk quick, and return the settings that make a query use it.

    The few lines of Java that it needs are compiled by the compiler that Spark brings for its own generated code. When
    any of that is not as it was, checkpoints work as ever, only slower.
    """
    context: Any = session.sparkContext
    try:
        compiler = context._jvm.org.codehaus.janino.SimpleCompiler()
        compiler.setParentClassLoader(context._jvm.java.lang.Thread.currentThread().getContextClassLoader())
        compiler.cook(resources.files(__package__).joinpath("LocalFiles.java").read_text(encoding="utf-8"))
        configuration = context._jsc.hadoopConfiguration()
        configuration.setClassLoader(compiler.getClassLoader())
        configuration.set("fs.file.impl", _LOCAL_FILES_CLASS)
        uri = context._jvm.java.net.URI("file:///")
        made = context._jvm.org.apache.hadoop.fs.FileSystem.newInstance(uri, configuration).getClass().getName()
    except Exception as error:  # anything that py4j gives: another Spark, another Hadoop
        logger.warning("checkpoints are written by Spark's slower default method: %s", reason_of(error))
        return {}
    return {"spark.sql.streaming.checkpointFileManagerClass": _CHECKPOINT_FILES_CLASS} if made else {}
