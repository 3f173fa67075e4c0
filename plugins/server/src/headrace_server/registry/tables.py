"""The tables of the registry. They are made at the start of a server, in SQLite, MySQL or PostgreSQL."""

from __future__ import annotations

from sqlalchemy import BigInteger, Boolean, Column, Float, ForeignKey, Index, Integer, MetaData, String, Table, Text

metadata = MetaData()

#: MySQL needs the lengths of columns that have an index.
_NAME = String(200)

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
    Column("problem", Text, nullable=True),
    Column("labels", Text, nullable=False),
    Column("unit", _NAME, nullable=False),
    #: The server that runs the job, and the number of its lease: set by a server that shares the registry with others.
    Column("server", _NAME, nullable=True),
)

versions = Table(
    "headrace_versions",
    metadata,
    Column("job", _NAME, ForeignKey("headrace_jobs.name"), primary_key=True),
    Column("number", Integer, primary_key=True),
    Column("content_hash", String(64), nullable=False),
    #: ``new``, ``accepted``, ``refused`` (does not plan) or ``fell_back`` (was not healthy).
    Column("state", String(20), nullable=False),
    Column("reason", Text, nullable=True),
    #: JSON: the resolved settings of job.yaml, and the names of the files with their hashes.
    Column("settings", Text, nullable=False),
    Column("files", Text, nullable=False),
    Column("plan", Text, nullable=True),
    Column("author", _NAME, nullable=True),
    Column("note", Text, nullable=True),
    Column("created_seconds", Float, nullable=False),
)

#: Which job runs a pipeline, ``namespace.pipeline``: two files with the same one would share consumer groups and positions in sinks.
pipelines = Table(
    "headrace_pipelines",
    metadata,
    Column("pipeline", _NAME, primary_key=True),
    Column("job", _NAME, nullable=False),
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
    Column("process_started_seconds", Float, nullable=False),
    Column("socket", Text, nullable=False),
    Column("started_seconds", Float, nullable=False),
    Column("ended_seconds", Float, nullable=True),
    #: ``stopped``, ``finished``, ``failed``, ``killed``; None while it runs.
    Column("outcome", String(20), nullable=True),
    Column("reason", Text, nullable=True),
    Index("headrace_runs_of_job", "job", "ended_seconds"),
)

#: Scheduled runs that were begun: a row is added together with the wish that the job runs, so none begins twice.
scheduled_starts = Table(
    "headrace_scheduled_starts",
    metadata,
    Column("job", _NAME, primary_key=True),
    #: Milliseconds since the Unix epoch.
    Column("due_ms", BigInteger, primary_key=True, autoincrement=False),
)

operations = Table(
    "headrace_operations",
    metadata,
    Column("id", String(40), primary_key=True),
    Column("kind", String(40), nullable=False),
    #: JSON: the jobs that it is about.
    Column("jobs", Text, nullable=False),
    #: ``running``, ``done`` or ``failed``.
    Column("state", String(20), nullable=False),
    #: What it is doing now, for people.
    Column("step", Text, nullable=False),
    Column("result", Text, nullable=True),
    Column("error", Text, nullable=True),
    Column("started_seconds", Float, nullable=False),
    Column("ended_seconds", Float, nullable=True),
)

servers = Table(
    "headrace_servers",
    metadata,
    Column("name", _NAME, primary_key=True),
    Column("pid", Integer, nullable=False),
    Column("url", Text, nullable=True),
    Column("started_seconds", Float, nullable=False),
    Column("ended_seconds", Float, nullable=True),
)
