"""The fields of Sigma rules as SQL conditions: names become columns, values with modifiers become comparisons."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any

from headrace.foundation.errors import OptionError, did_you_mean
from headrace.interfaces.registry import default_registry

from headrace_rules.sigma_sources import LogSource, is_left_out, sources_of
from headrace_rules.sigma_values import (
    TRANSFORMATIONS,
    Part,
    Placeholder,
    SigmaError,
    Text,
    Wildcard,
    parsed,
    surrounded,
    transformed,
)

#: At most so many tests are joined by one chain of OR or AND, because the syntax tree of a chain is as deep as the chain is
#: long. More tests are joined in groups, with brackets.
_TESTS_IN_A_ROW = 50
#: At most so many texts are in one list; of a list of more than 1,000 no triggers are made.
_VALUES_IN_A_LIST = 500
COMPARISONS = {"lt": "<", "lte": "<=", "gt": ">", "gte": ">="}
FLAGS = {"i": "i", "ignorecase": "i", "m": "m", "multiline": "m", "s": "s", "dotall": "s"}
MOMENTS = ("minute", "hour", "day", "week", "month", "year")
_PLACES = ("contains", "startswith", "endswith")
MODIFIERS = (
    *_PLACES, "all", "cased", "cidr", "exists", "fieldref", "neq", "re", *COMPARISONS, *FLAGS, *MOMENTS, *TRANSFORMATIONS,
)  # fmt: skip
_PLAIN_NAME = re.compile(r"[^\"]+")


@dataclass(frozen=True, slots=True)
class SigmaOptions:
    """Settings that Sigma rules leave open: see docs/rules.md. ``of`` makes it from the job's option."""

    #: Columns by the name of the field. A text that begins with a double quote is the name as SQL has it.
    fields: Mapping[str, str | Sequence[str]] = field(default_factory=dict)
    #: The columns in which values without a field are searched for.
    keywords: Sequence[str] = ()
    #: What the rows are: rules for other log sources are left out.
    logsource: Sequence[LogSource] = ()
    #: Values of placeholders, for the modifier ``expand``.
    placeholders: Mapping[str, Sequence[str]] = field(default_factory=dict)

    @classmethod
    def of(cls, given: Mapping[str, Any] | SigmaOptions | None) -> SigmaOptions:
        """Return the options of a mapping. Raises OptionError for a wrong one."""
        if given is None or isinstance(given, SigmaOptions):
            return given or cls()
        if not isinstance(given, Mapping):
            raise _wrong(f"sigma is a mapping of options, not {given!r:.80}")
        known = [one.name for one in fields(cls)]
        for name in given:
            if name not in known:
                raise OptionError(f"unknown option {name!r} of Sigma rules", plugin="rules", option="sigma",
                                  hint=did_you_mean(str(name), known, known="options"))  # fmt: skip
        made = {name: value for name, value in given.items() if value is not None}
        if isinstance(made.get("fields"), str):
            made["fields"] = _fields_of_format(made["fields"])
        for name in ("fields", "placeholders"):
            if not isinstance(made.get(name, {}), Mapping):
                raise _wrong(f"{name} of sigma is a mapping, not {made[name]!r:.80}")
        made["logsource"] = sources_of(made["logsource"]) if made.get("logsource") else ()
        columns = made.get("keywords", ())
        made["keywords"] = (columns,) if isinstance(columns, str) else tuple(columns)
        made["placeholders"] = {
            name.strip("%"): (values,) if isinstance(values, str | int) else tuple(values)
            for name, values in made.get("placeholders", {}).items()
        }
        return cls(**made)

    def applies(self, rule_source: Any) -> bool:
        """Return whether rules with this ``logsource`` are for these rows: each entry that it names must match the rows' source."""
        return not is_left_out(self.logsource, rule_source)

    def columns(self, name: str) -> list[str]:
        """Return the columns of a field, as SQL names. Raises SigmaError for a name that cannot be a column."""
        given = self.fields.get(name, name)
        return [column_of(one) for one in ([given] if isinstance(given, str) else given)]


def _fields_of_format(name: str) -> Mapping[str, str]:
    """Return the columns of a format by the fields of Sigma that they are, which its codec tells: ``sigma_fields()``.

    Raises OptionError for a format that is not installed, or does not tell them.
    """
    told: Mapping[str, str] | None = default_registry().find("codec", name).sigma_fields()
    if told is None:
        raise OptionError(
            f"the format {name!r} does not tell which fields of Sigma its columns are",
            plugin="rules",
            option="sigma",
            hint="fields is a mapping of fields to columns, or the name of a log preset such as 'windows-sysmon'",
        )
    return told


#: Fields are columns, and there are no keywords and no placeholders.
NO_OPTIONS = SigmaOptions()


def _wrong(problem: str) -> OptionError:
    return OptionError(problem, plugin="rules", option="sigma")


def column_of(name: str) -> str:
    """Return the name of a column, or of a field in columns of structs (``a.b``), as SQL has it."""
    if name.startswith('"'):
        return name
    if not _PLAIN_NAME.fullmatch(name):
        raise SigmaError(f"{name!r} cannot be the name of a column")
    return ".".join(f'"{part}"' for part in name.split("."))


