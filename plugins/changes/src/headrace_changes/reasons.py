"""Why a body is no change, in words. Only called for bodies that were found bad."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import msgspec
import polars as pl
from headrace.codecs.body_checks import REFUSALS, on_fresh_stack
from headrace.codecs.json_reasons import JsonReasons, described
from headrace.codecs.text_columns import UNEXPLAINED
from headrace.flow.schema import type_name


class ChangeReasons:
    """Finds the reason why a body does not fit the struct of an envelope."""

    def __init__(self, decode: Callable[[bytes], msgspec.Struct], max_body_bytes: int) -> None:
        self._decode = decode
        self._of_json = JsonReasons({}, self._decoded, max_body_bytes)
        self._said = ""

    def reason(self, body: bytes) -> str:
        """Return the first fault of a body: size, encoding, nesting, syntax, then its fields."""
        self._said = ""
        found = self._of_json.reason(body)
        return self._said or found

    @staticmethod
    def value(name: str, data_type: pl.DataType, value: Any) -> str:
        """Return the reason for a value that does not fit its column."""
        raw = bytes(value) if isinstance(value, msgspec.Raw | bytes) else msgspec.json.encode(value)
        return f"column {name!r}: expected {type_name(data_type)}, found {described(raw)}"

    def _decoded(self, body: bytes) -> msgspec.Struct:
        try:
            return self._decode(body)
        except RecursionError:
            return on_fresh_stack(self._decoded, body)
        except REFUSALS as error:
            self._said = _with_place(str(error))
            raise


def _with_place(message: str) -> str:
    """Put msgspec's message about a value in our words, with its place: ``after.id: expected int, got str``."""
    found = re.fullmatch(r"(.*) - at `\$\.?(.*)`", message)
    if found is None:
        return message or UNEXPLAINED
    said = found[1].replace("`", "").replace(" | null", "")
    return f"{found[2]}: {said[:1].lower()}{said[1:]}" if found[2] else said
