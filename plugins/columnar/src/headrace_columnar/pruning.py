"""What nobody reads is not made: items of ``select`` and ``with_columns``, and fields of structs that sources decode.

Called once for a plan before it runs. Sources decode only the columns that a job needs (``Plan.decode_columns``); this is the same
for fields of structs, and for expressions. An expression that can fail stays: it decides which rows are passed on.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace

import polars as pl
from headrace.codecs.json import JsonCodec
from headrace.flow.schema import Schema
from headrace.plan import graph
from headrace_columnar.expressions import CompiledExpression
from headrace_columnar.verbs.projection import Drop, Rename, Select, WithColumns
from headrace_columnar.verbs.selection import Where

#: What is read: columns, and of a struct the fields, or None for the whole column.
Reads = dict[str, frozenset[str] | None]


def pruned(plan: graph.Plan) -> graph.Plan | None:
    """Return the plan without what nobody reads; None when there is no such thing."""
    changes: dict[graph.Node, graph.Node] = {}
    #: The columns of each node's output that are read; None: all.
    wanted: dict[int, Reads | None] = {}
    for node in reversed(plan.nodes.values()):
        after = wanted.get(id(node), {})
        if isinstance(node, graph.OperatorNode):
            before = graph.input_schema(node.input)
            if before is None:
                _add(wanted, node.input.node, None)
                continue
            # In a changelog columns that nobody reads may be its key.
            changed = node if plan.changes_at(node.input) else _without_unread(node, after, before)
            if changed is not node:
                changes[node] = changed
            _add(wanted, node.input.node, _read_by(changed, after, before))
        elif isinstance(node, graph.ShuffleNode):
            single = len(node.sides) == 1
            read = None if after is None or not single else _whole([*after, *node.keys[0]])
            for edge in node.sides:
                _add(wanted, edge.node, read)
        elif isinstance(node, graph.UnionNode):
            for edge in node.merged:
                # The branches must have one type.
                _add(wanted, edge.node, None if after is None else _whole(after))
        elif isinstance(node, graph.SinkNode):
            _add(wanted, node.input.node, None)
        elif isinstance(node, graph.SourceNode):
            narrowed = _narrowed(node, after)
            if narrowed is not None:
                changes[node] = narrowed
    return graph.rebuilt(plan, changes) if changes else None


def _add(wanted: dict[int, Reads | None], node: graph.Node, reads: Reads | None) -> None:
    known = wanted.get(id(node), {})
    wanted[id(node)] = None if reads is None or known is None else _merged([known, reads])


def _merged(several: Collection[Mapping[str, frozenset[str] | None]]) -> Reads:
    found: Reads = {}
    for reads in several:
        for name, fields in reads.items():
            known = found.get(name, frozenset())
            found[name] = None if fields is None or known is None else known | fields
    return found


def _whole(names: Collection[str]) -> Reads:
    return dict.fromkeys(names)


def _reads_of(compiled: CompiledExpression) -> Reads:
    return {name: compiled.fields.get(name) for name in compiled.columns}


def _read_by(node: graph.OperatorNode, after: Reads | None, before: Schema) -> Reads | None:
    """Return the input columns that an operator reads if ``after`` of its output are read."""
    spec = node.spec
    if isinstance(spec, Select):
        return _merged([_reads_of(one) for one in spec.compiled(before).values()])
    if after is None:
        columns = spec.required_columns(None, before)
        return None if columns is None else _whole(columns)
    if isinstance(spec, Where):
        predicate = spec.compiled(before)
        return _merged([after, _reads_of(predicate)])
    if isinstance(spec, WithColumns):
        kept = {name: fields for name, fields in after.items() if name not in spec.items}
        return _merged([kept, *(_reads_of(one) for one in spec.compiled(before).values())])
    if isinstance(spec, Drop):
        return after
    if isinstance(spec, Rename):
        old = {new: name for name, new in spec.names.items()}
        return {old.get(name, name): fields for name, fields in after.items()}
    if spec.keeps_columns:
        own = spec.required_columns((), before)
        return None if own is None else _merged([after, _whole(own)])
    columns = spec.required_columns(list(after), before)
    return None if columns is None else _whole(columns)


def _without_unread(node: graph.OperatorNode, after: Reads | None, before: Schema) -> graph.OperatorNode:
    """Return the operator without the items that nobody reads and that cannot fail; one item always stays."""
    spec = node.spec
    if after is None or not isinstance(spec, Select | WithColumns):
        return node
    compiled = spec.compiled(before)
    kept = {name: item for name, item in spec.items.items() if name in after or compiled[name].can_fail}
    if not kept:
        kept = dict(list(spec.items.items())[:1])
    if len(kept) == len(spec.items):
        return node
    return replace(node, spec=type(spec)(functions=spec.functions, **kept))


def _narrowed(node: graph.SourceNode, after: Reads | None) -> graph.SourceNode | None:
    """Return the source with only those fields of its structs that are read; None when it stays as it is.

    Of the formats only JSON is known to find fields by their names.
    """
    if after is None or node.body_schema is None or node.schema is None or type(node.codec) is not JsonCodec:
        return None
    narrowed: dict[str, pl.DataType] = {}
    for name, fields in after.items():
        declared = node.body_schema.get(name)
        if not fields or not isinstance(declared, pl.Struct):
            continue
        kept = [field for field in declared.fields if field.name in fields]
        if len(kept) < len(declared.fields):
            narrowed[name] = pl.Struct(kept)
    if not narrowed:
        return None
    return replace(node, body_schema=_with_types(node.body_schema, narrowed), schema=_with_types(node.schema, narrowed))


def _with_types(schema: Schema, types: Mapping[str, pl.DataType]) -> Schema:
    return Schema({name: types.get(name, kind) for name, kind in schema.items()}, json_columns=schema.json_columns)