def quoted(text: str) -> str:
    """Return a text as SQL has it."""
    return "'" + text.replace("'", "''") + "'"


def joined(tests: Sequence[str], operator: str) -> str:
    """Join tests by AND or OR so that the expression does not nest deeply, however many there are."""
    tests = list(dict.fromkeys(tests))
    while len(tests) > _TESTS_IN_A_ROW:
        groups = [tests[start : start + _TESTS_IN_A_ROW] for start in range(0, len(tests), _TESTS_IN_A_ROW)]
        tests = ["(" + f" {operator} ".join(group) + ")" for group in groups]
    return tests[0] if len(tests) == 1 else "(" + f" {operator} ".join(tests) + ")"


def matches(column: str, texts: Sequence[Text], *, cased: bool = False, every: bool = False) -> str:
    """Return the condition that the column is like one of the texts, or (``every``) like all of them."""
    distinct = list(dict.fromkeys(map(tuple, texts)))
    if len(distinct) > _VALUES_IN_A_LIST:
        groups = [distinct[start : start + _VALUES_IN_A_LIST] for start in range(0, len(distinct), _VALUES_IN_A_LIST)]
        return joined([_one_list(column, one, cased, every) for one in groups], "AND" if every else "OR")
    return _one_list(column, distinct, cased, every)


def _one_list(column: str, texts: Sequence[tuple[Part, ...]], cased: bool, every: bool) -> str:
    if all(_is_number(one) for one in texts) and not every:
        # Numbers may be numbers or texts in the rows.
        values = [quoted(_plain(one)) for one in texts]
        test = f"= {values[0]}" if len(values) == 1 else f"IN ({', '.join(values)})"
        return f"CAST({column} AS STRING) {test}"
    subject = f"CAST({column} AS STRING)" if all(_may_be_no_text(one) for one in texts) else column
    with_escape = any(isinstance(part, str) and ("%" in part or "_" in part) for one in texts for part in one)
    patterns = [quoted(_pattern(one, with_escape)) for one in texts]
    right = patterns[0] if len(patterns) == 1 else f"{'ALL' if every else 'ANY'} ({', '.join(patterns)})"
    return f"{subject} {'LIKE' if cased else 'ILIKE'} {right}" + (" ESCAPE '!'" if with_escape else "")


def _is_number(parts: Sequence[Part]) -> bool:
    return len(parts) == 1 and isinstance(parts[0], str) and parts[0].isascii() and parts[0].isdigit()


def _may_be_no_text(parts: Sequence[Part]) -> bool:
    """Return whether the column may hold numbers or booleans: the value has only digits, or is ``true`` or ``false``."""
    texts = [part for part in parts if isinstance(part, str) and part]
    return bool(texts) and all((part.isascii() and part.isdigit()) or part in ("true", "false") for part in texts)


def _plain(parts: Sequence[Part]) -> str:
    return "".join(part for part in parts if isinstance(part, str))


def _pattern(parts: Sequence[Part], with_escape: bool) -> str:
    made = []
    for part in parts:
        if isinstance(part, Wildcard):
            made.append("%" if part is Wildcard.ANY else "_")
        elif isinstance(part, Placeholder):
            raise SigmaError(f"the placeholder %{part.name}% has no values")
        else:
            assert isinstance(part, str)
            made.append(re.sub("[%_!]", r"!\g<0>", part) if with_escape else part)
    return "".join(made)


def number(value: Any) -> str:
    """Return a number as SQL has it. Raises SigmaError if it is none."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise SigmaError(f"{value!r} is not a number")
    return repr(value)


def compared(column: str, operator: str, value: Any) -> str:
    """Return the comparison with a number, of a column of numbers or of texts."""
    return f"TRY_CAST({column} AS DOUBLE) {operator} {number(value)}"


def in_network(column: str, network: str) -> str:
    """Return the condition that a column's address lies in a network. Raises SigmaError if it is none."""
    try:
        ipaddress.ip_network(network, strict=False)
    except ValueError as error:
        raise SigmaError(f"cidr: {error}") from error
    return f"ip_in_cidr({column}, {quoted(network)})"


def found_by_regex(column: str, pattern: str, flags: Sequence[str]) -> str:
    """Return the condition that a regular expression matches somewhere in the column."""
    letters = "".join(sorted(set(flags)))
    return f"{column} RLIKE {quoted((f'(?{letters})' if letters else '') + pattern)}"


def like_column(column: str, other: str, place: str, *, cased: bool) -> str:
    """Return the comparison of two columns; ``place`` is contains, startswith, endswith, or empty for equality."""
    left, right = (f"CAST({one} AS STRING)" for one in (column, other))
    if not cased:
        left, right = f"lower({left})", f"lower({right})"
    return f"{place}({left}, {right})" if place else f"{left} = {right}"


