"""Conditions and values of generated jobs, and how they are written in SQL."""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal
from typing import Any

from tests.differential.choices import Choices
from tests.differential.streams.plan import Aggregate, Expression, Kind


def condition(choices: Choices, columns: Mapping[str, Kind], depth: int = 2) -> Expression:
    """Return a condition over some columns."""
    if not columns:
        return (">", ("constant", choices.integer(0, 1), "int"), ("constant", 0, "int"))
    shape = choices.weighted([(6, "compare"), (2, "is null"), (depth, "and"), (depth, "or"), (1, "not")])
    if shape in ("and", "or") and depth:
        return (shape, condition(choices, columns, depth - 1), condition(choices, columns, depth - 1))
    if shape == "not":
        return ("not", condition(choices, columns, depth - 1)) if depth else _comparison(choices, columns)
    if shape == "is null":
        return ("is null", ("column", choices.pick(sorted(columns))))
    return _comparison(choices, columns)


def _comparison(choices: Choices, columns: Mapping[str, Kind]) -> Expression:
    usable = [name for name, kind in sorted(columns.items()) if kind in ("int", "text", "decimal")]
    if not usable:
        return ("not", ("is null", ("column", sorted(columns)[0])))
    name = choices.pick(usable)
    same = [other for other in usable if columns[other] == columns[name] and other != name]
    operator = choices.pick([">", "=", "<>", "<", "<=", ">="])
    if same and choices.chance(25):
        return (operator, ("column", name), ("column", choices.pick(same)))
    values: dict[Kind, Any] = {
        "int": choices.integer(-1, 8), "text": choices.pick(["a", "b", "ä€", ""]), "decimal": Decimal(choices.integer(-2, 12)),
    }  # fmt: skip
    return (operator, ("column", name), ("constant", values[columns[name]], columns[name]))


def value(choices: Choices, columns: Mapping[str, Kind], *, nested: bool = False) -> tuple[Kind, Expression]:
    """Return the kind and expression of a computed column. ``nested``: it may be a row, an array or a map."""
    if nested and columns and choices.chance(15):
        return "list", _nested(choices, columns)
    whole = [name for name, kind in sorted(columns.items()) if kind == "int"]
    texts = [name for name, kind in sorted(columns.items()) if kind == "text"]
    shapes = ["sum", "case", "coalesce"] if whole else []
    shapes += ["upper", "char_length"] if texts else []
    if not shapes:
        return "int", ("constant", 7, "int")
    shape = choices.pick(shapes)
    if shape == "sum":
        operator = choices.pick(["+", "-", "*"])
        return "int", (operator, ("column", choices.pick(whole)), ("constant", choices.integer(0, 3), "int"))
    if shape == "case":
        then, otherwise = ("column", choices.pick(whole)), ("constant", choices.integer(0, 3), "int")
        return "int", ("case", condition(choices, columns, 1), then, otherwise)
    if shape == "coalesce":
        return "int", ("coalesce", ("column", choices.pick(whole)), ("constant", -1, "int"))
    return "text" if shape == "upper" else "int", (shape, ("column", choices.pick(texts)))


def _nested(choices: Choices, columns: Mapping[str, Kind]) -> Expression:
    """Return a row, an array or a map of columns: whole values, which are given, joined and collected, but not compared."""
    whole = [name for name, kind in sorted(columns.items()) if kind == "int"]
    shape = choices.pick(["row", "array", "map"]) if whole else "row"
    # Keys that are mapped to others are not found again within a row.
    given = [name for name, kind in sorted(columns.items()) if kind not in ("list", "key", "text key")]
    usable = whole if shape != "row" else given
    if not usable:
        return ("row", ("constant", 7, "int"))
    return (shape, *(("column", choices.pick(usable)) for _ in choices.repeat(1, 3, 60)))


def sql(expression: Expression) -> str:
    """Return an expression as SQL."""
    operator, *operands = expression
    if operator == "column":
        return str(operands[0])
    if operator == "constant":
        return _constant(*operands)
    parts = [sql(each) for each in operands]
    if operator in ("map", "row"):
        entries = [f"'k{at}', {part}" for at, part in enumerate(parts)]
        return f"{'map' if operator == 'map' else 'named_struct'}({', '.join(entries)})"
    if operator in ("coalesce", "upper", "char_length", "array"):
        return f"{operator}({', '.join(parts)})"
    if operator == "case":
        return f"CASE WHEN {parts[0]} THEN {parts[1]} ELSE {parts[2]} END"
    if operator == "not":
        return f"(NOT {parts[0]})"
    if operator == "is null":
        return f"({parts[0]} IS NULL)"
    return f"({parts[0]} {operator.upper()} {parts[1]})"


