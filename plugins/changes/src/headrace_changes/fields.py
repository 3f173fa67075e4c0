"""The fields of envelopes as columns of parsed values, whether an envelope is the whole body or a field of it."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import chain
from typing import Any

import msgspec
from msgspec.structs import astuple

from headrace_changes.envelopes import Parsed

#: Stands beside the payload and not in it.
_SCHEMA = "schema"


class EnvelopeFields:
    """Which fields are parsed, and where they are."""

    def __init__(self, fields: Mapping[str, Any], payload_field: str | None) -> None:
        """``fields``: how msgspec reads each. ``payload_field``: the field of the body that the envelope is; None: the body."""
        self._payload_field = payload_field
        outer = dict(fields)
        if payload_field is not None:
            inner = {name: kind for name, kind in fields.items() if name != _SCHEMA}
            self._inner = list(inner)
            self._payload = _struct("Payload", inner)
            outer = {payload_field: self._payload | None, **({_SCHEMA: fields[_SCHEMA]} if _SCHEMA in fields else {})}
        self._outer = list(outer)
        #: What a body is parsed to.
        self.struct = _struct("Envelope", outer)

    def parsed(self, values: list[Any], count: int) -> tuple[Parsed, dict[int, str]]:
        """Return the fields of so many bodies whose values lie end to end, and which of them have no envelope, and why."""
        outer = {name: values[at :: len(self._outer)] for at, name in enumerate(self._outer)}
        if self._payload_field is None:
            return outer, {}
        payloads = outer.pop(self._payload_field)
        faults = {at: f'there is no "{self._payload_field}"' for at, each in enumerate(payloads) if each is None}
        nothing = self._payload()
        flat = list(chain.from_iterable(astuple(nothing if each is None else each) for each in payloads))
        return {**{name: flat[at :: len(self._inner)] for at, name in enumerate(self._inner)}, **outer}, faults


def _struct(name: str, fields: Mapping[str, Any]) -> type[msgspec.Struct]:
    """Return a struct of fields that may all be missing, whatever they are called."""
    renamed = {f"field{at}": each for at, each in enumerate(fields)}
    members = [(field, fields[each], None) for field, each in renamed.items()]
    return msgspec.defstruct(name, members, rename=renamed, gc=False)
