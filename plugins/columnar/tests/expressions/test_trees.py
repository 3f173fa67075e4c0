"""Trees that front ends have are not parsed again: what is kept is what parsing their text gives."""

from __future__ import annotations

import polars as pl
import pytest
from headrace.flow.schema import Schema
from headrace.foundation.errors import ExpressionError
from headrace_columnar import dialect
from headrace_columnar.expressions import compile_expression
from sqlglot import exp


def column(name: str) -> exp.Column:
    return exp.column(exp.to_identifier(name, quoted=True))


def number(value: int) -> exp.Expr:
    return exp.Literal.number(value)


def cast(node: exp.Expr, word: str) -> exp.Cast:
    return exp.Cast(this=node, to=exp.DataType(this=exp.DType.USERDEFINED, kind=word))


def call(name: str, *arguments: exp.Expr) -> exp.Anonymous:
    return exp.Anonymous(this=name, expressions=list(arguments))


TREES = [
    column("a"),
    column("a b"),
    exp.And(this=exp.Paren(this=exp.GT(this=column("a"), expression=number(1))), expression=exp.true()),
    exp.Case(ifs=[exp.If(this=exp.Is(this=column("a"), expression=exp.Null()), true=number(0))], default=column("a")),
    call("date_trunc", exp.Literal.string("second"), cast(column("t"), "TIMESTAMP_NTZ")),
    call("coalesce", call("lower", column("s")), exp.Literal.string("it's")),
    *(
        cast(column("a"), word)
        for word in (
            "VARCHAR",
            "INT32",
            "FLOAT32",
            "BIGINT",
            "DECIMAL(10, 2)",
            "TIMESTAMP",
            "TIME",
            "DATE",
            "VARCHAR(3)",
        )
    ),
    cast(column("a"), "ARRAY<STRUCT<key: VARCHAR, value: INT32>>"),
    exp.Add(this=column("t"), expression=exp.Interval(this=exp.Literal.string("5"), unit=exp.var("MICROSECOND"))),
    exp.Neg(this=number(5)),
    exp.Sub(this=column("a"), expression=exp.Mul(this=number(2), expression=column("b"))),
    exp.Or(
        this=exp.Not(this=exp.Paren(this=exp.EQ(this=column("a"), expression=number(1)))),
        expression=exp.Like(this=column("s"), expression=exp.Literal.string("%x_")),
    ),
    *(kind(this=column("a"), expression=number(1)) for kind in (exp.NEQ, exp.GTE, exp.LT, exp.LTE)),
    exp.Case(this=column("a"), ifs=[exp.If(this=number(1), true=exp.Literal.string("x"))]),
    exp.TryCast(this=column("a"), to=exp.DataType(this=exp.DType.USERDEFINED, kind="BIGINT"), safe=True),
    exp.In(this=column("a"), expressions=[number(1), number(2)]),
]


@pytest.fixture(autouse=True)
def nothing_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dialect, "_trees", {})


@pytest.fixture
def no_parser(monkeypatch: pytest.MonkeyPatch) -> None:
    dialect.text_of(cast(column("a"), "DATE"))  # the word of a type is parsed once

    def parse(text: str) -> exp.Expr:
        raise AssertionError(f"{text} is parsed")

    monkeypatch.setattr(dialect, "parse", parse)


@pytest.mark.parametrize("tree", TREES, ids=lambda tree: tree.sql(dialect=dialect.Headrace))
def test_the_tree_that_is_kept_is_what_parsing_the_text_gives(tree: exp.Expr) -> None:
    before = tree.copy()
    text = dialect.text_of(tree)
    assert text == tree.sql(dialect=dialect.Headrace, identify=True)
    assert list(dialect._trees) == [text]
    assert dialect._trees[text] == dialect.parse(text)
    assert tree == before


@pytest.mark.usefixtures("no_parser")
def test_what_was_a_tree_is_not_parsed() -> None:
    text = dialect.text_of(exp.GT(this=column("a"), expression=cast(column("b"), "DATE")))
    compiled = compile_expression(text, Schema({"a": pl.Date(), "b": pl.String()}))
    assert (compiled.data_type, compiled.columns) == (pl.Boolean(), frozenset({"a", "b"}))
    assert compiled.text == text


@pytest.mark.parametrize(
    "tree",
    [
        call("json_value", column("s"), exp.Literal.string("$.a")),
        exp.Dot(this=column("r"), expression=exp.to_identifier("x", quoted=True)),
        exp.Array(expressions=[number(1)]),
        exp.Trim(this=column("s"), expression=exp.Literal.string("x"), position="BOTH"),
    ],
)
def test_what_only_the_parser_knows_is_parsed(tree: exp.Expr) -> None:
    text = dialect.text_of(tree)
    assert dialect._trees == {}
    assert dialect.parsed(text) == dialect.parse(text)


def test_places_in_another_text_are_left_behind() -> None:
    tree = column("missing")
    tree.this.meta.update(start=50, end=57)
    kept = dialect.parsed(dialect.text_of(tree))
    assert all(not part.meta for part in kept.walk())
    assert tree.this.meta["start"] == 50


def test_the_oldest_trees_are_forgotten() -> None:
    texts = [dialect.text_of(column(f"c{number}")) for number in range(dialect._TREES_MAX + 3)]
    assert list(dialect._trees) == texts[3:]
    assert dialect.parsed(texts[0]) == column("c0")


def test_mistakes_are_shown_at_their_place_all_the_same() -> None:
    text = dialect.text_of(exp.And(this=exp.true(), expression=exp.GT(this=column("missing"), expression=number(1))))
    with pytest.raises(ExpressionError, match="unknown column 'missing'") as raised:
        compile_expression(text, Schema({"a": pl.Int64()}))
    assert raised.value.position == text.index('"missing"')


def test_every_node_that_is_read_as_written_is_in_a_tree_above() -> None:
    seen = {type(part) for tree in TREES for part in tree.walk()}
    assert seen >= dialect._READ_AS_WRITTEN
