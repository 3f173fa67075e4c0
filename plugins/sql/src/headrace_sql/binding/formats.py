"""Formats of tables: their names in WITH clauses, and their options as Flink writes them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from headrace.foundation.errors import MissingPluginError, did_you_mean
from headrace.interfaces.registry import default_registry
from headrace.interfaces.settings import option_fields

from headrace_sql.binding.notices import Notices
from headrace_sql.binding.scope import error_at
from headrace_sql.binding.tables import Option, Table

if TYPE_CHECKING:
    from headrace.interfaces.codec import Codec

#: Options that name the format.
NAMES = ("format", "value.format")
_PLAIN = ("json", "csv", "raw", "parquet")
_CHANGES = ("debezium-json", "canal-json", "maxwell-json", "ogg-json", "changelog-json")


def name_of(options: Mapping[str, Option], table: Table) -> str | None:
    """Return the format of a table's values, None where the text names none. Raises ExpressionError for an unknown one."""
    option = options.get("value.format") or options.get("format")
    return None if option is None else _known(option, table)


def _known(option: Option, table: Table) -> str:
    word = option.value.lower()
    if word in _PLAIN:
        return word
    registry = default_registry()
    if word in (*_CHANGES, *registry.names("codec")):
        try:
            registry.find("codec", word)
        except MissingPluginError as error:
            raise error_at(option.node, table.text, f"format {option.value!r}: {error.message}", error.hint) from error
        return word
    raise error_at(
        option.node,
        table.text,
        f"format {option.value!r} is not supported",
        did_you_mean(option.value, [*_PLAIN, *_CHANGES], known="formats"),
    )


def codec_of(name: str, options: Mapping[str, Any]) -> Codec:
    """Return the codec of a format."""
    kind = default_registry().find("codec", name)
    codec: Codec = kind(kind.Settings.of(options, plugin=name))
    return codec


def holds_json(name: str, options: Mapping[str, Any]) -> bool:
    """Return whether a format's rows are JSON objects, whose MAP columns are objects too."""
    return name in ("json", *_CHANGES) or (
        name in ("upsert", "keyed") and options.get("value_format", "json") == "json"
    )


def as_upserts(
    name: str | None, options: Mapping[str, Any], source_options: dict[str, Any], table: Table
) -> tuple[str, dict[str, Any]]:
    """Return the format of a table whose records are rows by key, and its options, some of which are taken from the source's."""
    made: dict[str, Any] = {"value_format": name or "json", "value_options": dict(options)}
    for key in ("key_format", "key_prefix", "value_fields_include"):
        if key in source_options:
            made[key] = source_options.pop(key)
    if not table.primary_key:
        raise error_at(
            table.node.this.this,
            table.text,
            f"table {table.name!r} needs a PRIMARY KEY: its rows are known by the keys of records",
            "PRIMARY KEY (id) NOT ENFORCED",
        )
    return "upsert", made


def with_key(
    name: str | None, options: dict[str, Any], source_options: dict[str, Any], table: Table
) -> tuple[str | None, dict[str, Any]]:
    """Return the format of a table of which some columns are in the records' keys, and its options; that of the values if none are.

    As in Flink, values contain the key columns too, and key columns are read from them, unless the text says EXCEPT_KEY.
    """
    given: dict[str, Any] = {
        key: source_options.pop(key)
        for key in ("key_columns", "key_format", "key_prefix", "value_fields_include")
        if key in source_options
    }
    if given.pop("value_fields_include", "all") == "all":
        if given.get("key_prefix"):
            raise error_at(
                table.node.this.this, table.text, "'key.fields-prefix' goes with 'value.fields-include' = 'EXCEPT_KEY'"
            )
        return name, options
    if "key_columns" not in given:
        raise error_at(table.node.this.this, table.text, "'value.fields-include' = 'EXCEPT_KEY' needs 'key.fields'")
    return "keyed", {"value_format": name or "json", "value_options": dict(options), **given}


@dataclass(frozen=True)
class Refused:
    """An option that would change rows, unless it has this value."""

    taken: str
    why: str
    hint: str


