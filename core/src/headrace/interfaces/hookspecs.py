"""Every hook that a plug-in can implement. They run when a job is built or changes state, never per record or batch.

A plug-in is a module or object named by an entry point of group ``headrace``; its hooks are functions marked with
``headrace.hookimpl``. Hooks that offer things return ``{name: thing}``, where the thing is a class or the text
``"package.module:Class"``, which is imported only when it is used: plug-in modules should import nothing heavy.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import pluggy

if TYPE_CHECKING:
    from headrace.flow.messages import Queue
    from headrace.interfaces.backend import Backend, JobReport
    from headrace.interfaces.codec import Codec, Decoder, DecoderRequest
    from headrace.interfaces.functions import UserFunction
    from headrace.interfaces.language import Language
    from headrace.interfaces.local_store import LocalStore
    from headrace.interfaces.metrics import Metric, MetricsExporter
    from headrace.interfaces.operator import OperatorSpec
    from headrace.interfaces.sink import Sink
    from headrace.interfaces.source import Source
    from headrace.interfaces.state_store import StateStore
    from headrace.plan.graph import Plan

PROJECT = "headrace"
hookspec = pluggy.HookspecMarker(PROJECT)
hookimpl = pluggy.HookimplMarker(PROJECT)


@hookspec
def headrace_sources() -> Mapping[str, type[Source] | str]:  # type: ignore[empty-body]
    """Offer sources: ``{"kafka": KafkaSource}`` makes ``stream.from_kafka(...)`` work."""


@hookspec
def headrace_sinks() -> Mapping[str, type[Sink] | str]:  # type: ignore[empty-body]
    """Offer sinks: ``{"kafka": KafkaSink}`` makes ``stream.to_kafka(...)`` work."""


@hookspec
def headrace_operators() -> Mapping[str, type[OperatorSpec] | str]:  # type: ignore[empty-body]
    """Offer operators: ``{"sample": Sample}`` makes ``stream.sample(...)`` work with the arguments of ``Sample``."""


@hookspec
def headrace_functions() -> Mapping[str, UserFunction | str]:  # type: ignore[empty-body]
    """Offer functions for SQL expressions, by name."""


@hookspec
def headrace_codecs() -> Mapping[str, type[Codec] | str]:  # type: ignore[empty-body]
    """Offer formats: ``{"json": JsonCodec}`` makes ``format="json"`` work."""


@hookspec
def headrace_decoders() -> Mapping[str, Callable[[DecoderRequest], Decoder | None] | str]:  # type: ignore[empty-body]
    """Offer faster decoders of formats of headrace: ``{"json": make}``.

    headrace calls ``make`` with a ``DecoderRequest`` for every decoder of the format. It returns a decoder with exactly
    the results of ``request.plain``, rows and reasons of bad bodies, or None if ``request.plain`` shall do the work. It
    is not called if ``HEADRACE_DECODERS=plain`` is set.
    """


@hookspec
def headrace_accelerators() -> Mapping[str, Callable[[], Callable[..., Any] | None] | str]:  # type: ignore[empty-body]
    """Offer faster forms of functions of headrace that work on whole buffers: ``{"find_byte": make}``.

    headrace calls ``make`` once in a process. It returns a function with the same results as headrace's own for all
    arguments, or None. ``find_byte(buffer, byte, begin)`` returns the places of a byte as int64, in order;
    ``text_sums(data, offsets)`` the polynomials of texts for the hash of keys (``flow.key_hashes.text_sums``).
    ``group_sums(keys, numbers)`` returns the first rows of groups of equal keys and sums of numbers by group, or None
    (``headrace_stateful.aggregates.grouping``). It is not called if ``HEADRACE_DECODERS=plain`` is set.
    """


@hookspec
def headrace_state_stores() -> Mapping[str, type[StateStore] | str]:  # type: ignore[empty-body]
    """Offer state stores, in which backends keep the state of operators: ``{"mysql": MysqlStateStore}`` makes
    ``state_store="mysql"`` work.
    """


@hookspec
def headrace_local_stores() -> Mapping[str, type[LocalStore] | str]:  # type: ignore[empty-body]
    """Offer databases on the local disk, for state that does not fit in memory (``state_memory``)."""


@hookspec
def headrace_backends() -> Mapping[str, type[Backend] | str]:  # type: ignore[empty-body]
    """Offer backends: ``{"spark": SparkBackend}`` makes ``job.run(backend="spark")`` work."""


@hookspec
def headrace_languages() -> Mapping[str, type[Language] | str]:  # type: ignore[empty-body]
    """Offer languages that jobs can be written in: ``{"sql": SqlLanguage}`` makes ``headrace.sql(text)`` work."""


@hookspec
def headrace_connectors() -> Mapping[str, str]:  # type: ignore[empty-body]
    """Offer connectors to SQL texts under other names than the plug-in's own: ``{"upsert-kafka": "kafka"}``.

    The value is the name of a source, a sink, or both; their ``table_options`` define the options of this name. Names
    are in lower case.
    """


@hookspec
def headrace_secret_stores() -> Mapping[str, Callable[[str], str] | str]:  # type: ignore[empty-body]
    """Offer secret stores: ``{"vault": read}`` makes ``password="${vault:team/db}"`` call ``read("team/db")``.

    The function is called in every process that uses the secret, whenever it is used. It returns the secret, or raises
    HeadraceError without it in the message.
    """


@hookspec
def headrace_metrics() -> Mapping[str, Metric | str]:  # type: ignore[empty-body]
    """Offer the definitions (``Metric``) of figures that operators of the plug-in count, by their names."""


@hookspec
def headrace_metrics_exporters() -> Mapping[str, type[MetricsExporter] | str]:  # type: ignore[empty-body]
    """Offer exporters of figures: ``{"prometheus": PrometheusExporter}`` makes ``metrics="prometheus://…"`` work."""


@hookspec
def headrace_optimize(plan: Plan) -> Plan | None:
    """Return a plan with the same results and less work, or None for no change. Called once before a job starts."""


@hookspec
def headrace_job_started(job: str, backend: str) -> None:
    """A job has started. ``job`` is ``namespace.pipeline``. Called in the process that started it."""


@hookspec
def headrace_checkpoint_completed(job: str, checkpoint_id: int, seconds: float) -> None:
    """A checkpoint is durable; making it took ``seconds``."""


@hookspec
def headrace_queue_added(job: str, queue: Queue) -> None:
    """The job reads this queue from now on. Called in the process that assigns queues."""


@hookspec
def headrace_queue_removed(job: str, queue: Queue) -> None:
    """The job no longer reads this queue. Called in the process that assigns queues."""


@hookspec
def headrace_job_stopped(job: str, report: JobReport) -> None:
    """A job has ended: at the end of its input, by ``stop``, or by an error that the report names."""
