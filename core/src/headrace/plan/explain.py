"""A plan for people: what each node does, as text and as a Mermaid flowchart. Pure functions; nothing is connected.

``headrace explain`` prints these texts; the picture in ``headrace-console`` is drawn from the same descriptions.
"""

from __future__ import annotations

import inspect
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Literal

import msgspec

from headrace.flow.schema import type_name
from headrace.foundation.errors import PlanError
from headrace.interfaces.operator import StatefulSpec
from headrace.interfaces.settings import Settings, format_duration, option_fields
from headrace.interfaces.sink import IdempotentSink, Sink, TransactionalSink
from headrace.interfaces.source import Start, StartAt
from headrace.plan.graph import (
    DeadLettersNode,
    Input,
    Node,
    OperatorNode,
    Plan,
    ShuffleNode,
    SinkNode,
    SourceNode,
    UnionNode,
    input_schema,
)

if TYPE_CHECKING:
    from headrace.flow.schema import Schema

Kind = Literal["source", "operator", "union", "shuffle", "sink", "dead letters"]

#: Longest value of an option that is shown in full.
_VALUE_LENGTH_MAX = 100
_SYMBOLS: Mapping[Kind, str] = {
    "source": "●", "operator": "○", "union": "○", "shuffle": "⇶", "sink": "■", "dead letters": "◆",
}  # fmt: skip
_UNKNOWN_COLUMNS = "known row by row"


@dataclass(frozen=True, slots=True)
class NodeDescription:
    """One node of a plan in words. All texts are complete; the caller shortens them for display."""

    id: str
    kind: Kind
    #: The class of a source or sink, the verb of an operator.
    what: str
    #: The arguments as ``OperatorSpec.describe()`` gives them; may have several lines.
    arguments: str
    #: (id, output) of the nodes before this one, in order.
    inputs: tuple[tuple[str, str], ...]
    #: The columns after the node with their types; None: known only row by row.
    columns: Mapping[str, str] | None
    #: Whether the columns differ from those before the node.
    changes_columns: bool
    #: Options of a source or sink that are not the default, as a user would write them; secrets do not show.
    options: Mapping[str, str] = field(default_factory=dict)
    #: Those of the options that small pictures show.
    in_pictures: tuple[str, ...] = ()
    #: Of a source: the columns that its codec decodes, because something after it needs them.
    decoded: tuple[str, ...] | None = None
    #: Of a sink: what a crash does to its rows.
    guarantee: str | None = None
    #: Whether an operator remembers: its state is kept per shard, in checkpoints.
    stateful: bool = False


@dataclass(frozen=True, slots=True)
class StageDescription:
    """What runs in one lane: the roots it is made for, and the ids of all nodes between them and the sinks."""

    title: str
    roots: tuple[str, ...]
    operators: tuple[str, ...]
    sinks: tuple[str, ...]
    #: Whether it takes the job's dead letters and nothing else.
    dead_letters: bool = False

    @property
    def nodes(self) -> tuple[str, ...]:
        return (*self.roots, *self.operators, *self.sinks)


def guarantee_of(sink: Sink) -> str:
    """Return the guarantee of a sink's class for rows after a crash, in words."""
    if isinstance(sink, TransactionalSink):
        return "exactly once"
    if isinstance(sink, IdempotentSink):
        return "exactly once by key"
    return "at least once"


def describe_nodes(plan: Plan) -> dict[str, NodeDescription]:
    """Describe every node of a plan, in the order in which it is best read: the dead letters' own way comes last."""
    decoded = plan.decode_columns()
    described = {}
    for stage in describe_stages(plan):
        members = set(stage.nodes)
        for node_id, node in plan.nodes.items():
            if node_id in members:
                described[node_id] = _describe(plan, node_id, node, decoded)
    return described