def _constant(value: Any, kind: Kind) -> str:
    if value is None:
        return "NULL"
    return "'" + value.replace("'", "''") + "'" if kind == "text" else f"{value}"


def aggregate_sql(what: Aggregate) -> str:
    """Return an aggregate as SQL."""
    inside = "*" if what.column is None else what.column
    if what.distinct:
        inside = f"DISTINCT {inside}"
    if what.function == "listagg":
        inside += ", ','"
    text = f"{what.function}({inside})"
    return text if what.condition is None else f"{text} FILTER (WHERE {sql(what.condition)})"


def aggregates(
    choices: Choices, columns: Mapping[str, Kind], *, dialect: str, ordered: bool, changes: bool, most: int = 5
) -> dict[str, Aggregate]:
    """Return named aggregates. ``ordered``: the order of rows is known, so that first, last and lists have one right answer."""
    made: dict[str, Aggregate] = {}
    for number in choices.repeat(1, most, 65):
        function = choices.pick(_functions(columns, dialect=dialect, ordered=ordered and not changes))
        what = _aggregate(choices, function if columns else "rows", columns)
        if choices.chance(15):
            what = Aggregate(what.function, what.column, what.distinct, condition(choices, columns, 1), what.kind)
        if made and choices.chance(5):
            what = choices.pick(list(made.values()))  # twice the same
        made[f"a{number}"] = what
    return made


_SETS = {
    "dsl": ["spread", "square_sum", "bool_and", "bool_or", "collect_set"],
    "sql": ["spread", "square_sum"],
    "flink": [],
}
_IN_ORDER = {
    "dsl": ["first", "last", "collect", "array_agg", "listagg"],
    "sql": ["first_value", "last_value", "listagg", "array_agg"],
    "flink": [
        "listagg"
    ],  # FIRST_VALUE and LAST_VALUE cannot be merged there, so they are none for sliding windows and sessions
}
_SPREADS = {
    "dsl": ["stddev", "stddev_pop", "variance", "var_pop"],
    "sql": [],
    "flink": [],
}


def _functions(columns: Mapping[str, Kind], *, dialect: str, ordered: bool) -> list[str]:
    kinds = set(columns.values())
    found = ["rows", "count", "distinct"]
    if kinds & {"int", "text", "decimal", "time"}:
        found += ["min", "max"]
    if "int" in kinds:
        found += ["sum", "avg", *(name for name in _SETS[dialect] if name in ("spread", "square_sum"))]
        found += _SPREADS[dialect]
    if "boolean" in kinds:
        found += [name for name in _SETS[dialect] if name.startswith("bool")]
    if ordered:
        found += [*_IN_ORDER[dialect], *(name for name in _SETS[dialect] if name == "collect_set")]
        if "text" not in kinds:
            found.remove("listagg")
    return found


def _aggregate(choices: Choices, function: str, columns: Mapping[str, Kind]) -> Aggregate:
    def of(*kinds: Kind) -> str:
        given = [name for name, kind in sorted(columns.items()) if kind in kinds]
        # A list of keys would be none of those that are brought back from other keys.
        others = [name for name, kind in sorted(columns.items()) if kind not in ("key", "text key")]
        return choices.pick(given or others or sorted(columns))

    plain = [kind for kind in ("int", "text", "decimal", "time", "boolean") if kind in columns.values()]
    if function == "rows":
        return Aggregate("count", None)
    if function in ("count", "distinct"):
        return Aggregate("count", of(*plain), distinct=function == "distinct")
    if function in ("min", "max", "first", "last", "first_value", "last_value"):
        ordered = [kind for kind in plain if kind != "boolean"] if function in ("min", "max") else plain
        column = of(*ordered, *(() if function in ("min", "max") else ("list",)))
        return Aggregate(function, column, kind=columns[column])
    if function == "sum":
        column = of("int", "decimal")
        return Aggregate("sum", column, distinct=choices.chance(10), kind=columns[column])
    if function in ("avg", "stddev", "stddev_pop", "variance", "var_pop"):
        return Aggregate(function, of("int"), kind="double")
    if function in ("spread", "square_sum"):
        return Aggregate(function, of("int"))
    if function in ("bool_and", "bool_or"):
        return Aggregate(function, of("boolean"), kind="boolean")
    if function == "listagg":
        return Aggregate(function, of("text"), kind="text")
    more = () if function == "collect_set" else ("list",)
    return Aggregate(function, of("int", "text", *more), kind="list")
