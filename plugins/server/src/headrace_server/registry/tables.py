"""The tables of the registry. They are made at the start of a server, in SQLite, MySQL or PostgreSQL."""

from __future__ import annotations

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    Double,
    ForeignKey,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    String,
    Table,
    Text,
)
from sqlalchemy.dialects import mysql

metadata = MetaData()

_MYSQL = ("mysql", "mariadb")
_BINARY = {"charset": "utf8mb4", "collation": "utf8mb4_bin"}
#: MySQL needs the lengths of columns that have an index, and treats ``a`` and ``A`` as the same text by default.
_NAME = String(200).with_variant(mysql.VARCHAR(200, **_BINARY), *_MYSQL)
#: MySQL's TEXT ends at 64 KB, which a plan or the settings of a job may exceed.
_TEXT = Text().with_variant(mysql.MEDIUMTEXT(**_BINARY), *_MYSQL)
#: Seconds since the Unix epoch. MySQL's FLOAT has four bytes: it would round them to minutes.
_SECONDS: Double[float] = Double()

jobs = Table(
    "headrace_jobs",
    metadata,
    Column("name", _NAME, primary_key=True),
    #: What a person wants: running, stopped or paused. ``finished``: a bounded job has read its input;
    #: ``scheduled``: it waits for its time.
    Column("desired", String(20), nullable=False),
    #: The version that runs, or would run; None: no version was ever accepted.
    Column("current_version", Integer, nullable=True),
    #: Whether its file still lies in the jobs directory.
    Column("present", Boolean, nullable=False),
    #: Why the job rests, or why its newest version was refused; None: nothing is wrong.
    Column("problem", _TEXT, nullable=True),
    Column("labels", _TEXT, nullable=False),
    Column("unit", _NAME, nullable=False),
    #: No longer used; an older server beside this one may know it.
    Column("server", _NAME, nullable=True),
    #: A version that the server of the job shall roll out: set by the server that reads the jobs directory.
    Column("offered_version", Integer, nullable=True),
    #: How often a person has started it. When it changes, the server of the job resets the count of failures.
    Column("starts", Integer, nullable=True),
    mysql_engine="InnoDB",
    mariadb_engine="InnoDB",
)

versions = Table(
    "headrace_versions",
    metadata,
    Column("job", _NAME, ForeignKey("headrace_jobs.name"), primary_key=True),
    Column("number", Integer, primary_key=True),
    Column("content_hash", String(64), nullable=False),
    #: ``new``, ``accepted``, ``refused`` (does not plan) or ``fell_back`` (was not healthy).
    Column("state", String(20), nullable=False),
    Column("reason", _TEXT, nullable=True),
    #: JSON: the resolved settings of job.yaml, and the names of the files with their hashes.
    Column("settings", _TEXT, nullable=False),
    Column("files", _TEXT, nullable=False),
    Column("plan", _TEXT, nullable=True),
    Column("author", _NAME, nullable=True),
    Column("note", _TEXT, nullable=True),
    Column("created_seconds", _SECONDS, nullable=False),
    mysql_engine="InnoDB",
    mariadb_engine="InnoDB",
)

#: Which job runs a pipeline, ``namespace.pipeline``: two files with the same one would share consumer groups and positions in sinks.
pipelines = Table(
    "headrace_pipelines",
    metadata,
    Column("pipeline", _NAME, primary_key=True),
    Column("job", _NAME, nullable=False),
    mysql_engine="InnoDB",
    mariadb_engine="InnoDB",
)

runs = Table(
    "headrace_runs",
    metadata,
    Column("id", Integer, primary_key=True, autoincrement=True),
    Column("unit", _NAME, nullable=False),
    Column("job", _NAME, nullable=False),
    Column("version", Integer, nullable=False),
    Column("server", _NAME, nullable=False),
    Column("pid", Integer, nullable=False),
    #: When the process began, as the operating system says: a number of a process is used again.
    Column("process_started_seconds", _SECONDS, nullable=False),
    Column("socket", _TEXT, nullable=False),
    Column("started_seconds", _SECONDS, nullable=False),
    Column("ended_seconds", _SECONDS, nullable=True),
    #: ``stopped``, ``finished``, ``failed``, ``killed``; None while it runs.
    Column("outcome", String(20), nullable=True),
    Column("reason", _TEXT, nullable=True),
    Index("headrace_runs_of_job", "job", "ended_seconds"),
    mysql_engine="InnoDB",
    mariadb_engine="InnoDB",
)