def describe_stages(plan: Plan) -> list[StageDescription]:
    """Return the stages of a plan. A stage has no shuffle in it, so every queue runs through it in its own lane.

    Streams of one job that have no node in common are stages beside each other.
    """
    groups: list[set[str]] = []
    for node_id, node in plan.nodes.items():
        before = set() if isinstance(node, ShuffleNode) else {plan.id_of(edge.node) for edge in node.inputs}
        touched = [group for group in groups if group & before]
        merged = {node_id}.union(*touched)
        # The first of the merged groups keeps its place, so that the order is that of the plan.
        at = groups.index(touched[0]) if touched else len(groups)
        groups[at : at + 1] = [merged]
        groups = [group for group in groups if group is merged or not group <= merged]
    stages = [_describe_stage(plan, group) for group in groups]
    return sorted(stages, key=lambda stage: stage.dead_letters)


def _describe_stage(plan: Plan, group: set[str]) -> StageDescription:
    members = {node_id: node for node_id, node in plan.nodes.items() if node_id in group}
    begins = SourceNode | DeadLettersNode | ShuffleNode
    roots = tuple(node_id for node_id, node in members.items() if isinstance(node, begins))
    sinks = tuple(node_id for node_id, node in members.items() if isinstance(node, SinkNode))
    sources = [node_id for node_id in roots if isinstance(members[node_id], SourceNode)]
    shuffles = [node_id for node_id in roots if isinstance(members[node_id], ShuffleNode)]
    title = "the way of bad records"
    if sources:
        title = f"one lane per queue of {_listed(sources)}"
    elif shuffles:
        title = f"one lane per shard of {_listed(shuffles)}"
    return StageDescription(
        title=title,
        roots=roots,
        operators=tuple(node_id for node_id in members if node_id not in (*roots, *sinks)),
        sinks=sinks,
        dead_letters=not sources and not shuffles,
    )


def _describe(plan: Plan, node_id: str, node: Node, decoded: Mapping[str, Sequence[str]]) -> NodeDescription:
    before = [input_schema(edge) for edge in node.inputs]
    details: dict[str, Any] = {}
    if isinstance(node, SourceNode):
        kind: Kind = "source"
        what, arguments = type(node.source).__name__, ""
        shown = (*_in_pictures(node.source.settings), "format")
        details = {"options": _source_options(node), "in_pictures": shown, "decoded": tuple(decoded[node_id])}
    elif isinstance(node, SinkNode):
        kind, what, arguments = "sink", type(node.sink).__name__, ""
        details = {
            "options": changed_options(node.sink.settings),
            "in_pictures": (*_in_pictures(node.sink.settings), "format"),
            "guarantee": guarantee_of(node.sink),
        }
    elif isinstance(node, OperatorNode):
        kind, what, arguments = "operator", node.spec.name or type(node.spec).__name__, node.spec.describe()
        details = {"stateful": isinstance(node.spec, StatefulSpec)}
    elif isinstance(node, ShuffleNode):
        kind, what = "shuffle", "shuffle"
        keys = [", ".join(names) for names in node.keys]
        arguments = f"to shards by {' = '.join(keys)}" if any(keys) else "to one shard"
    elif isinstance(node, UnionNode):
        merged = _listed([_edge_text(plan, edge) for edge in node.merged])
        kind, what, arguments = "union", "union", f"rows of {merged} together"
    elif isinstance(node, DeadLettersNode):
        kind, what, arguments = "dead letters", "dead letters", "bad records of the whole job"
    else:
        raise PlanError(f"a plan cannot explain a {type(node).__name__}", job=plan.job_name, plugin=node_id)
    return NodeDescription(
        id=node_id,
        kind=kind,
        what=what,
        # Texts of several lines contain the indentation of their Python file.
        arguments=inspect.cleandoc(arguments),
        inputs=tuple((plan.id_of(edge.node), edge.output) for edge in node.inputs),
        columns=None if node.schema is None else {name: type_name(t) for name, t in node.schema.items()},
        changes_columns=not isinstance(node, SinkNode | ShuffleNode)
        and not any(_same(node.schema, other) for other in before),
        **details,
    )


