"""A job: its sinks and everything before them, ready to run on a backend."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, fields
from datetime import timedelta
from typing import TYPE_CHECKING, Annotated, Any, NoReturn, cast

import msgspec

from headrace.foundation.errors import MissingPluginError, OptionError, PlanError, did_you_mean, located
from headrace.interfaces.backend import Backend, JobHandle, JobReport, RunOptions
from headrace.interfaces.meter import NodeMeter
from headrace.interfaces.registry import default_registry
from headrace.interfaces.settings import converted, option_fields, parse_duration
from headrace.jobs.job_names import check_job_name
from headrace.plan.graph import Plan, SinkNode, rebuilt
from headrace.plan.same_origins import same_origins

if TYPE_CHECKING:
    from headrace.jobs.dsl import Stream
    from headrace.runtime.job_meter import JobMeter

DEFAULT_BACKEND = "spark"
#: The sink of dead letters in a job without ``dead_letters(…)``.
DEFAULT_DEAD_LETTERS = "dead_letters_file"
_RUN_OPTIONS = {f.name for f in fields(RunOptions)} - {"options"}
_CONVERTED: dict[str, Any] = {
    "max_batch_records": Annotated[int, msgspec.Meta(ge=1)],
    **dict.fromkeys(("show_progress", "allow_changed_input", "replace_output"), bool),
}
#: Settings that the jobs of a namespace share, by namespace.
_namespaces: dict[str, dict[str, Any]] = {}


def namespace(name: str, **settings: Any) -> None:
    """Set options for all jobs of a namespace: ``backend``, ``bad_records``, any option of ``run`` or ``start``.

    A ``checkpoint`` directory given here gets a subdirectory per pipeline. Options of ``run`` and ``start``
    take precedence. A second call replaces the settings.
    """
    _namespaces[name] = dict(settings)


#: Guards that forbid starting a job while a file is loaded that must only build it; the last one counts.
_refusals: list[Callable[[Job], NoReturn]] = []


@contextmanager
def refusing_starts(refuse: Callable[[Job], NoReturn]) -> Iterator[None]:
    """Call ``refuse``, which raises, if a job is started in this process inside the block: for programs that only load a job."""
    _refusals.append(refuse)
    try:
        yield
    finally:
        _refusals.remove(refuse)


def start_timeout_of(namespace: str) -> timedelta:
    """Return how long jobs of a namespace wait at their start for servers that are away, where the start does not say it."""
    given = _namespaces.get(namespace, {}).get("start_timeout")
    return RunOptions().start_timeout if given is None else parse_duration(given)


@dataclass(frozen=True)
class Job:
    """A job, returned by ``to_<name>``. Attach more sinks with more ``to_<name>``, add other jobs with ``also``, then run it."""

    _stream: Stream
    sink_nodes: tuple[SinkNode, ...]
    #: Namespace and pipeline of a job that was made of jobs of other names, and those names.
    _own_name: tuple[str, str] | None = field(default=None, kw_only=True)
    _made_of: frozenset[str] = field(default=frozenset(), kw_only=True)

    def __repr__(self) -> str:
        return f"<job {self.name}: {', '.join(node.label for node in self.sink_nodes)}>"

    @property
    def stream(self) -> Stream:
        """The stream that the first sink ends; further sinks are attached to it."""
        return self._stream

    @property
    def namespace(self) -> str:
        """The namespace of the job: the first part of its name."""
        return self._own_name[0] if self._own_name is not None else self._stream._pipeline.namespace

    @property
    def pipeline(self) -> str:
        """The pipeline of the job: the second part of its name."""
        return self._own_name[1] if self._own_name is not None else self._stream._pipeline.pipeline

    @property
    def name(self) -> str:
        """``namespace.pipeline``, by which logs, checkpoints and positions in sinks name the job."""
        return f"{self.namespace}.{self.pipeline}"

    @property
    def notices(self) -> tuple[str, ...]:
        """What of the job's text has no effect here, in sentences. Only a language such as SQL has any; servers show them."""
        return ()

    def also(self, *others: Job, name: str | None = None) -> Job:
        """Return one job that does the work of this job and the others. Sources that they share are read once.

        Jobs of different names need a ``name`` for the combined job: "namespace.pipeline", or a pipeline of this job's namespace.
        It is a new job, with its own checkpoint and positions in sinks. Raises PlanError if the jobs cannot be combined.
        """
        jobs = (self, *others)
        nodes = {id(node): node for job in jobs for node in job.sink_nodes}
        named = frozenset[str]().union(*({job.name, *job._made_of} for job in jobs))
        if name is None:
            for other in others:
                if other.name != self.name and other.name not in self._made_of:
                    raise PlanError(
                        f"jobs of different names need a name for the combined job: {self.name} and {other.name}",
                        job=self.name,
                        hint="build both from the same hr.stream(namespace, pipeline), or say hr.job(…, name='…')",
                    )
            return Job(self._stream, tuple(nodes.values()), _own_name=self._own_name, _made_of=self._made_of)
        if len({job._bad_records() == "stop" for job in jobs}) > 1:
            raise PlanError(
                "one of these jobs stops at a bad record, and another one does not",
                job=name,
                option="bad_records",
                hint="give all jobs the same bad_records",
            )
        namespace, _, pipeline = name.rpartition(".")
        namespace = namespace or self.namespace
        check_job_name(namespace, pipeline)
        return Job(self._stream, tuple(nodes.values()), _own_name=(namespace, pipeline), _made_of=named)

    def __getattr__(self, verb: str) -> Any:
        if not (verb == "to" or verb.startswith("to_")):
            raise AttributeError(f"a job has no {verb!r}")
        attach = getattr(self._stream, verb)
        return lambda *arguments, **options: self.also(attach(*arguments, **options))

    # --------------------------------------------------------------------------------------------------- running

    def plan(self, options: RunOptions | None = None) -> Plan:
        """Return the plan that runs: with the default way of dead letters added, and optimized by the plug-ins."""
        plan = Plan(self.namespace, self.pipeline, self.sink_nodes, made_of=self._made_of)
        if self._made_of:
            plan = rebuilt(plan, same_origins(plan, labels=False))
        if plan.dead_letters_id is None and self._bad_records() != "stop":
            plan = self._with_default_dead_letters(plan, options)
        if options is not None:
            plan.checkpoint, plan.allow_changed_input = options.checkpoint, options.allow_changed_input
        hooks = default_registry().load_all()
        for implementation in hooks.headrace_optimize.get_hookimpls():
            plan = cast(Plan, implementation.function(plan) or plan)
        for sink_id, node in plan.sinks.items():
            if node.sink.names_writer_by_definition:
                node.sink.writer_name = f"{plan.job_name}.{sink_id}:{plan.output_digests[sink_id]}"
        return plan

    def run(self, backend: str | None = None, **options: Any) -> JobReport:
        """Run to the end of the input that exists now (``until="end"``) and return figures.

        ``backend`` is the name of an installed backend (default: the namespace's, else ``"spark"``); options are those
        of ``RunOptions`` and of the backend. Raises JobError before anything is read if the job
        is wrong, and JobFailedError if it fails while it runs.
        """
        options.setdefault("show_progress", sys.stderr.isatty())
        handle = self._start(backend, {"until": "end", **options})
        try:
            return handle.wait()
        except KeyboardInterrupt:
            handle.stop()
            raise

    def start(self, backend: str | None = None, **options: Any) -> JobHandle:
        """Start the job and return a handle at once. The job runs until it is stopped, unless ``until="end"`` is given."""
        return self._start(backend, {"until": None, **options})

    def prepare(self, backend: str | None = None, **options: Any) -> PreparedJob:
        """Do all of ``start`` that needs neither checkpoint nor servers: for an upgrade, while the old version still runs.

        Options are checked, the plan is made, the backend is imported and made ready. Raises JobError as ``start`` does.
        A source without a declared schema may ask its server for the columns.
        """
        prepared = self._prepare(backend, {"until": None, **options})
        prepared.backend.make_ready(prepared.plan, prepared.options)
        return prepared

    def to_spark(self, session: Any, **options: Any) -> Any:
        """Start the job in a SparkSession of yours and return Spark's own StreamingQuery; needs headrace-spark.

        ``options`` are those of ``start(backend="spark", …)``. Stopping the query interrupts the current batch, and the
        next start from the same checkpoint processes it again. Raises JobError as ``start`` does.
        """
        return default_registry().find("backend", DEFAULT_BACKEND).start_query(self, session, **options)

    def to_dataframe(self, session: Any = None, **options: Any) -> Any:
        """Return the rows of the job's sink as a DataFrame of Spark; needs headrace-spark. The sink itself writes nothing.

        ``session`` is the SparkSession that it belongs to, which a job that reads DataFrames knows already. For the
        options see docs/dataframes.md. Raises JobError if the job has an error.
        """
        return default_registry().find("backend", DEFAULT_BACKEND).to_dataframe(self, session, **options)

    def _start(self, backend: str | None, given: Mapping[str, Any]) -> JobHandle:
        if _refusals:
            _refusals[-1](self)
        with located(job=self.name):
            return self._prepare(backend, given).start()

    def _prepare(self, backend: str | None, given: Mapping[str, Any]) -> PreparedJob:
        shared = dict(_namespaces.get(self.namespace, {}))
        shared.pop("bad_records", None)
        name = backend or shared.pop("backend", None) or DEFAULT_BACKEND
        shared.pop("backend", None)
        if shared.get("checkpoint") is not None:
            shared["checkpoint"] = os.path.join(os.fspath(shared["checkpoint"]), self.pipeline)
        backend_class = default_registry().find("backend", name)
        run_options, backend_settings = options_of(backend_class, name, {**shared, **given})
        runner: Backend = backend_class(backend_settings)
        plan = self.plan(run_options)
        return PreparedJob(self.name, name, plan, run_options, runner)

    def _bad_records(self) -> str:
        own = self._stream._pipeline.bad_records
        return own or _namespaces.get(self.namespace, {}).get("bad_records", "dead_letters")

    def _with_default_dead_letters(self, plan: Plan, options: RunOptions | None) -> Plan:
        """Route dead letters to files: beside the checkpoint if that is a directory, else in the working directory."""
        checkpoint = options.checkpoint if options else None
        if checkpoint is not None and "://" in checkpoint:
            checkpoint = None
        place = os.path.join(checkpoint, "dead-letters") if checkpoint else os.path.join("dead-letters", self.name)
        try:
            default_registry().find("sink", "file")
        except MissingPluginError:
            return plan  # bad records then stop the job: they never vanish
        bad = self._stream.dead_letters()
        routed = bad.to_file(place, format="json", name=DEFAULT_DEAD_LETTERS)
        # The job may be edited and run again: its dead letters stand beside those of before, and none is taken for a replay.
        routed.sink_nodes[-1].sink.names_writer_by_definition = True
        return Plan(self.namespace, self.pipeline, (*plan.sinks.values(), *routed.sink_nodes))


