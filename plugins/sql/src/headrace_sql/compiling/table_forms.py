"""Tables that are made of others: LIKE, AS SELECT, ALTER TABLE. They work on the syntax tree of the definition."""

from __future__ import annotations

from typing import Any

from headrace.foundation.errors import did_you_mean
from sqlglot import exp

from headrace_sql.binding import types
from headrace_sql.binding.column_values import value_of
from headrace_sql.binding.scope import Relation, error_at
from headrace_sql.binding.tables import Table
from headrace_sql.reading import nodes

_FEATURES = ("CONSTRAINTS", "GENERATED", "METADATA", "OPTIONS", "PARTITIONS", "WATERMARKS", "DISTRIBUTION")


def feature_of(element: exp.Expr) -> str:
    """Return what an element of a table is: one of the features of LIKE, or COLUMNS for a physical column."""
    if isinstance(element, nodes.Watermark):
        return "WATERMARKS"
    if isinstance(element, exp.PrimaryKey | exp.Constraint):
        return "CONSTRAINTS"
    kinds = [each.args["kind"] for each in element.args.get("constraints") or ()]
    if any(isinstance(kind, exp.ComputedColumnConstraint) for kind in kinds):
        return "GENERATED"
    return "METADATA" if any(isinstance(kind, nodes.MetadataConstraint) for kind in kinds) else "COLUMNS"


def like_table(source: Table, node: exp.Create, text: str) -> exp.Create:
    """Return the plain CREATE TABLE statement for CREATE TABLE … LIKE. Raises ExpressionError where both have the same part."""
    rules = _rules(node.args["like"].args.get("rules") or ())
    own = node.this.expressions
    taken = [each for each in source.node.this.expressions if rules.get(feature_of(each), "INCLUDING") != "EXCLUDING"]
    merged = _merged_elements(taken, own, rules, text)
    options = _merged_options(source, node, rules, text)
    partitioned = node.args.get("partitioned") or []
    inherited = source.node.args.get("partitioned") or []
    if not partitioned and rules["PARTITIONS"] != "EXCLUDING":
        partitioned = inherited
    return exp.Create(
        this=exp.Schema(this=node.this.this.copy(), expressions=[each.copy() for each in merged]), kind="TABLE",
        temporary=node.args.get("temporary"), comment=node.args.get("comment"),
        partitioned=[each.copy() for each in partitioned], properties=exp.Properties(expressions=options),
    )  # fmt: skip


def _rules(given: Any) -> dict[str, str]:
    """Return how each feature is merged: INCLUDING ALL OVERWRITING OPTIONS where nothing is said."""
    made = dict.fromkeys(_FEATURES, "INCLUDING") | {"OPTIONS": "OVERWRITING"}
    for how, feature in given:
        if feature == "ALL":
            made = dict.fromkeys(_FEATURES, how)
    made.update({feature: how for how, feature in given if feature != "ALL"})
    return made


def _merged_elements(taken: list[Any], own: list[Any], rules: dict[str, str], text: str) -> list[Any]:
    made = list(taken)
    for each in own:
        feature = feature_of(each)
        same = [other for other in made if _same_part(other, each, feature)]
        if same:
            if feature == "COLUMNS" or rules.get(feature) != "OVERWRITING":
                what = each.name or feature.lower().rstrip("s")
                hint = None if feature == "COLUMNS" else f"LIKE … (OVERWRITING {feature}), or (EXCLUDING {feature})"
                raise error_at(each, text, f"the table behind LIKE has {what!r} already", hint)
            made = [other for other in made if other is not same[0]]
        made.append(each)
    order = {"WATERMARKS": 1, "CONSTRAINTS": 2}
    return sorted(made, key=lambda each: order.get(feature_of(each), 0))


def _same_part(one: Any, other: Any, feature: str) -> bool:
    if feature in ("CONSTRAINTS", "WATERMARKS"):
        return feature_of(one) == feature
    return feature_of(one) not in ("CONSTRAINTS", "WATERMARKS") and one.name == other.name


def _merged_options(source: Table, node: exp.Create, rules: dict[str, str], text: str) -> list[exp.Expr]:
    own = {each.this.name: each for each in node.args["properties"].expressions}
    inherited = {} if rules["OPTIONS"] == "EXCLUDING" else source.options
    if rules["OPTIONS"] == "INCLUDING":
        for key in own:
            if key in inherited:
                raise error_at(
                    own[key].this, text, f"the table behind LIKE has option {key!r} already",
                    "LIKE … (OVERWRITING OPTIONS)",
                )  # fmt: skip
    made = {key: option.value for key, option in inherited.items()}
    made.update({key: each.args["value"].name for key, each in own.items()})
    return [property_of(key, value) for key, value in made.items()]


def property_of(key: str, value: str) -> exp.Expr:
    """Return an option as the syntax tree has it."""
    return exp.Property(this=exp.Literal.string(key), value=exp.Literal.string(value))


