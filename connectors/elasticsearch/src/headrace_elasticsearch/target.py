"""The index that a sink writes to: checked, and created, before anything is read."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import polars as pl
from headrace.flow.schema import Schema, type_name
from headrace.foundation.errors import JobError, did_you_mean
from headrace.interfaces.operator import Changes

from headrace_elasticsearch.connection import Connection, decoded, error_of, index_path, no_such_index, path_of
from headrace_elasticsearch.documents import TIMESTAMP, is_key, is_time, named_columns
from headrace_elasticsearch.mappings import is_strict, mapped, misfit, properties_of
from headrace_elasticsearch.settings import ElasticsearchSinkSettings, columns_of, has_time, key_columns

#: Fields that documents have by themselves; a column of that name would make every document a bad one.
_METADATA_FIELDS = {
    "_id", "_index", "_source", "_routing", "_seq_no", "_version", "_field_names", "_ignored", "_tier", "_primary_term",
    "_doc_count", "_nested_path", "_type", "_tsid",
}  # fmt: skip
#: https://www.elastic.co/docs/api/doc/elasticsearch/operation/operation-indices-create
_NAME = re.compile(r"[^\\/*?\"<>| ,#:A-Z]{1,255}")
#: Above the templates that come with the server (100 and 101), below what people make by hand to override.
_TEMPLATE_PRIORITY = 200
_BACKING_INDEX = re.compile(r"(partial-|restored-|shrink-)*\.ds-")
_NOT_THERE = frozenset({400, 404, 405, 501})


def check_columns(settings: ElasticsearchSinkSettings, schema: Schema | None) -> None:
    """Check names and options against the stream's columns, which are None when known row by row. Raises JobError."""
    _check_name(settings)
    if schema is None:
        return
    for name, option in named_columns(settings).items():
        if name not in schema:
            raise _unknown(name, option, schema)
        kind = schema[name]
        fits = is_time(kind) if option == "index_time" else is_key(kind)
        if option == "version":
            fits = kind.is_integer()
        if not fits:
            wanted = {"index_time": "a timestamp or date", "version": "an integer"}.get(option, "text or an integer")
            hint = "CAST the column in a select() before the sink"
            raise _refused(option, f"column {name!r} is {type_name(kind)}, not {wanted}", hint)
    for option in ("exclude", "mappings"):
        for name in getattr(settings, option) or ():
            if name not in schema:
                raise _unknown(name, option, schema)
    left_out = frozenset(settings.exclude or ())
    for name in schema:
        if name in left_out:
            continue
        if name in _METADATA_FIELDS:
            hint = f"rename the column, or leave it out: exclude=[{name!r}]"
            raise _refused("exclude", f"column {name!r} has the name of a field that Elasticsearch reserves", hint)
        if not name.strip(".") or ".." in name or name.startswith(".") or name.endswith("."):
            raise _refused("exclude", f"no field can have the name of column {name!r}", "rename the column")
    if settings.data_stream and settings.index_time is None and TIMESTAMP not in schema:
        hint = f"name the column that becomes it: index_time='...', or rename one to {TIMESTAMP!r}"
        raise _refused(
            "index_time",
            f"documents of a data stream need the field {TIMESTAMP!r}, and the stream has no such column",
            hint,
        )


def check_changes(settings: ElasticsearchSinkSettings, changes: Changes) -> None:
    """Check that rows which change earlier ones have the same document as these. Raises JobError."""
    key = list(changes.key or ())
    named = f"id={key[0]!r}" if len(key) == 1 else f"id={'-'.join('{' + name + '}' for name in key)!r}"
    if settings.id_template is None:
        raise _refused(
            "id", "the rows of the stream change, but no option names the column that identifies a document", named
        )
    missing = [name for name in key if name not in key_columns(settings.id_template)]
    if missing:
        problem = f"rows that differ in {missing[0]!r} alone would have the same id and replace each other"
        raise _refused("id", problem, named)


def _check_name(settings: ElasticsearchSinkSettings) -> None:
    index = settings.index
    if has_time(index):
        for text in re.split(r"\{[^{}]+\}", index):
            if "%" in text:
                index = index.replace(text, _example(text))
    plain = re.sub(r"\{[^{}]+\}", "x", index)
    if _NAME.fullmatch(plain) is None or plain[0] in "-_+" or plain in (".", ".."):
        hint = 'names are of lower case, without blanks and any of \\ / * ? " < > | , # :, and do not begin with - _ +'
        raise _refused("index", f"{plain!r} cannot be the name of an index", hint)
    if settings.create_index and not _prefix(settings.index).strip("-_."):
        hint = "begin the name with a fixed text: 'alerts-{tenant}'"
        raise _refused(
            "index",
            "the name consists of a date pattern only, so the index template would apply to all indices of the server",
            hint,
        )


def _example(text: str) -> str:
    """Return an example of a text with format codes of strftime. Raises JobError for unknown codes."""
    import datetime as dt

    try:
        return str(pl.Series([dt.datetime(2024, 2, 29, 23, 59)]).dt.to_string(text).item())
    except (pl.exceptions.PolarsError, pl.exceptions.PanicException) as error:
        raise _refused("index", f"{text!r} has % signs without meaning", "such as %Y.%m.%d; %% is a plain %") from error


def _prefix(index: str) -> str:
    """Return the common start of the names of all indices."""
    return re.split(r"\{[^{}]+\}|%", index)[0]


