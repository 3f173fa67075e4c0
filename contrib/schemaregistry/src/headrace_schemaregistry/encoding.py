"""Encoding with a registry: a sink looks up or registers its schema, and writes the schema's id before each body."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any, TypeVar

from headrace.foundation.clock import SystemClock
from headrace.foundation.errors import OptionError, RetriableError
from headrace.foundation.retrying import Tries, until_done
from headrace.interfaces.codec import Encoder

from headrace_schemaregistry.client import RegisteredSchema, SchemaRegistry

if TYPE_CHECKING:
    from headrace_schemaregistry.settings import RegistrySettings

T = TypeVar("T")
#: How long building a job waits for a registry that is not available. A running job waits as for any other server.
_BUILD_WAIT = timedelta(seconds=30)


def prefix_of(schema_id: int) -> bytes:
    """Return the bytes that precede each body of a schema."""
    return b"\x00" + schema_id.to_bytes(4, "big")


def latest_schema(settings: RegistrySettings, kind: str) -> tuple[int, RegisteredSchema]:
    """Return id and schema of the latest version of the subject. Called when a job is built; it waits for a registry
    that does not answer.

    Raises OptionError if the subject has no version, or if its schema is of another kind (AVRO, PROTOBUF, JSON).
    """
    registry, subject = SchemaRegistry(settings), settings.subject
    assert subject is not None
    try:
        found = _waited_for(lambda: registry.latest(subject))
    finally:
        registry.close()
    if found is None:
        hint = "check its name (for values of a topic: the topic's name and '-value'), or declare the columns"
        raise settings.refused("subject", f"the registry has no subject {subject!r}", hint)
    if found[1].kind != kind:
        raise settings.refused("subject", f"the latest schema of {subject!r} is of type {found[1].kind}")
    return found


def check_subject(settings: RegistrySettings) -> None:
    """Raise OptionError when a sink has no subject."""
    if settings.subject is None:
        hint = "for the values of a Kafka topic: the topic's name and '-value'"
        raise settings.refused(
            "subject", "a sink needs the option subject (the subject of its schema in the registry)", hint
        )


class RegisteringEncoder(Encoder):
    """Looks up or registers its schema when the first rows come. Then ``make`` gives the encoder for the bodies, which
    follow the prefix with the id.
    """

    def __init__(self, settings: RegistrySettings, text: str, kind: str, make: Callable[[bytes], Encoder]) -> None:
        self._settings = settings
        self._text = text
        self._kind = kind
        self._make = make
        self._encoder: Encoder | None = None

    def encode(self, frame: Any) -> Sequence[bytes]:
        """Encode rows. Raises RetriableError while the registry does not answer, JobError if it refuses the schema."""
        return self._made().encode(frame)

    def encode_lines(self, frame: Any) -> bytes:
        """Raise OptionError: an id may hold a line break."""
        raise OptionError(
            "bodies with schema ids are binary and cannot be written as lines of a file",
            plugin=self._settings.format_name,
            option="format",
            hint="write another format, such as format='json'",
        )

    def _made(self) -> Encoder:
        if self._encoder is None:
            registry = SchemaRegistry(self._settings)
            try:
                schema_id = self._id(registry)
            finally:
                registry.close()
            self._encoder = self._make(prefix_of(schema_id))
        return self._encoder

    def _id(self, registry: SchemaRegistry) -> int:
        subject = self._settings.subject
        assert subject is not None
        if self._settings.register_schema:
            return registry.register(subject, self._text, self._kind)
        found = registry.registered(subject, self._text, self._kind)
        if found is None:
            raise self._settings.refused(
                "register_schema",
                f"the schema is not a version of the subject {subject!r}",
                "register it, let the sink do it with register_schema=True, or leave out the schema to write the latest version",
            )
        return found


def _waited_for(action: Callable[[], T]) -> T:
    """Return the result of an action. While the registry is not available, the action is repeated, for a limited
    time.
    """

    def failed(error: RetriableError, tries: Tries) -> None:
        left = _BUILD_WAIT.total_seconds() - tries.waited_seconds
        if left <= 0:
            raise error
        tries.pause_seconds = min(tries.pause_seconds, left)

    return until_done(action, clock=SystemClock(), stopping=threading.Event(), retriable=RetriableError, failed=failed)