def as_query(node: exp.Create, relation: Relation, text: str) -> tuple[exp.Create, list[str]]:
    """Return the plain statement for CREATE TABLE … AS, and the columns that the query's rows fill, in their order.

    Columns of the statement come first; one that the query gives too keeps the query's place, with the type of the statement. If
    the statement only names columns, it says their order.
    """
    own = node.this.expressions
    if node.args.get("partitioned"):
        raise error_at(
            node.this, text, "CREATE TABLE … AS has no PARTITIONED BY", "write CREATE TABLE, then INSERT INTO"
        )
    if node.args.get("temporary"):
        raise error_at(node.this, text, "CREATE TABLE … AS makes no temporary table", "CREATE TABLE … AS")
    given = {column.name: column for column in relation.columns if not column.hidden}
    bare = [
        each for each in own if isinstance(each, exp.ColumnDef) and not each.args.get("kind") and not each.constraints
    ]
    columns = {name: _column(name, value_of(relation, column)[1], text, node) for name, column in given.items()}
    if bare:
        elements = _reordered(bare, own, columns, text)
    else:
        declared = {each.name: each for each in own if isinstance(each, exp.ColumnDef)}
        for name, each in declared.items():
            if name in columns and feature_of(each) == "COLUMNS":
                columns[name] = each
        first = [each for name, each in declared.items() if name not in given]
        rest = [each for each in own if not isinstance(each, exp.ColumnDef)]
        elements = [*first, *columns.values(), *rest]
    schema = exp.Schema(this=node.this.this.copy(), expressions=[each.copy() for each in elements])
    made = exp.Create(
        this=schema, kind="TABLE", comment=node.args.get("comment"), properties=node.args["properties"].copy()
    )
    return made, list(given)


def _reordered(bare: list[Any], own: list[Any], columns: dict[str, exp.Expr], text: str) -> list[Any]:
    for each in own:
        if isinstance(each, exp.ColumnDef) and each not in bare:
            raise error_at(each, text, "columns with and without a type do not stand together")
        if isinstance(each, exp.ColumnDef) and each.name not in columns:
            hint = did_you_mean(each.name, columns, known="columns")
            raise error_at(each, text, f"the query gives no column {each.name!r}", hint)
    missing = [name for name in columns if name not in {each.name for each in bare}]
    if missing:
        raise error_at(bare[0], text, f"the query also gives {missing[0]!r}", "name all columns of the query, or none")
    return [*(columns[each.name] for each in bare), *(each for each in own if not isinstance(each, exp.ColumnDef))]


def _column(name: str, kind: Any, text: str, node: exp.Expr) -> exp.Expr:
    word = types.declared_as(kind)
    if word is None:
        raise error_at(
            node.this,
            text,
            f"column {name!r} of the query has a type that no table has: {kind}",
            "CAST it to one that has",
        )
    return exp.ColumnDef(this=exp.to_identifier(name, quoted=True), kind=exp.DataType.build(word, dialect="flink"))


def altered(table: Table, node: exp.Expr, text: str) -> exp.Create:
    """Return the statement of a table after ALTER TABLE. Raises ExpressionError for a part that is not there."""
    made = table.node.copy()
    assert isinstance(made, exp.Create)
    schema, action = made.this, node.args["action"]
    if action in ("SET", "RESET"):
        options = {key: option.value for key, option in table.options.items()}
        for each in node.args["options"]:
            if action == "SET":
                options[each.this.name] = each.args["value"].name
            else:
                options.pop(each.name, None)
        made.set("properties", exp.Properties(expressions=[property_of(*each) for each in options.items()]))
    elif action == "RENAME":
        schema.set("expressions", _renamed(table, schema.expressions, node, text))
    elif action in ("ADD", "MODIFY"):
        elements = list(schema.expressions)
        for each in node.args["elements"]:
            _put_element(elements, each, action, text)
        schema.set("expressions", elements)
    else:
        schema.set("expressions", _without(table, schema.expressions, node, text))
    return made


def _known(elements: list[Any], named: exp.Expr, text: str) -> Any:
    found = next((each for each in elements if isinstance(each, exp.ColumnDef) and each.name == named.name), None)
    if found is None:
        names = [each.name for each in elements if isinstance(each, exp.ColumnDef)]
        raise error_at(
            named, text, f"the table has no column {named.name!r}", did_you_mean(named.name, names, known="columns")
        )
    return found