class Target:
    """Checks and prepares what the sink writes to. Used once, at the start of a job."""

    def __init__(self, settings: ElasticsearchSinkSettings, connection: Connection) -> None:
        self._settings = settings
        self._connection = connection

    def prepare(self, schema: Schema | None) -> None:
        """Create what is missing, if asked for, and check the rest. Raises JobError and RetriableError."""
        settings = self._settings
        self._connection.check_product()  # its errors tell whether address, certificates or login are wrong
        self._check_rights()
        self._check_pipeline()
        if has_time(settings.index) or columns_of(settings.index):
            if settings.create_index:
                self._create_template(schema, _prefix(settings.index) + "*")
            return
        status, content = self._connection.request("GET", index_path(settings.index, "_mapping"), allow=(403, 404))
        if status == 404:
            self._create(schema)
        elif status == 200:  # not 403: who may only write does not see mappings
            self._check_mappings(decoded(content), schema)

    def _create(self, schema: Schema | None) -> None:
        settings = self._settings
        if not settings.create_index:
            if not self._has_template():
                raise no_such_index(self._connection, settings.index, hint="; create_index=True creates it")
            return
        if settings.data_stream:
            self._create_template(schema, settings.index)
            return
        status, content = self._connection.request(
            "PUT", index_path(settings.index), self._definition(schema), allow=(400,), option="mappings"
        )
        if (
            status == 400 and error_of(content)[0] != "resource_already_exists_exception"
        ):  # another instance was quicker
            raise self._connection.refused(status, content, "mappings")

    def _create_template(self, schema: Schema | None, pattern: str) -> None:
        name = "headrace-" + pattern.rstrip("*").strip("-_.")
        path = path_of("_index_template", name)
        if self._connection.request("GET", path, allow=(404,))[0] == 200:
            return
        body = {"index_patterns": [pattern], "priority": _TEMPLATE_PRIORITY, "template": self._definition(schema)}
        if self._settings.data_stream:
            body["data_stream"] = {}
        self._connection.request("PUT", path, body, option="create_index")

    def _definition(self, schema: Schema | None) -> dict[str, Any]:
        settings = self._settings
        left_out = frozenset(settings.exclude or ())
        columns = Schema(
            {name: kind for name, kind in (schema or {}).items() if name not in left_out},
            json_columns=() if schema is None else schema.json_columns,
        )
        properties = properties_of(columns, settings.mappings or {})
        if settings.data_stream:
            properties.setdefault(TIMESTAMP, {"type": "date"})
        found: dict[str, Any] = {"mappings": {"properties": properties}}
        if settings.index_settings:
            found["settings"] = dict(settings.index_settings)
        return found

    def _has_template(self) -> bool:
        """Return whether the server has a template for the index: then the first document creates it."""
        path = path_of("_index_template", "_simulate_index", self._settings.index)
        status, content = self._connection.request("POST", path, allow=_NOT_THERE | {403})
        return status == 200 and bool(decoded(content).get("template"))

    def _check_rights(self) -> None:
        """Ask whether the user may write. A server without access control does not support this request."""
        settings = self._settings
        goes_by_row = has_time(settings.index) or bool(columns_of(settings.index))
        name = _prefix(settings.index) + "*" if goes_by_row else settings.index
        wanted = ["create_doc" if settings.creates else "index"]
        status, content = self._connection.request(
            "POST",
            "/_security/user/_has_privileges",
            {"index": [{"names": [name], "privileges": wanted}]},
            allow=_NOT_THERE | {403, 500},
        )
        if status != 200:
            return
        answer = decoded(content)
        if answer.get("has_all_requested", True):
            return
        raise JobError(
            f"{self._connection.where}, index {name!r}: user {answer.get('username')!r} may not write it",
            plugin="elasticsearch",
            option="api_key" if settings.api_key is not None else "user",
            hint=f"grant the index privilege {wanted[0]!r}, see docs/connectors/elasticsearch.md",
        )

    def _check_pipeline(self) -> None:
        name = self._settings.pipeline
        if name is None:
            return
        status, _ = self._connection.request("GET", path_of("_ingest", "pipeline", name), allow=(403, 404))
        if status == 404:
            raise JobError(
                f"{self._connection.where}: there is no ingest pipeline {name!r}",
                plugin="elasticsearch",
                option="pipeline",
                hint="create it, or name another",
            )

    def _check_mappings(self, found: Mapping[str, Any], schema: Schema | None) -> None:
        settings = self._settings
        where = f"{self._connection.where}, index {settings.index!r}"
        streams = [name for name in found if _BACKING_INDEX.match(name)]
        if streams and not settings.data_stream:
            raise _refused("data_stream", f"{where} is a data stream", "write data_stream=True")
        if settings.data_stream and not streams:
            raise _refused("data_stream", f"{where} is not a data stream", "leave data_stream out, or name another")
        if schema is None or (len(found) != 1 and not streams):
            return  # an alias of several indices: which one is written is the server's business
        mappings = found[max(streams) if streams else next(iter(found))].get("mappings", {})
        left_out = frozenset(settings.exclude or ())
        for name, kind in schema.items():
            field = mapped(name, mappings)
            if name in left_out:
                continue
            if field is None and is_strict(mappings):
                hint = did_you_mean(name, mappings.get("properties", ()), known="fields of the index")
                raise _refused("index", f"{where} refuses the field {name!r}: its mapping is strict", hint)
            if field is not None:
                problem = misfit(kind, field, any_json=name in schema.json_columns)
                if problem is not None:
                    hint = "CAST the column in a select() before the sink, or leave it out with exclude"
                    raise _refused("index", f"{where}, field {name!r}: {problem}", hint)


def _unknown(name: str, option: str, schema: Schema) -> JobError:
    return _refused(option, f"unknown column {name!r}", did_you_mean(name, schema, known="columns of the stream"))


def _refused(option: str, problem: str, hint: str) -> JobError:
    return JobError(problem, plugin="elasticsearch", option=option, hint=hint)