@dataclass(frozen=True)
class PreparedJob:
    """A job whose start has only the rest to do: returned by ``Job.prepare``. It is started once."""

    job: str
    backend_name: str
    plan: Plan
    options: RunOptions
    backend: Backend

    def load_ahead(self) -> None:
        """Load the checkpoint before ``start``, while another process still runs the job: so the output pauses for a shorter time.

        Called any number of times before ``start``, the last time just before the other process is stopped. Nothing is changed in the
        checkpoint. The backend decides how much is loaded. The memory of the process grows to the size that the job will need. Raises
        OptionError for a wrong ``metrics``, and errors of the backend that prevent the start.
        """
        self._meter()
        self.backend.load_ahead(self.plan, self.options)

    def _meter(self) -> JobMeter | None:
        """Return the meter of the job, which whatever is made of the plan counts with; None: nothing is counted."""
        from headrace.runtime.job_meter import JobMeter, meter_of

        if isinstance(self.plan.meter, JobMeter):
            return self.plan.meter
        meter = meter_of(self.job, self.options.metrics)
        if meter is not None:
            self.plan.meter = meter
            for name, node in self.plan.sources.items():
                node.source.meter = NodeMeter(meter, name)
        return meter

    def start(self) -> JobHandle:
        """Start the job and return at once, as ``Job.start`` does. Raises JobError for errors that are found before anything is read."""
        from headrace.runtime.control import watch

        meter = self._meter()
        if meter is not None:
            meter.open()
        try:
            handle = self.backend.start(self.plan, self.options)
        except BaseException:
            if meter is not None:
                meter.close()
            raise
        handle.plan = self.plan
        if meter is not None:
            meter.started(handle.metrics)
        watch(handle, self.options.checkpoint, self.job)
        return handle