_BAD_RECORDS = (
    "a record that cannot be parsed goes to the dead letters as a whole, whether it says true or false; "
    "bad_records='stop' lets it end the job"
)
#: Options of formats: refused, of no effect for the reason given, or heeded without a word.
_OPTIONS: Mapping[str, Refused | str] = {
    "json.ignore-parse-errors": _BAD_RECORDS,
    "csv.ignore-parse-errors": _BAD_RECORDS,
    "json.fail-on-missing-field": Refused(
        "false",
        "a field that is missing is NULL",
        "leave it out, and WHERE field IS NOT NULL for those that must be there",
    ),
    "csv.allow-comments": Refused("false", "a line that begins with # is a record", "WHERE first_column NOT LIKE '#%'"),
    "json.map-null-key.mode": "a MAP has no NULL as key here",
    "json.map-null-key.literal": "a MAP has no NULL as key here",
    "json.encode.ignore-null-fields": Refused("false", "a column that is NULL is written as null", "leave it out"),
    "json.decode.json-parser.enabled": "",
    "csv.write-bigdecimal-in-scientific-notation": Refused("false", "decimals are written in full", "leave it out"),
    "csv.array-element-delimiter": Refused(";", "a list is written as JSON", "leave it out"),
    "csv.escape-character": Refused("", "a quote within a quoted field is doubled", "leave it out, or read it as raw"),
    # Both forms are read, whatever it says.
    "json.timestamp-format.standard": "",
    "json.encode.decimal-as-plain-number": "",
}


_SHORT = {"csv.field-delimiter": "delimiter", "csv.quote-character": "quote", "csv.null-literal": "null_value"}
#: What the formats made of JSON have in common.
_OF_JSON = (
    "ignore-parse-errors", "timestamp-format.standard", "encode.decimal-as-plain-number", "encode.ignore-null-fields",
    "map-null-key.mode", "map-null-key.literal",
)  # fmt: skip


def take_option(
    notices: Notices, key: str, option: Option, format: str | None, made: dict[str, Any], table: Table
) -> bool:
    """Take an option of a format. Returns whether it is one. Raises ExpressionError for one that would change the rows."""
    key = key.removeprefix("value.").removeprefix("key.")
    if key in _SHORT:
        made[_SHORT[key]] = option.value
        return True
    if key == "csv.disable-quote-character":
        if option.value.strip().lower() == "true":
            made["quote"] = None
        return True
    what = _OPTIONS.get(key)
    if what is None and format in _CHANGES and key.startswith(f"{format}."):
        inner = key.removeprefix(f"{format}.")
        if inner in _OF_JSON:
            what = _OPTIONS[f"json.{inner}"]
        else:
            return _own(inner, option, format, made, table)
    if what is None and format not in (*_PLAIN, *_CHANGES, None) and key.startswith(f"{format}."):
        return _own(key.removeprefix(f"{format}."), option, format, made, table)
    if what is None:
        return False
    value = option.value.strip().lower()
    if isinstance(what, Refused):
        if value != what.taken:
            raise error_at(
                option.node, table.text, f"{key!r} = {option.value!r} is not supported: {what.why}", what.hint
            )
        return True
    if what:
        notice = f"table {table.name!r}: option {key!r} has no effect here: {what}"
        notices.add_once(notice)
    return True


def _own(inner: str, option: Option, format: str, made: dict[str, Any], table: Table) -> bool:
    """Take an option that the format's codec declares: ``database.include`` is ``database_include`` there."""
    kind = default_registry().find("codec", format)
    fields = {each.encode_name: each for each in option_fields(kind.Settings)}
    name = inner.replace("-", "_").replace(".", "_")
    if name not in fields:
        raise error_at(
            option.node,
            table.text,
            f"format {format!r} has no option {inner!r}",
            did_you_mean(inner, [each.replace("_", "-") for each in fields], known="options"),
        )
    value: Any = option.value
    if value.lower() in ("true", "false") and "bool" in str(fields[name].type):
        value = value.lower() == "true"
    made[name] = value
    return True
