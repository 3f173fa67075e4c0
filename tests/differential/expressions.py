"""Making expressions: any depth, any function of ``forms``, of a wanted type, over the columns that are there."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from decimal import Decimal

from tests.differential.choices import Choices
from tests.differential.kinds import (
    BIGINT,
    BOOLEAN,
    BYTES,
    DATE,
    DECIMAL,
    DOUBLE,
    FLOAT,
    INT,
    INTS,
    KEY,
    MAP,
    ROW,
    SMALLINT,
    STRING,
    TEXT_KEY,
    TEXTS,
    TIME,
    TIMESTAMP,
    TINYINT,
    Kind,
)
from tests.differential.tables import TAME
from tests.differential.tree import WILD, Aggregate, Call, Column, Expression, Literal

#: The greatest numbers that expressions may come to, so that no program overflows and sums of doubles are exact.
LIMITS = {"int": 2.0**30, "bigint": 2.0**60, "double": 2.0**40, "decimal": 1e8, "string": 400.0}
#: Rows that an aggregate may have at most, for the bound of sums.
ROWS_MAX = 20_000
COMPARISONS = ("=", "<>", "<", "<=", ">", ">=", "distinct from", "not distinct from")
#: Types that are compared, grouped and cast, but not computed with.
_NARROW = (TINYINT, SMALLINT, FLOAT, TIME)
KINDS = (INT, STRING, BIGINT, BOOLEAN, DOUBLE, DECIMAL, DATE, TIMESTAMP)
_PATTERNS = ("%", "a%", "%b", "_", "%a%b%", "a_b", "", "x%", "%,%")


def comparable(column: Expression) -> bool:
    """Return whether programs agree on the order and equality of such values.

    Of floating-point numbers NaN equals NaN and is the greatest, and −0.0 equals 0.0, as in DuckDB (docs/state.md, docs/functions.md).
    """
    return not column.kind.nested


def literal(choices: Choices, kind: Kind, *, null: bool = True) -> Literal:
    """Return a constant of a type."""
    if (null and choices.chance(6)) or kind.name not in TAME or kind in (KEY, TEXT_KEY):
        return Literal(kind, 0, None)
    value = choices.pick(TAME[kind.name])
    return Literal(kind, bound_of(value), value)


def bound_of(value: object) -> float:
    """Return the bound of a value."""
    if isinstance(value, str | bytes):
        return float(len(value))
    return abs(float(value)) if isinstance(value, int | float | Decimal) else 1.0


class ExpressionMaker:
    """Makes expressions over the columns of a scope."""

    def __init__(
        self, choices: Choices, scope: Sequence[Expression], subquery: Callable[[], Expression] | None = None
    ) -> None:
        self.choices = choices
        self.scope = tuple(scope)
        #: Makes a condition that holds a subquery, where there may be one.
        self.subquery = subquery

    def user(self, depth: int) -> Expression:
        """Return a call of a user function, most often of a column."""
        form = self.choices.pick(
            ["u_next", "u_tag", "u_twice", "u_end", "u_sum", "v_negative", "v_length", "v_half", "u_is_even", "v_minus"]
        )
        if form in ("u_tag", "u_end", "v_length"):
            text = self.of(STRING, depth)
            return self._make(form, BIGINT if form == "v_length" else STRING, text.bound + 6, text)
        if form == "v_half":
            return self._make(form, DOUBLE, WILD, self.of(DOUBLE, depth, LIMITS["double"]))
        one = self.of(self.choices.pick([INT, BIGINT]), depth, LIMITS["int"])
        if form in ("u_sum", "v_minus"):
            other = self.of(INT, depth, LIMITS["int"])
            return self._make(form, BIGINT, one.bound + other.bound, one, other)
        if form == "u_is_even":
            return self._make(form, BOOLEAN, 1, one)
        return self._make(form, BIGINT, 2 * one.bound + 1, one)

    def any(self, depth: int) -> Expression:
        """Return an expression of any type, most often a column."""
        found = [column for column in self.scope if column.kind in (INTS, TEXTS, FLOAT, MAP, ROW)] if depth else []
        if found and self.choices.chance(25):
            return self._of_seldom(self.choices.pick(found))
        if self.scope and (depth == 0 or self.choices.chance(45)):
            return self.choices.pick(self.scope)
        return self.of(self.choices.pick(KINDS), depth)

    def _of_seldom(self, column: Expression) -> Expression:
        """Return what can be made of an array, a map, a row or a FLOAT."""
        if column.kind == ROW and isinstance(column, Column):
            field = self.choices.pick(["x", "y", "z"])
            kind, bound = {"x": (INT, 1000.0), "y": (STRING, 10.0), "z": (INTS, 1000.0)}[field]
            return self._make(f"field {field}", kind, bound, column)
        if column.kind == ROW:
            return column
        if column.kind == MAP:
            if self.choices.chance(40):
                return self._make("size", INT, 10, column)
            return self._make(
                "value of key", INT, 1000.0, column, Literal(STRING, 1, self.choices.pick(["a", "b", "ä"]))
            )
        if column.kind == FLOAT:
            return self._make("float to double", DOUBLE, WILD, column)
        if self.choices.chance(40):
            return self._make("size", INT, 10, column)
        place = Literal(INT, 4, self.choices.integer(1, 4))
        element = ("element", INT, 1000.0) if column.kind == INTS else ("text element", STRING, 10.0)
        return self._make(*element, column, place)

    def of(self, kind: Kind, depth: int, limit: float = WILD) -> Expression:
        """Return an expression of a type whose bound is not above ``limit``."""
        fitting = [column for column in self.scope if column.kind == kind and column.bound <= limit]
        if depth <= 0 or self.choices.chance(20):
            if fitting and not self.choices.chance(25):
                return self.choices.pick(fitting)
            return self._small(kind, limit)
        made = self._call(kind, depth)
        return made if made.bound <= min(limit, LIMITS.get(kind.name, WILD)) else self.of(kind, 0, limit)

    def _small(self, kind: Kind, limit: float) -> Expression:
        made = literal(self.choices, kind)
        return made if made.bound <= limit else Literal(kind, 0, None)

    def condition(self, depth: int) -> Expression:
        """Return a condition."""
        return self._boolean(depth)

    def _call(self, kind: Kind, depth: int) -> Expression:
        choice = self.choices.weighted([(3, "own"), (1, "choice")])
        if choice == "choice":
            return self._chosen(kind, depth)
        makers = {
            "boolean": self._boolean, "int": self._int, "bigint": self._bigint, "double": self._double, "decimal": self._decimal,
            "string": self._string, "date": self._date, "timestamp": self._timestamp,
        }  # fmt: skip
        return makers[kind.name](depth)

    def _make(self, form: str, kind: Kind, bound: float, *arguments: Expression) -> Call:
        return Call(kind, bound, form, arguments)

    def _chosen(self, kind: Kind, depth: int) -> Expression:
        """Return CASE, COALESCE and their like, of any type."""
        form = self.choices.pick(
            [
                "coalesce",
                "case",
                "if",
                "nullif",
                "case without else",
                "coalesce of three",
                "case of",
                "greatest",
                "least",
            ]
        )
        one, other = self.of(kind, depth - 1), self.of(kind, depth - 1)
        bound = max(one.bound, other.bound)
        if form in ("case", "if"):
            return self._make(form, kind, bound, self._boolean(depth - 1), one, other)
        if form == "case without else":
            return self._make(form, kind, one.bound, self._boolean(depth - 1), one)
        if form == "case of":
            tested = self.of(INT, depth - 1)
            return self._make(form, kind, bound, tested, literal(self.choices, INT, null=False), one, other)
        if form == "coalesce of three":
            third = self.of(kind, 0)
            return self._make(form, kind, max(bound, third.bound), one, other, third)
        if form in ("nullif", "greatest", "least") and (
            not comparable(one) or not comparable(other) or kind == BOOLEAN
        ):
            form = "coalesce"
        return self._make(form, kind, bound, one, other)

    # ----------------------------------------------------------------------------------------------- by type

    def _boolean(self, depth: int) -> Expression:
        if depth <= 0:
            found = [column for column in self.scope if comparable(column)]
            if not found:
                return self.choices.pick(
                    [Literal(BOOLEAN, 1, True), Literal(BOOLEAN, 1, False), Literal(BOOLEAN, 0, None)]
                )
            column = self.choices.pick(found)
            if column.kind == BOOLEAN:
                return column
            form = self.choices.pick(["=", "<", "is null", ">=", "<>", "is not null"])
            right = () if form.startswith("is") else (self._other(column),)
            return self._make(form, BOOLEAN, 1, column, *right)
        if self.subquery is not None and self.choices.chance(4):
            return self.subquery()
        form = self.choices.weighted(
            [(8, "compare"), (4, "logic"), (2, "null"), (2, "truth"), (2, "range"), (2, "like"), (1, "user")]
        )
        if form == "compare":
            return self._comparison(depth)
        if form == "logic":
            word = self.choices.pick(["and", "or", "not"])
            arguments = [self._boolean(depth - 1) for _ in range(1 if word == "not" else 2)]
            return self._make(word, BOOLEAN, 1, *arguments)
        if form == "null":
            return self._make(self.choices.pick(["is null", "is not null"]), BOOLEAN, 1, self.any(depth - 1))
        if form == "truth":
            word = self.choices.pick(["is true", "is not true", "is false", "is not false", "is unknown"])
            return self._make(word, BOOLEAN, 1, self._boolean(depth - 1))
        if form == "range":
            value = self._compared(depth - 1)
            word = self.choices.pick(["between", "not between", "in", "not in"])
            return self._make(word, BOOLEAN, 1, value, self._other(value), self._other(value))
        if form == "like":
            pattern = Literal(STRING, 5, self.choices.pick(_PATTERNS))
            return self._make(self.choices.pick(["like", "not like"]), BOOLEAN, 1, self.of(STRING, depth - 1), pattern)
        return self._make("u_is_even", BOOLEAN, 1, self.of(BIGINT, depth - 1, LIMITS["bigint"]))

    def _compared(self, depth: int) -> Expression:
        found = [column for column in self.scope if not column.tame and comparable(column)]
        if found and self.choices.chance(20):
            return self.choices.pick(found)
        return self.of(self.choices.pick(KINDS), depth)

    def _other(self, value: Expression) -> Expression:
        """Return something to compare a value with: a constant or a column of its type."""
        found = [
            column for column in self.scope if column.kind == value.kind and comparable(column) and column != value
        ]
        if value.kind not in KINDS and not (value.kind in _NARROW and self.choices.chance(50)):
            return self.choices.pick(found) if found else Literal(value.kind, 0, None)
        return self.choices.pick(found) if found and self.choices.chance(40) else literal(self.choices, value.kind)

    def _comparison(self, depth: int) -> Expression:
        one = self._compared(depth - 1)
        kind = one.kind
        if kind.number and self.choices.chance(20):  # numbers of different types, as far as both are exact
            kind = self.choices.pick([INT, BIGINT, DECIMAL] if one.kind != DOUBLE else [INT, DOUBLE])
        if kind not in KINDS:
            return self._make(self.choices.pick(COMPARISONS), BOOLEAN, 1, one, self._other(one))
        other = self.of(kind, depth - 1)
        if not comparable(other) or (kind != one.kind and not (one.tame and other.tame)):
            other = literal(self.choices, one.kind)
        return self._make(self.choices.pick(COMPARISONS), BOOLEAN, 1, one, other)

    def _whole(self, kind: Kind, depth: int) -> Expression | None:
        limit = LIMITS[kind.name]
        form = self.choices.pick(
            ["add", "subtract", "multiply", "negate", "divide whole", "modulo", "absolute", "other"]
        )
        if form == "other":
            return None
        one = self.of(kind, depth - 1, limit)
        if form in ("negate", "absolute"):
            return self._make(form, kind, one.bound, one)
        other = self.of(kind, depth - 1, limit)
        bound = one.bound * other.bound if form == "multiply" else one.bound + other.bound
        return self._make(form, kind, one.bound if form == "divide whole" else bound, one, other)

    def _int(self, depth: int) -> Expression:
        made = self._whole(INT, depth)
        if made is not None:
            return made
        form = self.choices.pick(
            ["length", "position", "sign", "narrow to int", "element", "size", "element of two", "value of map"]
        )
        if form in ("narrow to int", "element", "size"):
            kinds = (
                [TINYINT, SMALLINT] if form == "narrow to int" else [INTS] if form == "element" else [INTS, TEXTS, MAP]
            )
            found = [column for column in self.scope if column.kind in kinds]
            if not found:
                form = "length"
            else:
                column = self.choices.pick(found)
                if form == "element":
                    return self._make(form, INT, 1000, column, Literal(INT, 4, self.choices.integer(1, 4)))
                return self._make(form, INT, 2.0**15, column)
        if form in ("element of two", "value of map"):
            one, other = self.of(INT, depth - 1, LIMITS["int"]), self.of(INT, depth - 1, LIMITS["int"])
            return self._make(form, INT, max(one.bound, other.bound), one, other)
        if form == "length":
            text = self.of(STRING, depth - 1)
            return self._make(form, INT, min(text.bound, 400), text)
        if form == "position":
            return self._make(
                form, INT, 400, Literal(STRING, 1, self.choices.pick(["a", "b", ","])), self.of(STRING, depth - 1)
            )
        return self._make("sign", INT, 1, self.of(INT, depth - 1, LIMITS["int"]))

    def _bigint(self, depth: int) -> Expression:
        made = self._whole(BIGINT, depth)
        if made is not None:
            return made
        form = self.choices.pick(
            [
                "to bigint",
                "u_next",
                "u_twice",
                "u_sum",
                "v_negative",
                "v_length",
                "year",
                "cut to bigint",
                "v_minus",
                "v_place",
                "hour",
            ]
        )
        if form == "cut to bigint":
            one = self.of(self.choices.pick([DOUBLE, DECIMAL]), depth - 1, LIMITS["decimal"])
            return self._make(form, BIGINT, one.bound, one)
        if form == "hour":
            found = [column for column in self.scope if column.kind == TIME]
            return self._make(form, BIGINT, 24, self.choices.pick(found) if found else self.of(TIMESTAMP, depth - 1))
        if form == "v_minus":
            pair = [self.of(self.choices.pick([BIGINT, INT]), depth - 1, LIMITS["int"]) for _ in range(2)]
            return self._make(form, BIGINT, pair[0].bound + pair[1].bound, *pair)
        if form == "v_place":
            texts = [self.of(STRING, depth - 1), self.of(STRING, depth - 1), self.of(INT, depth - 1, LIMITS["int"])]
            return self._make(form, BIGINT, 2.0**30 + 400, *texts)
        if form == "year":
            form = self.choices.pick(["year", "month", "day"])
            return self._make(form, BIGINT, 3000, self.of(DATE, depth - 1))
        if form == "v_length":
            text = self.of(STRING, depth - 1)
            return self._make(form, BIGINT, 400, text)
        if form == "to bigint":
            one = self.of(INT, depth - 1)
            return self._make(form, BIGINT, min(one.bound, 2.0**31), one)
        one = self.of(self.choices.pick([BIGINT, INT]), depth - 1, LIMITS["int"])
        if form == "u_sum":
            other = self.of(INT, depth - 1, LIMITS["int"])
            return self._make(form, BIGINT, one.bound + other.bound, one, other)
        return self._make(form, BIGINT, 2 * one.bound + 1, one)

    def _double(self, depth: int) -> Expression:
        limit = 2.0**18  # products of two keep all their digits
        form = self.choices.pick(
            [
                "add",
                "subtract",
                "multiply",
                "negate",
                "absolute",
                "floor",
                "ceiling",
                "to double",
                "v_half",
                "float to double",
            ]
        )
        if form == "float to double":
            found = [column for column in self.scope if column.kind == FLOAT]
            if found:
                return self._make(form, DOUBLE, WILD, self.choices.pick(found))
            form = "to double"
        if form == "to double":
            one = self.of(INT, depth - 1, LIMITS["int"])
            return self._make(form, DOUBLE, one.bound, one)
        one = self.of(DOUBLE, depth - 1, limit)
        if form == "v_half" and self.choices.chance(50):
            # What division gives is not exact, so nothing is computed with it.
            return self._make("divide double", DOUBLE, WILD, one, self.of(DOUBLE, depth - 1, limit))
        bound = WILD if form in ("negate", "multiply") else one.bound + 1  # those two can give −0.0
        if form in ("add", "subtract", "multiply"):
            other = self.of(DOUBLE, depth - 1, limit)
            bound = bound + other.bound
            return self._make(form, DOUBLE, bound, one, other)
        return self._make(form, DOUBLE, WILD if form == "v_half" else bound, one)

    def _decimal(self, depth: int) -> Expression:
        # A sum of DECIMAL(10, 2) is a DECIMAL(11, 2): cast back, so that types do not grow without end.
        form = self.choices.pick(["add", "subtract", "negate", "absolute", "to decimal"])
        limit = LIMITS["decimal"] / 4
        if form == "to decimal":
            one = self.of(self.choices.pick([INT, BIGINT]), depth - 1, limit)
            return self._make(form, DECIMAL, one.bound, one)
        one = self.of(DECIMAL, depth - 1, limit)
        if form in ("negate", "absolute"):
            return self._make(form, DECIMAL, one.bound, one)
        other = self.of(DECIMAL, depth - 1, limit)
        inner = self._make(form, replace(DECIMAL, digits=11), one.bound + other.bound, one, other)
        return self._make("to decimal", DECIMAL, inner.bound, inner)

    def _string(self, depth: int) -> Expression:
        form = self.choices.pick(
            ["upper", "lower", "concatenate", "substring", "u_tag", "u_end", "replace", "trim", "concat", "reverse", "to text",
             "boolean to text", "substring from", "text element"]
        )  # fmt: skip
        if form == "text element":
            found = [column for column in self.scope if column.kind == TEXTS]
            if found:
                return self._make(
                    form, STRING, 10, self.choices.pick(found), Literal(INT, 4, self.choices.integer(1, 4))
                )
            form = "u_tag"
        if form == "to text":
            one = self.of(self.choices.pick([INT, BIGINT, DECIMAL, DATE]), depth - 1)
            return self._make(form, STRING, 20, one)
        if form == "boolean to text":
            return self._make(form, STRING, 5, self._boolean(depth - 1))
        one = self.of(STRING, depth - 1)
        if form in ("concatenate", "concat"):
            other = self.of(STRING, depth - 1)
            return self._make(form, STRING, one.bound + other.bound, one, other)
        if form == "replace":
            texts = (
                Literal(STRING, 1, self.choices.pick(["a", "b", " "])),
                Literal(STRING, 2, self.choices.pick(["", "b", "xy"])),
            )
            return self._make(form, STRING, 2 * one.bound, one, *texts)
        if form.startswith("substring"):
            places = [Literal(INT, 4, self.choices.integer(1, 4)), Literal(INT, 4, self.choices.integer(0, 3))]
            return self._make(form, STRING, one.bound, one, *places[: 1 if form == "substring from" else 2])
        if form in ("upper", "lower", "reverse") and not one.tame:
            form = "u_end"
        return self._make(form, STRING, one.bound + (6 if form.startswith("u_") else 0), one)

    def _date(self, depth: int) -> Expression:
        if self.choices.chance(50):
            return self._make("next day", DATE, 1, self.of(DATE, depth - 1))
        return self._make("timestamp to date", DATE, 1, self.of(TIMESTAMP, depth - 1))

    def _timestamp(self, depth: int) -> Expression:
        form = self.choices.pick(["hour later", "second before", "date to timestamp"])
        one = self.of(DATE if form == "date to timestamp" else TIMESTAMP, depth - 1)
        return self._make(form, TIMESTAMP, 1, one)

    # ------------------------------------------------------------------------------------------- aggregates

    def aggregate(self, depth: int) -> Aggregate:
        """Return an aggregate function of the columns."""
        function = self.choices.pick(
            ["count rows", "sum", "min", "max", "count", "average whole", "sum distinct", "count distinct", "average",
             "a_squares", "a_spread", "a_products", "sum decimal", "sum double", "average decimal", "size of all"]
        )  # fmt: skip
        condition = self._boolean(1) if self.choices.chance(20) else None
        if function == "size of all":
            found = [column for column in self.scope if column.kind.nested and isinstance(column, Column)]
            argument = self.choices.pick(found) if found else self.any(depth)
            return Aggregate(INT, ROWS_MAX, function, (argument,), condition=condition)
        if function == "count rows":
            return Aggregate(BIGINT, ROWS_MAX, function, (), condition=condition)
        if function in ("count", "count distinct"):
            argument = self.any(depth)
            distinct = function == "count distinct" and comparable(argument)
            return Aggregate(BIGINT, ROWS_MAX, "count", (argument,), distinct, condition)
        if function in ("min", "max"):
            argument = self._compared(depth)
            if argument.kind in (BOOLEAN, BYTES):  # Flink has no order of them here
                argument = literal(self.choices, INT)
            return Aggregate(argument.kind, argument.bound, function, (argument,), condition=condition)
        if function.startswith("a_"):
            arguments = [
                self.of(self.choices.pick([INT, BIGINT]), depth, 2.0**20)
                for _ in range(2 if function == "a_products" else 1)
            ]
            return Aggregate(BIGINT, 2.0**40 * ROWS_MAX, function, tuple(arguments), condition=condition)
        if function in ("average", "sum double"):
            argument = self.of(DOUBLE, depth, 2.0**24)
            bound = WILD if function == "average" else argument.bound * ROWS_MAX
            return Aggregate(DOUBLE, bound, function.split()[0], (argument,), condition=condition)
        if function == "average decimal":  # of values below 1,000,000: its 12 digits are compared
            argument = self.of(DECIMAL, depth, 1e5)
            return Aggregate(Kind("decimal", 38, 6), WILD, function, (argument,), condition=condition)
        if function == "sum decimal":
            argument = self.of(DECIMAL, depth, 1e8)
            return Aggregate(replace(DECIMAL, digits=38), WILD, "sum", (argument,), condition=condition)
        kind = self.choices.pick([BIGINT, INT])
        argument = self.of(kind, depth, 1e5 if kind == INT else 2.0**40)
        name = "average whole" if function == "average whole" else "sum"
        bound = argument.bound if name == "average whole" else argument.bound * ROWS_MAX
        return Aggregate(kind, bound, name, (argument,), function == "sum distinct", condition)