def options_of(backend_class: type[Backend], name: str, given: Mapping[str, Any]) -> tuple[RunOptions, Any]:
    declared = [each.encode_name for each in option_fields(backend_class.Settings)]
    own: dict[str, Any] = {}
    backend_options: dict[str, Any] = {}
    for key, value in given.items():
        if key in declared:
            backend_options[key] = value
        elif key in _RUN_OPTIONS:
            own[key] = value
        else:
            hint = did_you_mean(key, [*declared, *_RUN_OPTIONS], known="options")
            raise OptionError(f"unknown option {key!r}", plugin=name, option=key, hint=hint)
    for key in ("checkpoint_interval", "discovery_interval", "start_timeout"):
        if key in own:
            try:
                own[key] = parse_duration(own[key])
            except ValueError as error:
                raise OptionError(str(error), plugin=name, option=key) from error
    for key, kind in _CONVERTED.items():
        if key in own:
            own[key] = converted(own[key], kind, plugin=name, option=key)
    if own.get("until") not in (None, "end"):
        raise OptionError(f"unusable value {own['until']!r}: it is 'end' or None", plugin=name, option="until")
    for key in ("checkpoint", "from_savepoint"):
        if own.get(key) is not None:
            own[key] = os.fspath(own[key])
    for key, allowed in (("sinks_ahead", ("refuse", "write")), ("broken_queues", ("set_aside", "stop"))):
        if own.get(key, allowed[0]) not in allowed:
            what = f"unusable value {own[key]!r}: it is {allowed[0]!r} or {allowed[1]!r}"
            raise OptionError(what, plugin=name, option=key)
    if "drop_state" in own:
        dropped = own["drop_state"]
        own["drop_state"] = (
            tuple(part.strip() for part in dropped.split(",")) if isinstance(dropped, str) else tuple(dropped)
        )
        if own["drop_state"] and own.get("from_savepoint") is None:
            raise OptionError(
                "this option leaves state out of a savepoint, and the job does not start from one",
                plugin=name,
                option="drop_state",
                hint="give from_savepoint",
            )
    return RunOptions(**own), backend_class.Settings.of(backend_options, plugin=name)


def job(*jobs: Job, name: str | None = None) -> Job:
    """Return one job that does what all of them do; ``name``: see ``Job.also``."""
    if not jobs:
        raise PlanError("job() needs at least one stream that ends in a sink")
    return jobs[0].also(*jobs[1:], name=name)