def _put_element(elements: list[Any], each: exp.Expr, action: str, text: str) -> None:
    feature = feature_of(each)
    place = each.meta.get("place")
    added = each.copy()
    if feature in ("CONSTRAINTS", "WATERMARKS"):
        before = [other for other in elements if feature_of(other) == feature or _has_inline_key(other, feature)]
        what = "PRIMARY KEY" if feature == "CONSTRAINTS" else "WATERMARK"
        if bool(before) == (action == "ADD"):
            problem = f"the table has a {what} already" if before else f"the table has no {what}"
            raise error_at(each, text, problem, f"ALTER TABLE … {'MODIFY' if before else 'ADD'} …")
        for other in before:
            _drop_key(elements, other)
        elements.append(added)
        return
    names = [other.name for other in elements if isinstance(other, exp.ColumnDef)]
    if action == "ADD" and each.name in names:
        raise error_at(each.this, text, f"the table has a column {each.name!r} already", "ALTER TABLE … MODIFY …")
    at = sum(isinstance(other, exp.ColumnDef) for other in elements)
    if action == "MODIFY":
        at = elements.index(_known(elements, each.this, text))
        del elements[at]
    if place is not None:
        at = 0 if place[0] == "FIRST" else elements.index(_known(elements, place[1], text)) + 1
    elements.insert(at, added)


def _has_inline_key(element: Any, feature: str) -> bool:
    kinds = [each.args["kind"] for each in element.args.get("constraints") or ()]
    return feature == "CONSTRAINTS" and any(isinstance(kind, exp.PrimaryKeyColumnConstraint) for kind in kinds)


def _drop_key(elements: list[Any], element: Any) -> None:
    if not isinstance(element, exp.ColumnDef):
        elements.remove(element)
        return
    kept = [
        each
        for each in element.args["constraints"]
        if not isinstance(each.args["kind"], exp.PrimaryKeyColumnConstraint)
    ]
    element.set("constraints", kept)


def _without(table: Table, elements: list[Any], node: exp.Expr, text: str) -> list[Any]:
    action = node.args["action"]
    if action in ("DROP KEY", "DROP WATERMARK"):
        feature = "CONSTRAINTS" if action == "DROP KEY" else "WATERMARKS"
        found = [each for each in elements if feature_of(each) == feature or _has_inline_key(each, feature)]
        if not found:
            raise error_at(
                node.this, text, f"the table has no {'PRIMARY KEY' if feature == 'CONSTRAINTS' else 'WATERMARK'}"
            )
        made = list(elements)
        for each in found:
            _drop_key(made, each)
        return made
    dropped = [_known(elements, each, text) for each in node.args["elements"]]
    made = [each for each in elements if each not in dropped]
    for each in dropped:
        _check_unused(table, each.name, made, node, text)
    if not any(isinstance(each, exp.ColumnDef) for each in made):
        raise error_at(node.this, text, "a table has a column at least", "DROP TABLE")
    return made


def _check_unused(table: Table, name: str, left: list[Any], node: exp.Expr, text: str) -> None:
    if name in table.primary_key:
        raise error_at(
            node.this, text, f"column {name!r} is in the PRIMARY KEY", "ALTER TABLE … DROP PRIMARY KEY first"
        )
    for each in left:
        if isinstance(each, exp.ColumnDef) and feature_of(each) != "GENERATED":
            continue
        if any(column.name == name for column in each.find_all(exp.Column)):
            what = "the WATERMARK" if isinstance(each, nodes.Watermark) else f"the computed column {each.name!r}"
            raise error_at(node.this, text, f"{what} uses column {name!r}", "DROP that first")


def _renamed(table: Table, elements: list[Any], node: exp.Expr, text: str) -> list[Any]:
    old, new = node.args["column"], node.args["value"]
    _known(elements, old, text)
    if new.name in table.order:
        raise error_at(new, text, f"the table has a column {new.name!r} already")

    def rename(part: exp.Expr) -> exp.Expr:
        if isinstance(part, exp.Column) and part.name == old.name:
            return exp.Column(this=exp.to_identifier(new.name, quoted=True))
        return part

    made = []
    for each in elements:
        if isinstance(each, exp.ColumnDef):
            computed = feature_of(each) == "GENERATED"
            changed = each.transform(rename) if computed else each
            if changed.name == old.name:
                _keep_metadata_key(changed)
                changed.set("this", exp.to_identifier(new.name, quoted=True))
            made.append(changed)
        elif isinstance(each, exp.PrimaryKey | exp.Constraint):
            made.append(each.transform(lambda part: _new_name(part, old.name, new.name)))
        else:
            made.append(each.transform(rename))
    return made


def _keep_metadata_key(column: exp.Expr) -> None:
    """Let a METADATA column without FROM, whose name is the key, keep its key."""
    for each in column.args.get("constraints") or ():
        kind = each.args["kind"]
        if isinstance(kind, nodes.MetadataConstraint) and not kind.args.get("header") and kind.args.get("this") is None:
            kind.set("this", exp.Literal.string(column.name))


def _new_name(part: exp.Expr, old: str, new: str) -> exp.Expr:
    return exp.to_identifier(new, quoted=True) if isinstance(part, exp.Identifier) and part.name == old else part
