"""The definitions of a plan's stateful operators, with what feeds each of them.

Walks a plan from its sources. Every column gets an *origin*: a text that says what the column is made of. It replaces
names that headrace or a SQL text has made up (they begin with ``__``). Filters become a set of conditions, projections
the origins of the columns that an operator reads; other verbs before it become a list of steps.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from headrace.interfaces.operator import StatefulSpec
from headrace.interfaces.state_definition import DefinedState, Kept, StateDefinition, quoted
from headrace.plan.graph import Input, Node, OperatorNode, Plan, ShuffleNode, SourceNode, UnionNode, input_schema

#: A text in single quotes, which is passed over, or a name in double quotes.
_NAMES = re.compile(r"'(?:[^']|'')*'|(?<!\.)\"((?:[^\"]|\"\")*)\"")
_MADE_UP = "__"
#: A longer origin is replaced by its digest: columns that are computed from each other again and again would grow without bound.
_ORIGIN_LENGTH_MAX = 2_000
_ONE_NAME = re.compile(r"\"(?:[^\"]|\"\")*\"|[\w.]+")


def state_definitions(plan: Plan) -> dict[str, DefinedState]:
    """Return the definition of the state of each stateful operator of a plan, by node id."""
    walk = _Walk(plan)
    return {
        node_id: walk.defined(node)
        for node_id, node in plan.of_kind(OperatorNode).items()
        if isinstance(node.spec, StatefulSpec)
    }


def origins_of_sinks(plan: Plan) -> dict[str, dict[str, Any]]:
    """Return the definition of the rows of each sink, as JSON values, by node id; not for dead letters."""
    walk = _Walk(plan)
    bad = plan.dead_letters_id
    behind = set() if bad is None else set(plan.reachable(plan.nodes[bad]))
    return {name: walk.origin(node.input).to_json() for name, node in plan.sinks.items() if name not in behind}


@dataclass(frozen=True)
class _Origin:
    """What the rows on an edge are: where they come from, and what each column is. ``columns`` None: known only row by row."""

    source: Mapping[str, Any]
    columns: Mapping[str, str] | None
    conditions: frozenset[str] = frozenset()
    steps: tuple[str, ...] = ()

    def column(self, name: str) -> str:
        return quoted(name) if self.columns is None else self.columns.get(name, quoted(name))

    def to_json(self, names: Sequence[str] | None = None) -> dict[str, Any]:
        """Return it as JSON values; of the columns only those with these names (None: all) whose origin differs from their name."""
        wanted = sorted(self.columns or ()) if names is None else sorted(set(names))
        made = {name: self.column(name) for name in wanted}
        shown = {name: text for name, text in made.items() if text != quoted(name) and not name.startswith(_MADE_UP)}
        values = {"source": dict(self.source), "filters": sorted(self.conditions), "columns": shown}
        return {**values, "steps": list(self.steps)}


@dataclass
class _Walk:
    plan: Plan
    _known: dict[tuple[int, str], _Origin] = field(default_factory=dict)

    def defined(self, node: OperatorNode) -> DefinedState:
        """Return the definition of a stateful operator."""
        spec = node.spec
        assert isinstance(spec, StatefulSpec)
        before = node.input.node
        edges = before.sides if isinstance(before, ShuffleNode) else (node.input,)
        names = before.side_names if isinstance(before, ShuffleNode) and len(edges) > 1 else ("",)
        origins = {name: self.origin(edge) for name, edge in zip(names, edges, strict=True)}
        given = spec.definition(input_schema(node.input))
        if isinstance(before, ShuffleNode):
            given = replace(given, keys=[_keys_text(origins, before.keys)] if len(edges) > 1 else given.keys)
        resolve = _resolver(origins, made_up_only=True)
        keys = given.keys if len(edges) > 1 else [_key_text(origins[""], name) for name in given.keys]
        state = replace(
            given,
            keys=tuple(keys),
            settings=_resolved(given.settings, resolve),
            columns=_by_text(given.columns, resolve),
            held={resolve(text): kept for text, kept in given.held.items()},
            adjustable=_resolved(given.adjustable, resolve),
        )
        # A column of a key counts as the key, whose origin is given there.
        inputs = [
            origin.to_json(_read_by(spec, edge, given, alone=len(edges) == 1))
            for origin, edge in zip(origins.values(), edges, strict=True)
        ]
        return DefinedState(state, inputs, spec.adapts_state)

    def origin(self, edge: Input) -> _Origin:
        """Return the definition of the rows on an edge."""
        at = (id(edge.node), edge.output)
        if at not in self._known:
            self._known[at] = self._origin_of(edge.node, edge.output, input_schema(edge))
        return self._known[at]

    def _origin_of(self, node: Node, output: str, schema: Any) -> _Origin:
        if isinstance(node, SourceNode):
            own = {name: quoted(name) for name in schema or ()}
            own |= {name: f"{what} of the record" for name, what in node.metadata.items()}
            return _Origin(_source(self.plan, node), None if schema is None else own)
        if isinstance(node, OperatorNode):
            return self._behind(node, output, schema)
        if isinstance(node, UnionNode):
            branches = sorted((self.origin(each).to_json() for each in node.merged), key=_as_text)
            return _Origin({"union": branches}, _same_names(schema))
        if isinstance(node, ShuffleNode) and len(node.sides) == 1:
            return self.origin(node.sides[0])
        sides = [self.origin(each).to_json() for each in node.inputs]
        return _Origin({"node": self.plan.id_of(node), "inputs": sides}, _same_names(schema))

    def _behind(self, node: OperatorNode, output: str, schema: Any) -> _Origin:
        before, spec = input_schema(node.input), node.spec
        derived = spec.derivation(before, output)
        if isinstance(spec, StatefulSpec):
            source = {"state": self.plan.id_of(node), **({"output": output} if output else {})}
            return _Origin(source, dict(derived.columns) if derived.columns is not None else _same_names(schema))
        origin = self.origin(node.input)
        resolve = _resolver({"": origin})
        step = () if derived.step is None else (resolve(derived.step),)
        if derived.columns is None:
            return _Origin({"step": step[0] if step else spec.name, "of": origin.to_json()}, _same_names(schema))
        columns = None if origin.columns is None else {n: _bounded(resolve(t)) for n, t in derived.columns.items()}
        conditions = origin.conditions | {_bounded(resolve(each)) for each in derived.conditions}
        return _Origin(origin.source, columns, conditions, (*origin.steps, *step))


def _source(plan: Plan, node: SourceNode) -> dict[str, Any]:
    """Return which data a source gives, without how it is fetched."""
    from headrace.interfaces.settings import Settings
    from headrace.plan.explain import changed_options

    found: dict[str, Any] = {"name": plan.id_of(node), "kind": type(node.source).__name__}
    found |= {"of": dict(node.source.identity())}
    if node.format is not None:
        found["format"] = node.format
        settings = node.codec.settings if node.codec is not None else None
        if isinstance(settings, Settings) and (options := changed_options(settings)):
            found["format options"] = options
    return found


def _read_by(spec: StatefulSpec, edge: Input, given: StateDefinition, *, alone: bool) -> list[str] | None:
    """Return the columns of a side that the operator reads, without those of its key; None: all."""
    schema = input_schema(edge)
    if not alone or schema is None:
        return None
    columns = spec.required_columns((), schema)
    return [name for name in (schema if columns is None else columns) if name not in given.keys]


def _keys_text(origins: Mapping[str, _Origin], keys: Sequence[Sequence[str]]) -> str:
    pairs = zip(*keys, strict=True)
    sides = list(origins.values())
    return ", ".join(" = ".join(side.column(name) for side, name in zip(sides, pair, strict=True)) for pair in pairs)


def _key_text(origin: _Origin, name: str) -> str:
    text = origin.column(name)
    return text if name.startswith(_MADE_UP) or text == quoted(name) else f"{quoted(name)} = {text}"


def _by_text(columns: Mapping[str, Kept], resolve: Callable[[str], str]) -> dict[str, Kept]:
    """Return columns of a state by their origins; a generated column may be a copy of another."""
    found: dict[str, Kept] = {}
    for name in sorted(columns, key=lambda name: (name.startswith(_MADE_UP), list(columns).index(name))):
        text = _column_text(name, resolve)
        copies = sum(other == text or other.startswith(f"{text} copy ") for other in found)
        found[text + (f" copy {copies}" if copies else "")] = columns[name]
    return found


def _column_text(name: str, resolve: Callable[[str], str]) -> str:
    side, dot, rest = name.partition(".")
    if dot and side in ("left", "right"):
        return f"{side} {resolve(quoted(rest))}"
    return resolve(quoted(name))


def _resolver(origins: Mapping[str, _Origin], *, made_up_only: bool = False) -> Callable[[str], str]:
    """Return what puts origins in the places of names in a text. Where there are several sides names are left as they are."""
    origin = next(iter(origins.values())) if len(origins) == 1 else None

    def in_place(found: re.Match[str]) -> str:
        if found[1] is None or origin is None:
            return found[0]
        name = found[1].replace('""', '"')
        if made_up_only and not name.startswith(_MADE_UP):
            return found[0]
        text = origin.column(name)
        return text if _ONE_NAME.fullmatch(text) or found[0] == found.string else f"({text})"

    return lambda text: _NAMES.sub(in_place, text)


def _resolved(value: Any, resolve: Callable[[str], str]) -> Any:
    if isinstance(value, str):
        return resolve(value)
    if isinstance(value, Mapping):
        return {name: _resolved(each, resolve) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [_resolved(each, resolve) for each in value]
    return value


def _bounded(text: str) -> str:
    if len(text) <= _ORIGIN_LENGTH_MAX:
        return text
    return f"{text[:200]}… #{hashlib.sha256(text.encode()).hexdigest()[:16]}"


def _same_names(schema: Any) -> dict[str, str] | None:
    return None if schema is None else {name: quoted(name) for name in schema}


def _as_text(value: Any) -> str:
    return json.dumps(value, sort_keys=True, default=str)