def _same(one: Schema | None, other: Schema | None) -> bool:
    return one == other


def _edge_text(plan: Plan, edge: Input) -> str:
    return plan.id_of(edge.node) + (f".{edge.output}" if edge.output else "")


def _in_pictures(settings: Any) -> tuple[str, ...]:
    return settings.in_pictures if isinstance(settings, Settings) else ()


def _source_options(node: SourceNode) -> dict[str, str]:
    settings = node.source.settings
    options = changed_options(settings) if isinstance(settings, Settings) else {}
    if node.source.start is not Start.EARLIEST:
        start = node.source.start
        options["start"] = repr(start.time.isoformat() if isinstance(start, StartAt) else start.value)
    if node.format is not None:
        options["format"] = repr(node.format)
        codec_settings = node.codec.settings if node.codec is not None else None
        options |= changed_options(codec_settings) if isinstance(codec_settings, Settings) else {}
    if node.metadata:
        options["metadata"] = ", ".join(f"{column} = {what}" for column, what in node.metadata.items())
    return options


def changed_options(settings: Settings) -> dict[str, str]:
    """Return the options that have another value than their default, as a user would write them.

    A ``Secret`` shows as ``Secret('***')``; very long values are cut.
    """
    shown = {}
    for declared in option_fields(type(settings)):
        value = getattr(settings, declared.name)
        if declared.default is not msgspec.NODEFAULT and value == declared.default:
            continue
        if declared.default_factory is not msgspec.NODEFAULT and value == declared.default_factory():
            continue
        text = repr(format_duration(value)) if isinstance(value, timedelta) else repr(value)
        shown[declared.encode_name] = _cut(text)
    return shown


def _cut(text: str) -> str:
    return text if len(text) <= _VALUE_LENGTH_MAX else text[: _VALUE_LENGTH_MAX - 1] + "…"