def field_condition(key: Any, value: Any, options: SigmaOptions) -> str:
    """Return the condition of one entry of a search: ``Image|endswith: [a, b]``. Raises SigmaError."""
    name, *modifiers = str(key).split("|")
    for modifier in modifiers:
        if modifier not in MODIFIERS:
            hint = did_you_mean(modifier, MODIFIERS, known="modifiers")
            raise SigmaError(f"modifier {modifier!r} is not supported; {hint}")
    values = value if isinstance(value, list) else [value]
    if not values:
        raise SigmaError(f"field {name!r} has no values")
    if any(isinstance(one, list | Mapping) for one in values):
        raise SigmaError(f"the values of field {name!r} must be texts, numbers, true, false or null")
    columns = options.columns(name) if name else _keyword_columns(options)
    if not name:
        if "exists" in modifiers:
            raise SigmaError("exists needs a field")
        if not {"re", *_PLACES}.intersection(modifiers):
            modifiers = [*modifiers, "contains"]
    if len(columns) == 1 or "all" not in modifiers:
        tests = [_values_condition(column, values, modifiers, options) for column in columns]
        made = joined(tests, "OR")
    else:
        # Each value may be in another column.
        either = [[_values_condition(column, [one], modifiers, options) for column in columns] for one in values]
        made = joined([joined(tests, "OR") for tests in either], "AND")
    return f"({made}) IS NOT TRUE" if "neq" in modifiers else made


def _keyword_columns(options: SigmaOptions) -> list[str]:
    if not options.keywords:
        raise SigmaError(
            "keywords are values without a field: the option 'keywords' must name the columns to search, for example"
            ' sigma={"keywords": ["message"]}'
        )
    return [column_of(name) for name in options.keywords]


def _values_condition(column: str, values: Sequence[Any], modifiers: list[str], options: SigmaOptions) -> str:
    every = "all" in modifiers
    test = next((test for name, test in _TESTS.items() if name in modifiers), None)
    if test is not None:
        made = [test(column, value, modifiers, options) for value in values]
        return joined([one for tests in made for one in tests], "AND" if every else "OR")
    tests: list[str] = []
    texts: list[Text] = []
    for value in values:
        variants = _texts(value, modifiers, options)
        if variants is None:
            tests.append(f"{column} IS NULL")
        elif every and len(variants) > 1:
            tests.append(matches(column, variants, cased="cased" in modifiers))
        else:
            texts += variants
    numbers = [] if every else [one for one in texts if _is_number(one)]
    others = [one for one in texts if every or not _is_number(one)]
    for group in (others, numbers):
        if group:
            tests.append(matches(column, group, cased="cased" in modifiers, every=every))
    return joined(tests, "AND" if every else "OR")


def _texts(value: Any, modifiers: list[str], options: SigmaOptions) -> list[Text] | None:
    """Return the texts, with wildcards, that stand for one value; None for NULL."""
    if value is None:
        if set(modifiers) - {"all", "neq"}:
            raise SigmaError(f"null has no modifiers, but {', '.join(modifiers)} is given")
        return None
    shown = str(value).lower() if isinstance(value, bool) else str(value)
    parts: Text = parsed(value) if isinstance(value, str) else [shown]
    variants = transformed(parts, modifiers, options.placeholders)
    before = "contains" in modifiers or "endswith" in modifiers
    after = "contains" in modifiers or "startswith" in modifiers
    return [surrounded(one, before, after) for one in variants]


def _exists(column: str, value: Any, modifiers: list[str], options: SigmaOptions) -> list[str]:
    if not isinstance(value, bool):
        raise SigmaError(f"exists needs true or false, not {value!r}")
    return [f"{column} IS NOT NULL" if value else f"{column} IS NULL"]


def _compared(column: str, value: Any, modifiers: list[str], options: SigmaOptions) -> list[str]:
    return [compared(column, sign, value) for name, sign in COMPARISONS.items() if name in modifiers]


def _of_moment(column: str, value: Any, modifiers: list[str], options: SigmaOptions) -> list[str]:
    return [f"{name}({column}) = {number(value)}" for name in MOMENTS if name in modifiers]


def _regex(column: str, value: Any, modifiers: list[str], options: SigmaOptions) -> list[str]:
    flags = [FLAGS[one] for one in modifiers if one in FLAGS]
    text = str(value)
    if "expand" not in modifiers:
        return [found_by_regex(column, text, flags)]
    variants = transformed([text], ["expand"], options.placeholders)
    return [found_by_regex(column, _plain(one), flags) for one in variants]


def _network(column: str, value: Any, modifiers: list[str], options: SigmaOptions) -> list[str]:
    return [in_network(column, str(value))]


def _reference(column: str, value: Any, modifiers: list[str], options: SigmaOptions) -> list[str]:
    place = next((one for one in _PLACES if one in modifiers), "")
    others = options.columns(str(value))
    return [like_column(column, other, place, cased="cased" in modifiers) for other in others]


_TESTS: Mapping[str, Callable[[str, Any, list[str], SigmaOptions], list[str]]] = {
    "exists": _exists, "re": _regex, "cidr": _network, "fieldref": _reference,
    **dict.fromkeys(COMPARISONS, _compared), **dict.fromkeys(MOMENTS, _of_moment),
}  # fmt: skip
