"""Definitions as texts: what SHOW CREATE shows, and what catalogs keep."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from headrace.foundation.secrecy import is_secret_name, lets_in, masked
from sqlglot import exp

HIDDEN = "******"


def text_of_literal(value: str) -> str:
    """Return a text as a literal."""
    return "'" + value.replace("'", "''") + "'"


def shown_option(key: str, value: str) -> str:
    """Return an option's value as it may be shown: secrets and passwords in addresses are hidden, places of
    secrets (``${NAME}``) are not.
    """
    is_place = value.startswith("${") and value.endswith("}")
    return HIDDEN if (is_secret_name(key) or lets_in(key)) and not is_place else masked(value)


def options_text(options: Iterable[tuple[str, str]], *, shown: bool = False) -> str:
    """Return ``WITH (…)``, one option a line; empty without options. ``shown``: with secrets hidden."""
    lines = [
        f"  {text_of_literal(key)} = {text_of_literal(shown_option(key, value) if shown else value)}"
        for key, value in options
    ]
    return "WITH (\n" + ",\n".join(lines) + "\n)" if lines else ""


def table_text(node: exp.Expr, name: str, *, shown: bool = False) -> str:
    """Return the text of a CREATE TABLE statement under a name that is quoted already.

    ``shown``: with secrets hidden. A query or LIKE behind the table is left out.
    """
    schema = node.this
    elements = schema.expressions if isinstance(schema, exp.Schema) else []
    lines = [f"CREATE {'TEMPORARY ' if node.args.get('temporary') else ''}TABLE {name}"]
    if elements:
        lines[0] += " (\n" + ",\n".join(f"  {each.sql(dialect='flink')}" for each in elements) + "\n)"
    comment = node.args.get("comment")
    if comment is not None:
        lines.append(f"COMMENT {text_of_literal(comment.name)}")
    partitioned = node.args.get("partitioned")
    if partitioned:
        lines.append(f"PARTITIONED BY ({', '.join(each.sql(dialect='flink') for each in partitioned)})")
    properties = node.args.get("properties")
    options = [(each.this.name, each.args["value"].name) for each in properties.expressions] if properties else []
    lines.append(options_text(options, shown=shown))
    return "\n".join(each for each in lines if each)


def view_text(name: str, columns: Sequence[str], query: str, *, temporary: bool = False) -> str:
    """Return the text of a CREATE VIEW statement under a name that is quoted already."""
    listed = f" ({', '.join('`' + each.replace('`', '``') + '`' for each in columns)})" if columns else ""
    return f"CREATE {'TEMPORARY ' if temporary else ''}VIEW {name}{listed} AS\n{query}"


def function_text(name: str, path: str, *, temporary: bool = False) -> str:
    """Return the text of a CREATE FUNCTION statement under a name that is quoted already."""
    return f"CREATE {'TEMPORARY ' if temporary else ''}FUNCTION {name} AS {text_of_literal(path)} LANGUAGE PYTHON"