def _listed(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else ", ".join(names[:-1]) + f" and {names[-1]}"


# ------------------------------------------------------------------------------------------------------------- text


def plan_as_text(plan: Plan, *, width: int = 110) -> str:
    """Return the plan as a graph drawn with characters, the stages after it; lines are at most about ``width`` long.

    Ends with a newline. The same plan always gives the same text.
    """
    nodes = describe_nodes(plan)
    rows = _draw(list(nodes.values()))
    graph_width = max(len(row.graph) for row in rows)
    id_width = min(28, max(map(len, nodes)))
    lines = [f"job {plan.job_name}", ""]
    for row in rows:
        if row.node is None:
            lines.append(f"  {row.graph}".rstrip())
            continue
        margin = graph_width + 2 + id_width + 2
        texts = list(_texts(row.node, width - margin - 2))
        prefixes = [f"{row.graph.ljust(graph_width)}  {row.node.id.ljust(id_width)}  "]
        prefixes += [f"{row.below.ljust(margin)}"] * (len(texts) - 1)
        lines += [f"  {prefix}{text}".rstrip() for prefix, text in zip(prefixes, texts, strict=True)]
    lines += ["", "stages"]
    for number, stage in enumerate(describe_stages(plan), 1):
        lines += textwrap.wrap(
            f"{number}  {stage.title}: "
            + " → ".join(", ".join(part) for part in (stage.operators, stage.sinks) if part),
            width,
            initial_indent="  ",
            subsequent_indent="     ",
        )
    if plan.dead_letters_id is None:
        lines += ["", "bad records stop the job: its dead letters go nowhere"]
    return "\n".join(lines) + "\n"


def _texts(node: NodeDescription, width: int) -> Iterable[str]:
    """Yield the lines that stand beside a node: the first at its name, the others below."""
    yield from _wrapped(headline(node), width)
    details = dict(node.options)
    taken = [f"{output} of {parent}" for parent, output in node.inputs if output]
    if taken and node.kind != "union":
        details = {"takes": taken[0], **details}
    if node.decoded is not None and node.columns is not None:
        details["decodes"] = _decoded_text(node.decoded, node.columns)
    if node.changes_columns:
        details["columns"] = columns_text(node.columns)
    name_width = max(map(len, details), default=0) + 2
    if node.stateful:
        details["state"] = "kept per shard, in checkpoints"
    for name, text in details.items():
        lines = _wrapped(text, max(24, width - name_width))
        yield f"{name.ljust(name_width)}{lines[0]}"
        yield from (" " * name_width + line for line in lines[1:])


def headline(node: NodeDescription) -> str:
    """Return a description of a node in one line or, for an operator with a long text, in several."""
    if node.kind == "source":
        return f"source {node.what}"
    if node.kind == "sink":
        return f"sink {node.what}, {node.guarantee}"
    return node.arguments or node.what


def columns_text(columns: Mapping[str, str] | None) -> str:
    """Return columns with their types in one line."""
    if columns is None:
        return _UNKNOWN_COLUMNS
    return ", ".join(f"{name}: {kind}" for name, kind in columns.items()) or "none"


def _decoded_text(decoded: Sequence[str], columns: Mapping[str, str]) -> str:
    if len(decoded) == len(columns):
        return "all columns"
    return f"{', '.join(decoded) or 'nothing'} ({len(decoded)} of {len(columns)} columns)"


def _wrapped(text: str, width: int) -> list[str]:
    lines: list[str] = []
    for line in text.splitlines() or [""]:
        own = len(line) - len(line.lstrip())
        lines += textwrap.wrap(
            line, max(24, width), subsequent_indent=" " * own, break_long_words=False, break_on_hyphens=False
        ) or [""]
    return lines


@dataclass(frozen=True, slots=True)
class _Row:
    """A line of the graph: the drawing, what continues below it, and the node whose line it is."""

    graph: str
    below: str = ""
    node: NodeDescription | None = None


def _draw(nodes: Sequence[NodeDescription]) -> list[_Row]:
    """Draw nodes below each other with their edges at the left, one column per edge under way."""
    consumers: dict[str, list[str]] = {node.id: [] for node in nodes}
    for node in nodes:
        for parent, _ in node.inputs:
            consumers[parent].append(node.id)
    columns: list[str | None] = []  # the node that the edge in a column leads to; None: the column is free
    rows: list[_Row] = []
    for node in nodes:
        mine = [at for at, target in enumerate(columns) if target == node.id]
        if len(mine) > 1:
            rows.append(_Row(_branching(columns, mine, "╯", "┴")))
            for at in mine[1:]:
                columns[at] = None
        if mine:
            place = mine[0]
        elif None in columns:
            place = columns.index(None)
        else:
            columns.append(None)
            place = len(columns) - 1
        if not mine and rows and not any(columns):
            rows.append(_Row(""))  # a separate flow begins
        graph = _line(columns, {place: _SYMBOLS[node.kind]})
        after = consumers[node.id]
        # The last consumer is drawn straight below, those before it to the right: edges then cross least.
        columns[place] = after[-1] if after else None
        rows.append(_Row(graph, _line(columns), node))
        opened = [place]
        for target in after[-2::-1]:
            free = [at for at in range(place + 1, len(columns)) if columns[at] is None]
            if not free:
                columns.append(None)
            at = free[0] if free else len(columns) - 1
            columns[at] = target
            opened.append(at)
        if len(opened) > 1:
            rows.append(_Row(_branching(columns, sorted(opened), "╮", "┬")))
    return rows


def _line(columns: Sequence[str | None], own: Mapping[int, str] | None = None) -> str:
    signs = ((own or {}).get(at, "│" if target else " ") for at, target in enumerate(columns))
    return " ".join(signs).rstrip()


def _branching(columns: Sequence[str | None], joined: Sequence[int], corner: str, tee: str) -> str:
    """Draw a line that joins some columns, crossing those between them."""
    first, last = joined[0], joined[-1]
    text = ""
    for at, target in enumerate(columns):
        if at == first:
            sign = "├"
        elif at in joined:
            sign = corner if at == last else tee
        elif first < at < last:
            sign = "┼" if target else "─"
        else:
            sign = "│" if target else " "
        text += sign + ("─" if first <= at < last else " ")
    return text.rstrip()


# ---------------------------------------------------------------------------------------------------------- Mermaid

_SHAPES: Mapping[Kind, tuple[str, str]] = {
    "source": ("([", "])"),
    "operator": ("[", "]"),
    "union": ("((", "))"),
    "shuffle": ("[/", "/]"),
    "sink": ("[(", ")]"),
    "dead letters": ("{{", "}}"),
}
#: Only outlines are coloured, so that the theme's own fill and text stay readable in light and dark.
_STROKES: Mapping[Kind, str] = {
    "source": "#2a7de1",
    "operator": "#7c6fd6",
    "union": "#7c6fd6",
    "shuffle": "#c77d0a",
    "sink": "#1f9d6b",
    "dead letters": "#d9534f",
}


def plan_as_mermaid(plan: Plan) -> str:
    """Return the plan as a Mermaid flowchart, as GitHub and many editors show it. Ends with a newline."""
    nodes = describe_nodes(plan)
    names = {node_id: f"n{number}" for number, node_id in enumerate(nodes)}
    lines = ["flowchart TD"]
    stages = describe_stages(plan)
    for number, stage in enumerate(stages, 1):
        lines.append(f'  subgraph stage{number}["{_mermaid_text(f"stage {number}: {stage.title}")}"]')
        lines += [f"    {names[node_id]}{_mermaid_box(nodes[node_id])}" for node_id in nodes if node_id in stage.nodes]
        lines.append("  end")
    for node in nodes.values():
        for parent, output in node.inputs:
            label = (
                f'|"{_mermaid_text(_edge_label(nodes[parent], output))}"|' if _edge_label(nodes[parent], output) else ""
            )
            lines.append(f"  {names[parent]} -->{label} {names[node.id]}")
    if plan.dead_letters_id is not None:
        for number, stage in enumerate(stages, 1):
            if plan.dead_letters_id not in stage.nodes:
                lines.append(f'  stage{number} -. "bad records" .-> {names[plan.dead_letters_id]}')
    for kind, stroke in _STROKES.items():
        of_kind = [names[node_id] for node_id, node in nodes.items() if node.kind == kind]
        if of_kind:
            style = kind.replace(" ", "_")
            lines.append(f"  classDef {style} stroke:{stroke},stroke-width:2px")
            lines.append(f"  class {','.join(of_kind)} {style}")
    return "\n".join(lines) + "\n"


def _mermaid_box(node: NodeDescription) -> str:
    begin, end = _SHAPES[node.kind]
    texts = [f"<b>{_mermaid_text(node.id)}</b>"]
    if node.kind != "union":
        texts.append(_mermaid_text(headline(node)))
    if shown := [node.options[name] for name in node.in_pictures if name in node.options]:
        texts.append(_mermaid_text(", ".join(shown)))
    return f'{begin}"{"<br/>".join(texts)}"{end}'


def _edge_label(parent: NodeDescription, output: str) -> str:
    columns = ""
    if parent.changes_columns and parent.kind != "dead letters":  # theirs are always the same
        columns = _UNKNOWN_COLUMNS if parent.columns is None else ", ".join(parent.columns)
    return ": ".join(part for part in (output, columns) if part)


def _mermaid_text(text: str) -> str:
    """Escape for a quoted label: Mermaid reads ``#name;`` as a character and the rest as a little HTML."""
    text = "\n".join(map(_cut, text.splitlines()))
    escapes = {"#": "#35;", "&": "#amp;", "<": "#lt;", ">": "#gt;", '"': "#quot;", "`": "#96;", "\n": "<br/>"}
    # Two percent signs begin a comment or a directive, wherever they stand.
    return "".join(escapes.get(character, character) for character in text).replace("%%", "#37;#37;")
