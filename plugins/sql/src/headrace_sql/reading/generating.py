"""Statements about definitions as texts, for the generator of the dialects."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from headrace_sql.reading import nodes


def _listed(self: Any, parts: Any) -> str:
    return f"({', '.join(self.sql(each) for each in parts or ())})"


def _create_place(self: Any, node: Any) -> str:
    words = ["CREATE", node.args["kind"], "IF NOT EXISTS" if node.args.get("exists") else "", self.sql(node, "this")]
    if node.args.get("comment") is not None:
        words += ["COMMENT", self.sql(node, "comment")]
    if node.args.get("options"):
        words += ["WITH", _listed(self, node.args["options"])]
    return " ".join(each for each in words if each)


def _like(self: Any, node: Any) -> str:
    rules = " ".join(f"{how} {feature}" for how, feature in node.args.get("rules") or ())
    return f"LIKE {self.sql(node, 'this')}" + (f" ({rules})" if rules else "")


def _drop(self: Any, node: Any) -> str:
    words = ["DROP", "TEMPORARY" if node.args.get("temporary") else "", node.args["kind"]]
    words += ["IF EXISTS" if node.args.get("exists") else "", self.sql(node, "this")]
    return " ".join(each for each in (*words, "CASCADE" if node.args.get("cascade") else "") if each)


def _alteration(self: Any, node: Any) -> str:
    action = node.args["action"]
    words = ["ALTER", "TEMPORARY" if node.args.get("temporary") else "", node.args["kind"]]
    words += ["IF EXISTS" if node.args.get("exists") else "", self.sql(node, "this")]
    if action in ("SET", "RESET"):
        words += [action, _listed(self, node.args["options"])]
    elif action in ("ADD", "MODIFY", "DROP"):
        words += [action, f"({', '.join(_placed(self, each) for each in node.args['elements'])})"]
    elif action == "RENAME":
        words += [action, self.sql(node, "column"), "TO", self.sql(node, "value")]
    elif action == "DROP KEY":
        words.append("DROP PRIMARY KEY")
    else:
        part = next((key for key in ("target", "query", "value") if node.args.get(key) is not None), None)
        words += [action, self.sql(node, part) if part is not None else ""]
    if node.args.get("language"):
        words += ["LANGUAGE", node.args["language"]]
    return " ".join(each for each in words if each)


def _placed(self: Any, element: Any) -> str:
    place = element.meta.get("place")
    return " ".join(
        [self.sql(element), *(() if place is None else (place[0], *((self.sql(place[1]),) if place[1] else ())))]
    )


def _show(self: Any, node: Any) -> str:
    kind = node.args["kind"]
    if kind == "OPTIONS":
        return "SET"
    words = ["SHOW", kind]
    if node.args.get("this") is not None:
        words += ["" if kind.startswith("CREATE") else "FROM", self.sql(node, "this")]
    if node.args.get("pattern") is not None:
        words += ["NOT" if node.args.get("negated") else "", "ILIKE" if node.args.get("ignore_case") else "LIKE"]
        words.append(self.sql(node, "pattern"))
    return " ".join(each for each in words if each)


def _describe(self: Any, node: Any) -> str:
    kind = node.args["kind"]
    words = [
        "DESCRIBE",
        "" if kind == "TABLE" else kind,
        "EXTENDED" if node.args.get("extended") else "",
        self.sql(node, "this"),
    ]
    return " ".join(each for each in words if each)


#: What the generator of the dialects makes of the nodes of ``CatalogParser``.
TRANSFORMS: Mapping[type, Callable[[Any, Any], str]] = {
    nodes.CreatePlace: _create_place,
    nodes.LikeTable: _like,
    nodes.DropDefinition: _drop,
    nodes.Alteration: _alteration,
    nodes.UsePlace: lambda self, e: f"USE {'CATALOG ' if e.args['kind'] == 'CATALOG' else ''}{self.sql(e, 'this')}",
    nodes.ShowList: _show,
    nodes.DescribeDefinition: _describe,
    nodes.ResetOption: lambda self, e: f"RESET {self.sql(e, 'this')}".strip(),
}
