"""From a pipeline file to the job that the same verbs make in Python."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import headrace as hr
from headrace.foundation.errors import JobError, did_you_mean

from headrace_pipeline.connectors import Connectors, Ends, check_sink
from headrace_pipeline.document import Scalar, Section, Value, is_nothing, read
from headrace_pipeline.errors import PipelineError, all_of
from headrace_pipeline.keys import PIPELINE, check_section
from headrace_pipeline.placing import placed
from headrace_pipeline.steps import Step, append, outputs_of, verb_of

DEFAULT_NAMESPACE = "pipelines"


@dataclass(frozen=True)
class PipelineFile:
    """A pipeline file that was read, with keys that are known. ``job`` compiles it."""

    root: Section

    @classmethod
    def of(cls, path: Path, variables: Mapping[str, str]) -> PipelineFile:
        """Read a file. Raises PipelineError if it is not YAML, for unknown keys, and for missing required keys."""
        root = read(path, variables)
        check_section(root, PIPELINE, of="a pipeline")
        for key in ("sources", "sinks"):
            section = root.required(key, of="a pipeline").section()
            if not section.entries:
                section.fail(f"{key} needs an entry", option=key)
        defaults = root.get("variables")
        if defaults is not None:
            for name, entry in defaults.section().entries.items():
                root.file.variables.defaults |= _default(name, entry.value)
        return cls(root)

    def job(self, ends: Ends | None = None) -> hr.Job:
        """Return the job. ``ends`` replace the sources and sinks of the file. Raises PipelineError, or RetriableError where a
        server is asked for columns and is away.
        """
        return _Compiler(self.root, ends or Connectors()).job()


def _default(name: str, value: Value) -> dict[str, str]:
    if not isinstance(value, Scalar):
        value.fail(f"the default of a variable is a text or a number, not {value.kind}", option=name)
    return {} if value.value is None else {name: value.source}


@dataclass
class _Result:
    """The stream of a source or a step, its place in the file, and whether something reads it."""

    stream: hr.Stream
    what: str
    place: Value
    is_read: bool = False


class _WrongBeforeError(Exception):
    """What a step or sink reads is wrong itself, so that nothing can be said about it."""


class _Compiler:
    def __init__(self, root: Section, ends: Ends) -> None:
        self._root = root
        self._ends = ends
        #: Sources, steps and outputs by their names, and all of them in their order.
        self._named: dict[str, _Result] = {}
        self._results: list[_Result] = []
        #: The result of the last step; and whether that step is wrong, so that it has none.
        self._last: _Result | None = None
        self._last_is_wrong = False
        #: What is wrong, and the names of sources and steps that it leaves without a result.
        self._errors: list[PipelineError] = []
        self._wrong: set[str] = set()

    def job(self) -> hr.Job:
        """Return the job. Raises PipelineError with all that is wrong; what reads a wrong part is not judged."""
        pipeline = self._pipeline()
        for name, entry in self._root.required("sources", of="a pipeline").section().entries.items():
            with self._judged(name):
                self._name(name, entry.key, self._ends.source(pipeline, name, entry.value.section()))
        self._last_is_wrong = bool(self._wrong)
        steps = self._root.get("steps")
        for step in [] if steps is None or is_nothing(steps) else steps.items():
            section = step.section()
            with self._judged(*_names_of(section), is_step=True):
                self._append(section)
        jobs: list[hr.Job] = []
        for name, entry in self._root.required("sinks", of="a pipeline").section().entries.items():
            with self._judged():
                self._sink(name, entry.value.section(), jobs)
        if self._errors:
            raise all_of(self._errors)
        given = self._root.get("dead_letters")
        bad_records = self._root.get("bad_records")
        bad = None
        if bad_records is None or bad_records.text() != "stop":
            bad = self._ends.dead_letters(jobs[0].stream.dead_letters(), None if given is None else given.section())
        elif given is not None:
            given.fail("with bad_records: stop there are no dead letters", option="dead_letters")
        self._check_that_all_is_read()
        return hr.job(*jobs, *([] if bad is None else [bad]))

    @contextmanager
    def _judged(self, *names: str, is_step: bool = False) -> Iterator[None]:
        """Keep what is wrong with a part of the file, so that the others are judged too. ``names``: of its results."""
        try:
            yield
        except PipelineError as error:
            self._errors.append(error)
        except _WrongBeforeError:
            pass
        else:
            self._last_is_wrong = self._last_is_wrong and not is_step
            return
        self._wrong.update(names)
        self._last_is_wrong = self._last_is_wrong or is_step

    def _sink(self, name: str, section: Section, jobs: list[hr.Job]) -> None:
        try:
            stream = self._from(section, of=f"sink {name!r}")
        except _WrongBeforeError:
            check_sink(section, name)
            raise
        jobs.append(self._ends.sink(stream, name, section))

    def _pipeline(self) -> hr.Pipeline:
        root = self._root
        name, namespace, functions = (
            root.required("name", of="a pipeline"),
            root.get("namespace"),
            root.get("functions"),
        )
        given: dict[str, Any] = {}
        if functions is not None:
            given["functions"] = {key: entry.value.text() for key, entry in functions.section().entries.items()}
        bad_records = root.get("bad_records")
        if bad_records is not None:
            given["bad_records"] = bad_records.text()
        space, pipeline = DEFAULT_NAMESPACE if namespace is None else namespace.text(), name.text()
        with placed(root):
            try:
                return hr.stream(space, pipeline, **given)
            except JobError as error:
                if error.option == "pipeline":  # which is the key name here
                    with placed(name):
                        raise
                raise

    def _append(self, section: Section) -> None:
        verb = verb_of(section)
        stream = self._from(section, of=f"the step {verb!r}")
        step = Step(verb, section.entries[verb].value, stream, self._stream_of)
        named = section.get("as")
        if verb == "route":
            self._route(step, named)
            return
        made = append(step)
        if named is None:
            self._last = self._result(made, f"the step {verb!r}", section)
        else:
            self._last = self._name(named.text(), named, made)

    def _route(self, step: Step, named: Value | None) -> None:
        if named is not None:
            named.fail("a route gives several results, which have the names of its outputs", option="as")
        with placed(step.value):
            outputs = outputs_of(step)
        for place, stream in outputs.items():
            self._name(place.text(), place, stream)
        # There is no one result that the next step could read without naming it.
        self._last = None

    def _result(self, stream: hr.Stream, what: str, place: Value) -> _Result:
        self._results.append(_Result(stream, what, place))
        return self._results[-1]

    def _name(self, name: str, place: Value, stream: hr.Stream) -> _Result:
        if name in self._named:
            place.fail(f"{name!r} is already the name of a source or step", hint="give it another name")
        self._named[name] = self._result(stream, repr(name), place)
        return self._named[name]

    def _stream_of(self, value: Value) -> hr.Stream:
        """Return the stream of a name."""
        name = value.text()
        found = self._named.get(name)
        if found is None and name in self._wrong:
            raise _WrongBeforeError
        if found is None:
            hint = did_you_mean(name, self._named, known="sources and steps with a name")
            value.fail(f"nothing before this is called {name!r}", hint=hint)
        found.is_read = True
        return found.stream

    def _from(self, section: Section, *, of: str) -> hr.Stream:
        """Return the stream that a step or sink reads: what ``from`` names, else the last step, else the only source."""
        named = section.get("from")
        if named is not None:
            return self._stream_of(named)
        if self._last_is_wrong:
            raise _WrongBeforeError
        found = self._last
        if found is None:
            if len(self._results) > 1:
                section.fail(f"{of} must say what it reads: from: {' or '.join(self._named)}", option="from")
            found = self._results[0]
        found.is_read = True
        return found.stream

    def _check_that_all_is_read(self) -> None:
        """Raise PipelineError for a source or step whose rows nothing reads: they would vanish."""
        for each in self._results:
            if not each.is_read:
                each.place.fail(f"nothing reads {each.what}", hint="name it in a step or sink: from: NAME")


def _names_of(step: Section) -> list[str]:
    """Return the names that the results of a step would have, as far as they are there."""
    named, route = step.get("as"), step.get("route")
    found = [] if named is None else [each.source for each in named.scalars()]
    if isinstance(route, Section):
        outputs, default = route.get("outputs"), route.get("default")
        found += list(outputs.entries) if isinstance(outputs, Section) else []
        found += [] if default is None else [each.source for each in default.scalars()]
    return found
