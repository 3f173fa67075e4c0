"""Syntax nodes of Flink SQL that sqlglot has no class for."""

from __future__ import annotations

from typing import Any, ClassVar

from sqlglot import exp

#: What Flink can add to a plan that EXPLAIN shows.
EXPLAIN_DETAILS = ("ESTIMATED_COST", "CHANGELOG_MODE", "JSON_EXECUTION_PLAN", "PLAN_ADVICE")

#: Key of a query's meta for its text as it is written.
WRITTEN = "headrace_written"
#: What a parser's error begins with where the text is well-formed and its statement has no meaning here.
REFUSAL = "not supported: "


#: Key of the meta of a type within another one that says NOT NULL.
NOT_NULL = "headrace_not_null"


class Watermark(exp.Expression):
    """``WATERMARK [name] FOR column AS expression`` among the columns of a table."""

    arg_types: ClassVar[dict[str, Any]] = {"this": True, "expression": True, "alias": False}


class SystemTimePeriod(exp.Expression):
    """``PERIOD FOR SYSTEM_TIME``: Blink's mark of a dimension table."""

    arg_types: ClassVar[dict[str, Any]] = {}


class MetadataConstraint(exp.Expression, exp.ColumnConstraintKind):
    """``METADATA [FROM 'key'] [VIRTUAL]``, or Blink's ``HEADER``, behind a column."""

    arg_types: ClassVar[dict[str, Any]] = {"this": False, "virtual": False, "header": False}


class WindowTable(exp.Expression):
    """``TABLE(TUMBLE(TABLE t, DESCRIPTOR(ts), INTERVAL …))``. ``expressions`` are the lengths, in the order of the text."""

    arg_types: ClassVar[dict[str, Any]] = {
        "this": True,
        "source": True,
        "partition_by": False,
        "descriptor": True,
        "expressions": True,
        "alias": False,
    }


class JsonCall(exp.Expression, exp.Func):
    """A JSON function with its own syntax: JSON_OBJECT, JSON_ARRAY, JSON_OBJECTAGG, JSON_ARRAYAGG. ``this`` is the name.

    ``expressions`` are values, of objects keys and values in turn. ``nulls``: "NULL" or "ABSENT" (ON NULL).
    """

    arg_types: ClassVar[dict[str, Any]] = {"this": True, "expressions": False, "nulls": True}

    @property
    def is_aggregate(self) -> bool:
        return self.name.endswith("AGG")


class ChangelogTable(exp.Expression):
    """``TO_CHANGELOG(input => TABLE t, op => DESCRIPTOR(c), op_mapping => MAP[…])``, or FROM_CHANGELOG, in FROM."""

    arg_types: ClassVar[dict[str, Any]] = {
        "this": True,
        "input": True,
        "op": False,
        "op_mapping": False,
        "alias": False,
    }


class TableCall(exp.Expression):
    """``TABLE(f(a, b))`` behind LATERAL: the call of a table function."""

    arg_types: ClassVar[dict[str, Any]] = {"this": True}


class Emit(exp.Expression):
    """``EMIT WITH DELAY '1' MINUTE BEFORE WATERMARK, WITHOUT DELAY AFTER WATERMARK`` behind an INSERT's query.

    ``before`` and ``after`` are intervals, or TRUE for WITHOUT DELAY.
    """

    arg_types: ClassVar[dict[str, Any]] = {"before": False, "after": False}


class OnConflict(exp.Expression):
    """``ON CONFLICT DO NOTHING | ERROR | DEDUPLICATE`` behind an INSERT's query."""

    arg_types: ClassVar[dict[str, Any]] = {"this": True}


class SetOption(exp.Expression):
    """``SET 'key' = 'value'``."""

    arg_types: ClassVar[dict[str, Any]] = {"this": True, "expression": True}


class Explain(exp.Expression):
    """``EXPLAIN [details] statement``. ``set``: of a statement set, of which ``this`` is the first statement, if it is there."""

    arg_types: ClassVar[dict[str, Any]] = {"this": False, "details": False, "set": False}


class CreatePlace(exp.Expression):
    """``CREATE CATALOG`` or ``CREATE DATABASE``, by ``kind``."""

    arg_types: ClassVar[dict[str, Any]] = {
        "this": True, "kind": True, "exists": False, "comment": False, "options": False,
    }  # fmt: skip


class LikeTable(exp.Expression):
    """``LIKE t (EXCLUDING ALL INCLUDING OPTIONS)`` behind a table; ``rules`` are pairs of words in the order of the text."""

    arg_types: ClassVar[dict[str, Any]] = {"this": True, "rules": False}


class DropDefinition(exp.Expression):
    """``DROP [TEMPORARY] kind [IF EXISTS] name [CASCADE]``."""

    arg_types: ClassVar[dict[str, Any]] = {
        "this": True, "kind": True, "exists": False, "temporary": False, "cascade": False,
    }  # fmt: skip


class Alteration(exp.Expression):
    """``ALTER kind [IF EXISTS] name action``; which parts are there depends on ``action``."""

    arg_types: ClassVar[dict[str, Any]] = {
        "this": True, "kind": True, "exists": False, "temporary": False, "action": False, "target": False, "column": False,
        "value": False, "options": False, "elements": False, "query": False, "language": False,
    }  # fmt: skip


class UsePlace(exp.Expression):
    """``USE CATALOG c``, ``USE [c.]d``."""

    arg_types: ClassVar[dict[str, Any]] = {"this": True, "kind": True}


class ShowList(exp.Expression):
    """``SHOW kind [FROM this] [[NOT] LIKE pattern]``, ``SHOW CREATE TABLE this``, and ``SET`` alone as the kind OPTIONS."""

    arg_types: ClassVar[dict[str, Any]] = {
        "kind": True, "this": False, "pattern": False, "negated": False, "ignore_case": False,
    }  # fmt: skip


class DescribeDefinition(exp.Expression):
    """``DESCRIBE [kind] [EXTENDED] name``."""

    arg_types: ClassVar[dict[str, Any]] = {"this": True, "kind": True, "extended": False}


class ResetOption(exp.Expression):
    """``RESET ['key']``."""

    arg_types: ClassVar[dict[str, Any]] = {"this": False}


class StatementSet(exp.Expression):
    """Where a statement set begins or ends; ``this`` is BEGIN or END."""

    arg_types: ClassVar[dict[str, Any]] = {"this": True}


class MatchPattern(exp.Expression):
    """``PATTERN (A B+ C) WITHIN INTERVAL …``: the pattern's text, and how long a match may last."""

    arg_types: ClassVar[dict[str, Any]] = {"this": True, "within": False}


def with_parts(node: exp.Expr, replaced: dict[int, exp.Expr]) -> exp.Expr:
    """Return an expression with parts replaced; the given one stays as it is."""
    if id(node) in replaced:
        return replaced[id(node)]
    parts: dict[str, Any] = {}
    for key, value in node.args.items():
        if isinstance(value, list):
            parts[key] = [with_parts(each, replaced) if isinstance(each, exp.Expr) else each for each in value]
        else:
            parts[key] = with_parts(value, replaced) if isinstance(value, exp.Expr) else value
    made = type(node)(**{key: _own(value) for key, value in parts.items()})
    made.meta.update(node.meta)
    return made


def _own(value: Any) -> Any:
    """Return parts that belong to no other expression yet."""
    if isinstance(value, list):
        return [_own(each) for each in value]
    return value.copy() if isinstance(value, exp.Expr) and value.parent is not None else value
