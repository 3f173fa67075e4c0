"""Reads texts of JSON Schema, with all schemas that they refer to, and makes validators from them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import jsonschema_rs
import msgspec

#: The version of a schema that names none, as in jsonschema-rs.
_NO_NETWORK = "schemas are not fetched over the network"
_SHOWN_CHARACTERS = 300
#: The maximum number of backtracking steps for a regular expression of a schema.
_BACKTRACKING_MAX = 100_000


class SchemaError(ValueError):
    """A text is not a JSON Schema, or refers to a missing schema; the message says why."""


@dataclass(frozen=True)
class Document:
    """A schema, and the schemas to which it refers by name. It is plain data, so it can be a part of the job."""

    root: Any
    references: tuple[tuple[str, Any], ...] = ()
    #: The location of the file, for relative references.
    base: str | None = None

    def validator(self, check_formats: bool) -> Validator:
        """Return a validator of values. Raises SchemaError."""
        return Validator(self, check_formats)


def read_document(text: str, references: Sequence[tuple[str, str]] = (), file: str | None = None) -> Document:
    """Return the document of a text. ``references``: names and texts of other schemas. Files to which a file refers
    are read immediately. Raises SchemaError.
    """
    root = _parsed(text)
    named = [(name, _parsed(each)) for name, each in references]
    base = None if file is None else Path(file).resolve().as_uri()
    if base is not None:
        named += _files_of(root, base, {base})
    made = Document(root, tuple(named), base)
    made.validator(check_formats=True)
    return made


def _parsed(text: str) -> Any:
    try:
        found = msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeDecodeError, UnicodeEncodeError) as error:
        raise SchemaError(f"it is not JSON: {error}") from error
    if not isinstance(found, dict | bool):
        raise SchemaError("a schema is an object, or true or false")
    return found


def _files_of(node: Any, base: str, seen: set[str]) -> list[tuple[str, Any]]:
    """Return the files to which a schema refers by relative names, and the files to which these refer."""
    found: list[tuple[str, Any]] = []
    for reference in _references(node):
        name = reference.partition("#")[0]
        if not name or urlsplit(name).scheme:
            continue
        uri = base.rpartition("/")[0] + "/" + name
        if uri in seen:
            continue
        seen.add(uri)
        path = Path(unquote(urlsplit(uri).path))
        try:
            content = _parsed(path.read_text(encoding="utf-8"))
        except (OSError, UnicodeDecodeError) as error:
            raise SchemaError(f"it refers to {name!r}: {getattr(error, 'strerror', None) or error}") from error
        found += [(uri, content), *_files_of(content, uri, seen)]
    return found


def _references(node: Any) -> list[str]:
    found: list[str] = []
    if isinstance(node, Mapping):
        if isinstance(node.get("$ref"), str):
            found.append(node["$ref"])
        for each in node.values():
            found += _references(each)
    elif isinstance(node, list):
        for each in node:
            found += _references(each)
    return found


class Validator:
    """Checks values by a document. It is not pickled: each process makes its own."""

    def __init__(self, document: Document, check_formats: bool) -> None:
        registry = None
        try:
            if document.references:
                registry = jsonschema_rs.Registry(list(document.references), retriever=_refused)
            self._validator = jsonschema_rs.validator_for(
                document.root,
                validate_formats=check_formats,
                registry=registry,
                retriever=_refused,
                base_uri=document.base,
                pattern_options=jsonschema_rs.FancyRegexOptions(backtrack_limit=_BACKTRACKING_MAX),
            )
        except (jsonschema_rs.ValidationError, jsonschema_rs.ReferencingError, ValueError, TypeError) as error:
            raise SchemaError(_first_line(error)) from error
        self.conforms = self._validator.is_valid

    def reason(self, value: Any) -> str | None:
        """Return the first reason why a value does not conform, with the place; None if it conforms."""
        try:
            fault = next(iter(self._validator.iter_errors(value)), None)
        except ValueError as error:  # nested too deeply
            return _first_line(error)
        if fault is None:
            return None
        place = "/".join(map(str, fault.instance_path))
        told = fault.message if len(fault.message) <= _SHOWN_CHARACTERS else fault.message[:_SHOWN_CHARACTERS] + "…"
        return (
            f"does not conform to the schema at {place!r}: {told}"
            if place
            else f"does not conform to the schema: {told}"
        )


def _refused(uri: str) -> Any:
    raise ValueError(f"{uri!r} is not known here: {_NO_NETWORK}")


def _first_line(error: Exception) -> str:
    text = getattr(error, "message", None) or str(error)
    return str(text).splitlines()[0][:_SHOWN_CHARACTERS]