#: Scheduled runs that were begun: a row is added together with the wish that the job runs, so none begins twice.
scheduled_starts = Table(
    "headrace_scheduled_starts",
    metadata,
    Column("job", _NAME, primary_key=True),
    #: Milliseconds since the Unix epoch.
    Column("due_ms", BigInteger, primary_key=True, autoincrement=False),
    mysql_engine="InnoDB",
    mariadb_engine="InnoDB",
)

operations = Table(
    "headrace_operations",
    metadata,
    Column("id", String(40), primary_key=True),
    Column("kind", String(40), nullable=False),
    #: JSON: the jobs that it is about.
    Column("jobs", _TEXT, nullable=False),
    #: ``running``, ``done`` or ``failed``.
    Column("state", String(20), nullable=False),
    #: What it is doing now, for people.
    Column("step", _TEXT, nullable=False),
    Column("result", _TEXT, nullable=True),
    Column("error", _TEXT, nullable=True),
    Column("started_seconds", _SECONDS, nullable=False),
    Column("ended_seconds", _SECONDS, nullable=True),
    #: The server that carries it out.
    Column("server", _NAME, nullable=True),
    mysql_engine="InnoDB",
    mariadb_engine="InnoDB",
)

#: Servers of the registry. Which of them live, their leases say.
servers = Table(
    "headrace_servers",
    metadata,
    Column("name", _NAME, primary_key=True),
    Column("pid", Integer, nullable=False),
    Column("url", Text, nullable=True),
    Column("started_seconds", _SECONDS, nullable=False),
    Column("ended_seconds", _SECONDS, nullable=True),
    #: The rest is set by servers that share the registry. ``data``: the id of its data directory; ``machine``: where processes are
    #: known by their numbers.
    Column("data", String(40), nullable=True),
    Column("machine", String(100), nullable=True),
    Column("cores", Integer, nullable=True),
    Column("version", String(40), nullable=True),
    #: ``serves``, ``drains`` (its jobs move to others) or ``restarts`` (its processes keep running until it is back).
    Column("state", String(20), nullable=True),
    #: Whether it reads the jobs directory.
    Column("reads_jobs", Boolean, nullable=True),
    #: JSON: files of the jobs directory that cannot become a version, as the server sees that reads it.
    Column("refused_files", _TEXT, nullable=True),
    #: What its version understands of the registry, see schema.py.
    Column("schema", Integer, nullable=True),
    mysql_engine="InnoDB",
    mariadb_engine="InnoDB",
)

#: Which server has a unit. The lease of the unit, ``headrace/unit/NAME``, says which process runs it.
units = Table(
    "headrace_units",
    metadata,
    Column("unit", _NAME, primary_key=True),
    Column("server", _NAME, nullable=True),
    #: Grows with each change of the server.
    Column("epoch", Integer, nullable=False),
    #: The id of the data directory that has the state of the unit, if no other server can read it.
    Column("home", String(40), nullable=True),
    #: What the server has measured: processor cores in use.
    Column("cores", _SECONDS, nullable=True),
    #: A roll-out is under way: it is not moved for balance.
    Column("busy", Boolean, nullable=False),
    #: JSON: the process that has the lease, as it has described itself.
    Column("runner", _TEXT, nullable=True),
    #: JSON: how jobs have ended in a process whose server was away, by job.
    Column("outcomes", _TEXT, nullable=True),
    mysql_engine="InnoDB",
    mariadb_engine="InnoDB",
)

#: What the server of a job says of it, for the other servers.
job_statuses = Table(
    "headrace_job_statuses",
    metadata,
    Column("job", _NAME, primary_key=True),
    Column("server", _NAME, nullable=False),
    #: JSON, see ``JobStatusRecord``.
    Column("status", _TEXT, nullable=False),
    mysql_engine="InnoDB",
    mariadb_engine="InnoDB",
)

#: The files of versions, in parts that fit into a packet of MySQL.
version_files = Table(
    "headrace_version_files",
    metadata,
    Column("job", _NAME, primary_key=True),
    Column("number", Integer, primary_key=True, autoincrement=False),
    Column("file", Integer, primary_key=True, autoincrement=False),
    Column("part", Integer, primary_key=True, autoincrement=False),
    Column("name", _TEXT, nullable=False),
    Column("content", LargeBinary().with_variant(mysql.MEDIUMBLOB(), *_MYSQL), nullable=False),
    mysql_engine="InnoDB",
    mariadb_engine="InnoDB",
)

#: What all servers of the registry have in common.
common_settings = Table(
    "headrace_common_settings",
    metadata,
    Column("name", String(40), primary_key=True),
    Column("value", _TEXT, nullable=False),
    mysql_engine="InnoDB",
    mariadb_engine="InnoDB",
)
