"""The plan of a job: a small immutable graph of nodes, made by the DSL, run by a backend."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, TypeVar

from headrace.foundation.errors import JobError, PlanError, did_you_mean
from headrace.interfaces.meter import NO_METER, Meter
from headrace.interfaces.operator import Changes, StatefulSpec

if TYPE_CHECKING:
    from headrace.flow.schema import Schema
    from headrace.interfaces.codec import BodyFilter, Codec
    from headrace.interfaces.operator import OperatorSpec
    from headrace.interfaces.sink import Sink
    from headrace.interfaces.source import Source
    from headrace.interfaces.state_definition import DefinedState

N = TypeVar("N", bound="Node")

#: What a ``metadata`` option can ask for, per record.
METADATA_FIELDS = ("queue", "source", "offset", "time", "key", "headers")


@dataclass(frozen=True, eq=False)
class Node:
    """A node of the plan. Compared by identity; ``label`` is the user's or plug-in's name for it."""

    label: str = field(kw_only=True)
    #: The columns after the node, by output; None: known only row by row.
    schema: Schema | None = field(kw_only=True, default=None)

    @property
    def inputs(self) -> Sequence[Input]:
        return ()


@dataclass(frozen=True)
class Input:
    """An edge: which output of which node."""

    node: Node
    output: str = ""


@dataclass(frozen=True, eq=False)
class SourceNode(Node):
    """A source and how its bodies are decoded. ``metadata`` maps column names to header fields."""

    source: Source
    codec: Codec | None = None
    format: str | None = None
    #: The columns that the codec decodes (``schema`` has these and the metadata columns).
    body_schema: Schema | None = None
    metadata: Mapping[str, str] = field(default_factory=dict)
    #: Whether its rows change earlier ones, and by which key.
    changes: Changes | None = None
    #: Leaves out bodies that nothing after the source wants.
    body_filter: BodyFilter | None = None


@dataclass(frozen=True, eq=False)
class DeadLettersNode(Node):
    """Stands where the job's dead letters begin their way."""


@dataclass(frozen=True, eq=False)
class OperatorNode(Node):
    """One operator with one input."""

    spec: OperatorSpec
    input: Input

    @property
    def inputs(self) -> Sequence[Input]:
        return (self.input,)


@dataclass(frozen=True, eq=False)
class UnionNode(Node):
    """Several inputs with the same columns as one stream."""

    merged: tuple[Input, ...]

    @property
    def inputs(self) -> Sequence[Input]:
        return self.merged


@dataclass(frozen=True, eq=False)
class ShuffleNode(Node):
    """Sends rows to shards by the hash of key columns. The verbs behind it form the next stage.

    Several sides (a join) are brought together: rows with equal keys meet in one shard. A batch that comes out of a
    shuffle of several sides says in ``Batch.output`` from which it is. No key columns: everything goes to one shard.
    """

    sides: tuple[Input, ...]
    #: Per side its key columns; all sides have as many.
    keys: tuple[tuple[str, ...], ...]
    #: What the sides are called; one side has no name.
    side_names: tuple[str, ...] = ("",)

    @property
    def inputs(self) -> Sequence[Input]:
        return self.sides


#: The longest way from a source to a sink, in nodes. A plan is copied to other processes by functions that recurse.
CHAIN_LENGTH_MAX = 200


@dataclass(frozen=True, eq=False)
class SinkNode(Node):
    """A sink and its input."""

    sink: Sink
    input: Input

    @property
    def inputs(self) -> Sequence[Input]:
        return (self.input,)


class Plan:
    """All nodes of a job in topological order, each with an id that is the same whenever the same job is built.

    Ids are the labels, numbered where several nodes have the same one: ``file``, ``where``, ``where-2``, ``to_file``.
    """

    def __init__(
        self, namespace: str, pipeline: str, sinks: Sequence[SinkNode], *, made_of: Collection[str] = ()
    ) -> None:
        """``made_of``: names of jobs whose sinks this job takes over."""
        if not sinks:
            raise PlanError("the job has no sink", job=f"{namespace}.{pipeline}", hint="end it with to_<name>(...)")
        self.namespace = namespace
        self.pipeline = pipeline
        #: What the processes of the job count with.
        self.meter: Meter = NO_METER
        #: The directory where the job keeps its progress, for optimizers whose operators keep something beside it.
        self.checkpoint: str | None = None
        #: Whether a job uses its stored state although the verbs before an operator with state have changed.
        self.allow_changed_input = False
        self._definitions: Mapping[str, DefinedState] | None = None
        self._outputs: Mapping[str, Mapping[str, Any]] | None = None
        self.nodes: dict[str, Node] = {}
        self._ids: dict[int, str] = {}
        self._kinds: dict[type[Node], dict[str, Node]] = {}
        counts: dict[str, int] = {}
        for node in _topological(sinks):
            counts[node.label] = counts.get(node.label, 0) + 1
            node_id = node.label if counts[node.label] == 1 else f"{node.label}-{counts[node.label]}"
            self.nodes[node_id] = node
            self._ids[id(node)] = node_id
        changes = self._checked_changes(made_of)
        self._bind_sources()
        self._bind_sinks(changes)

    def __getstate__(self) -> dict[str, Any]:
        """Return the plan with its edges as ids: pickle recurses along objects, and a chain of nodes may be long."""
        nodes = [(node_id, type(node), _with_ids(node, self._ids)) for node_id, node in self.nodes.items()]
        return {**self.__dict__, "_ids": None, "_kinds": {}, "nodes": nodes}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self.nodes = {}
        for node_id, kind, fields in state["nodes"]:
            node = self.nodes[node_id] = object.__new__(kind)
            node.__dict__.update(_with_nodes(fields, self.nodes))
        self._ids = {id(node): node_id for node_id, node in self.nodes.items()}

    @property
    def job_name(self) -> str:
        return f"{self.namespace}.{self.pipeline}"

    def id_of(self, node: Node) -> str:
        """Return the node's id in this plan."""
        return self._ids[id(node)]

    def of_kind(self, kind: type[N]) -> dict[str, N]:
        """Return the nodes of a kind by id, in topological order."""
        # Engines ask several times in each round.
        found = self._kinds.get(kind)
        if found is None:
            found = self._kinds[kind] = {
                node_id: node for node_id, node in self.nodes.items() if isinstance(node, kind)
            }
        return dict(found)  # type: ignore[arg-type]

    def with_rules(self, node_id: str | None = None) -> tuple[OperatorSpec, Schema]:
        """Return the operator that ``handle.update_rules`` means, and the columns of its input. Raises PlanError."""
        found = {name: node for name, node in self.of_kind(OperatorNode).items() if node.spec.replaces_rules}
        if not found:
            raise PlanError("the job has no verb rules()", job=self.job_name)
        if node_id is None and len(found) > 1:
            raise PlanError(f"the job has several rules: {', '.join(found)}", job=self.job_name, hint="pass node='…'")
        chosen = found.get(node_id if node_id is not None else next(iter(found)))
        if chosen is None:
            hint = did_you_mean(node_id or "", found, known="rules")
            raise PlanError(f"{node_id!r} is not a verb rules()", job=self.job_name, hint=hint)
        schema = input_schema(chosen.input)
        if schema is None:
            raise PlanError(
                f"{self.id_of(chosen)}: rules over rows of unknown columns cannot be replaced",
                job=self.job_name,
                hint="give map(…) a schema",
            )
        return chosen.spec, schema

    @property
    def sources(self) -> dict[str, SourceNode]:
        return self.of_kind(SourceNode)

    @property
    def shuffles(self) -> dict[str, ShuffleNode]:
        return self.of_kind(ShuffleNode)

    @property
    def sinks(self) -> dict[str, SinkNode]:
        return self.of_kind(SinkNode)

    @property
    def dead_letters_id(self) -> str | None:
        """Id of the node where dead letters begin, or None when they stop the job."""
        return next(iter(self.of_kind(DeadLettersNode)), None)

    def consumers(self, node: Node) -> Iterator[tuple[str, Node, Input]]:
        """Yield (id, node, edge) of the nodes that take any output of ``node``."""
        for node_id, other in self.nodes.items():
            for edge in other.inputs:
                if edge.node is node:
                    yield node_id, other, edge

    def reachable(self, root: Node) -> dict[str, Node]:
        """Return the nodes that data from ``root`` can reach, ``root`` first, in topological order."""
        reached = {id(root)}
        found = {self.id_of(root): root}
        for node_id, node in self.nodes.items():
            if any(id(edge.node) in reached for edge in node.inputs):
                reached.add(id(node))
                found[node_id] = node
        return found

    def stage(self, root: Node) -> dict[str, Node]:
        """Return the nodes that data from ``root`` reaches before or at the next shuffles, in topological order."""
        reached = {id(root)}
        found = {self.id_of(root): root}
        for node_id, node in self.nodes.items():
            if any(
                id(edge.node) in reached and (edge.node is root or not isinstance(edge.node, ShuffleNode))
                for edge in node.inputs
            ):
                reached.add(id(node))
                found[node_id] = node
        return found

    def changes_at(self, edge: Input) -> Changes | None:
        """Return whether the rows on an edge change earlier results. Raises PlanError where a change cannot be taken."""
        try:
            return changes_at(edge, self.id_of)
        except JobError as error:
            error.job = error.job or self.job_name
            raise

    def decode_columns(self) -> dict[str, list[str]]:
        """Return, per source id, the columns that anything after it needs, in the order of its schema."""
        wanted: dict[int, set[str] | None] = {}  # node -> output columns that consumers need; None: all

        def want(node: Node, columns: Iterable[str] | None) -> None:
            before = wanted.get(id(node), set())
            wanted[id(node)] = None if columns is None or before is None else {*before, *columns}

        for node in reversed(self.nodes.values()):
            after = wanted.get(id(node), set())
            if isinstance(node, SinkNode):
                want(node.input.node, None if node.schema is None else list(node.schema))
            elif isinstance(node, UnionNode):
                for edge in node.merged:
                    want(edge.node, after)
            elif isinstance(node, ShuffleNode):
                for edge, keys in zip(node.sides, node.keys, strict=True):
                    want(edge.node, None if after is None or len(node.sides) > 1 else {*after, *keys})
            elif isinstance(node, OperatorNode):
                before = _schema_of(node.input)
                want(node.input.node, None if before is None else node.spec.required_columns(after, before))
        columns = {}
        for source_id, source in self.sources.items():
            needed = wanted.get(id(source), set())
            columns[source_id] = [name for name in source.schema or () if needed is None or name in needed]
        return columns

    def _header_fields_wanted_behind(self, source: SourceNode) -> frozenset[str]:
        specs = (node.spec for node in self.reachable(source).values() if isinstance(node, OperatorNode))
        return frozenset().union(*(spec.header_fields for spec in specs))

    @property
    def state_definitions(self) -> Mapping[str, DefinedState]:
        """The definition of the state of each stateful operator, by node id: of the job as it was written, not as it was optimized.

        Made when it is asked for first; ``rebuilt`` passes it on.
        """
        if self._definitions is None:
            from headrace.plan.state_inputs import state_definitions

            self._definitions = state_definitions(self)
        return self._definitions

    @property
    def output_definitions(self) -> Mapping[str, Mapping[str, Any]]:
        """What makes the rows of each sink, by node id, as JSON values: of the job as it was written."""
        if self._outputs is None:
            from headrace.plan.outputs import output_definitions

            self._outputs = output_definitions(self)
        return self._outputs

    @property
    def output_digests(self) -> Mapping[str, str]:
        """The digests of ``output_definitions``."""
        from headrace.interfaces.output_definition import digest_of

        return {name: digest_of(definition) for name, definition in self.output_definitions.items()}

    def fingerprint(self) -> str:
        """Return a short text that changes when the shape of the job changes: kept in checkpoints to tell of it."""
        lines = []
        for node_id, node in self.nodes.items():
            inputs = ",".join(f"{self.id_of(edge.node)}.{edge.output}" for edge in node.inputs)
            lines.append(f"{node_id}<{inputs}")
        return hashlib.sha256("\n".join(lines).encode()).hexdigest()[:16]

    def _checked_changes(self, made_of: Collection[str]) -> Mapping[str, Changes | None]:
        """Return what changes each sink is given. Raises PlanError when the plan does not fit together."""
        if len(self.of_kind(DeadLettersNode)) > 1:
            raise PlanError("dead letters are routed twice", job=self.job_name, hint="use dead_letters() once in a job")
        if not self.sources:
            raise PlanError("the job has no source", job=self.job_name)
        seen: dict[int, str] = {}
        for node_id, node in self.nodes.items():
            part: Any = (
                node.sink if isinstance(node, SinkNode) else node.source if isinstance(node, SourceNode) else None
            )
            if part is not None and id(part) in seen:
                raise PlanError(
                    f"{seen[id(part)]!r} and {node_id!r} are the same {type(part).__name__} object",
                    job=self.job_name,
                    hint="make one object for each place in the job",
                )
            seen[id(part)] = node_id
        self._check_sinks_are_own(made_of)
        changes = {sink_id: self.changes_at(node.input) for sink_id, node in self.sinks.items()}
        self._check_changes(changes)
        return changes

    def _check_sinks_are_own(self, made_of: Collection[str]) -> None:
        """Raise PlanError if a sink object belongs to another job: its positions and its knowledge of changes are that job's."""
        for sink_id, node in self.sinks.items():
            if node.sink.writer_job not in ("", self.job_name, *made_of):
                raise PlanError(
                    f"{sink_id!r} is a {type(node.sink).__name__} object that writes for the job {node.sink.writer_job!r} already",
                    job=self.job_name,
                    plugin=sink_id,
                    hint="make a sink object for each job",
                )

    def _bind_sources(self) -> None:
        """Set the name under which each source is read, and the header fields that are wanted."""
        readers: Counter[tuple[str, str]] = Counter()
        for source_id, node in self.sources.items():
            source = node.source
            data = (type(source).__name__, json.dumps(source.identity(), sort_keys=True, default=repr))
            readers[data] += 1
            source.node_name = source_id
            source.reader_name = self.job_name if readers[data] == 1 else f"{self.job_name}-{readers[data]}"
            # Kept when the job is planned again, or another one reads the same stream: an open reader may need them.
            source.header_fields |= self._header_fields_wanted_behind(node)

    def _bind_sinks(self, changes: Mapping[str, Changes | None]) -> None:
        """Set the job for which each sink writes. Called after all checks: a job that is refused leaves its sinks unchanged."""
        for sink_id, node in self.sinks.items():
            node.sink.writer_job = self.job_name
            node.sink.writer_name = f"{self.job_name}.{sink_id}"
            node.sink.changes = changes[sink_id]

    def _check_changes(self, found: Mapping[str, Changes | None]) -> None:
        """Raise PlanError when a sink cannot take the changes that come."""
        for sink_id, changes in found.items():
            if changes is None:
                continue
            node = self.sinks[sink_id]
            if node.sink.accepts == "append":
                raise PlanError(
                    f"the sink {sink_id!r} can only add rows, but its input changes earlier results",
                    job=self.job_name,
                    plugin=sink_id,
                    hint="use a sink that updates by key, or a window whose results are final",
                )
            if node.sink.accepts == "upsert" and changes.key is None:
                raise PlanError(
                    f"the sink {sink_id!r} updates rows by key, but its input has no key",
                    job=self.job_name,
                    plugin=sink_id,
                    hint="keep the key columns of the aggregation or join in every select() before the sink",
                )


def _schema_of(edge: Input) -> Schema | None:
    node = edge.node
    if isinstance(node, OperatorNode) and edge.output:
        return node.spec.output_schema(_schema_of(node.input), edge.output)
    return node.schema


def input_schema(edge: Input) -> Schema | None:
    """Return the columns that an edge carries."""
    return _schema_of(edge)


def changes_at(edge: Input, name: Callable[[Node], str] | None = None) -> Changes | None:
    """Return whether the rows on an edge change earlier results, and by which key.

    Raises what an operator raises that cannot take changes; with ``name`` the error knows the operator by that name.
    """
    node = edge.node
    if isinstance(node, OperatorNode):
        before = changes_at(node.input, name)
        try:
            _check_upserts(node.spec, before)
            after = node.spec.changes(before)
        except JobError as error:
            if name is not None:
                error.plugin = error.plugin or name(node)
            raise
        if edge.output and isinstance(node.spec, StatefulSpec):
            return None  # rows as they came, such as late ones: they are only added
        columns = input_schema(edge)
        if after is not None and after.key is not None and not set(after.key) <= set(columns or ()):
            return Changes(None, after.before_images)
        return after
    if isinstance(node, SourceNode):
        return node.changes
    if isinstance(node, ShuffleNode) and len(node.sides) == 1:
        return changes_at(node.sides[0], name)
    found = [changes_at(each, name) for each in node.inputs]
    if any(each is not None and not each.before_images for each in found):
        raise _without_before_images(node.label)
    return Changes(None) if any(each is not None for each in found) else None


def _check_upserts(spec: OperatorSpec, before: Changes | None) -> None:
    if before is not None and not before.before_images and not spec.takes_upserts:
        raise _without_before_images(spec.name or type(spec).__name__)


def _without_before_images(verb: str) -> PlanError:
    return PlanError(
        f"{verb} needs the old and the new row of each change, but the source gives only the new one",
        hint="leave out normalize=False, or call normalize_changes() first: it keeps the last row of each key",
    )


@dataclass(frozen=True)
class _Edge:
    """An edge of a plan that travels: the id of the node instead of the node."""

    node_id: str
    output: str


def _with_ids(node: Node, ids: Mapping[int, str]) -> dict[str, Any]:
    """Return a node's fields with ids for the nodes before it."""
    fields = dict(node.__dict__)
    for name, value in fields.items():
        if isinstance(value, Input):
            fields[name] = _Edge(ids[id(value.node)], value.output)
        elif isinstance(value, tuple) and value and all(isinstance(each, Input) for each in value):
            fields[name] = tuple(_Edge(ids[id(each.node)], each.output) for each in value)
    return fields


def _with_nodes(fields: Mapping[str, Any], nodes: Mapping[str, Node]) -> dict[str, Any]:
    """Return what ``_with_ids`` was given, over the nodes that were made before."""
    made = dict(fields)
    for name, value in made.items():
        if isinstance(value, _Edge):
            made[name] = Input(nodes[value.node_id], value.output)
        elif isinstance(value, tuple) and value and all(isinstance(each, _Edge) for each in value):
            made[name] = tuple(Input(nodes[each.node_id], each.output) for each in value)
    return made


def _topological(sinks: Sequence[SinkNode]) -> list[Node]:
    """Return every node behind the nodes that it takes rows from. Raises PlanError for a chain of too many nodes."""
    depths: dict[int, int] = {}
    ordered: list[Node] = []
    for sink in sinks:
        # A stack of our own: a chain of verbs may be longer than Python's stack is deep.
        waiting: list[tuple[Node, Iterator[Input]]] = [(sink, iter(sink.inputs))] if id(sink) not in depths else []
        while waiting:
            node, edges = waiting[-1]
            edge = next((edge for edge in edges if id(edge.node) not in depths), None)
            if edge is not None:
                waiting.append((edge.node, iter(edge.node.inputs)))
                continue
            waiting.pop()
            if id(node) not in depths:
                depths[id(node)] = 1 + max((depths[id(each.node)] for each in node.inputs), default=0)
                ordered.append(node)
    if max(depths.values(), default=0) > CHAIN_LENGTH_MAX:
        raise PlanError(
            f"{max(depths.values())} verbs follow each other, but at most {CHAIN_LENGTH_MAX} may",
            hint="one select(), with_columns() or script() can hold many expressions, and rules() many conditions",
        )
    return ordered


def rebuilt(plan: Plan, changes: Mapping[Node, Node]) -> Plan:
    """Return the plan with some nodes replaced: for optimizers. Edges to a replaced node lead to its replacement."""
    made: dict[int, Node] = {}

    def renew(edge: Input) -> Input:
        return Input(made[id(edge.node)], edge.output)

    for node in plan.nodes.values():
        new = changes.get(node, node)
        if isinstance(new, OperatorNode | SinkNode):
            new = replace(new, input=renew(new.input))
        elif isinstance(new, UnionNode):
            new = replace(new, merged=tuple(renew(edge) for edge in new.merged))
        elif isinstance(new, ShuffleNode):
            new = replace(new, sides=tuple(renew(edge) for edge in new.sides))
        made[id(node)] = new
    sinks = [node for node in made.values() if isinstance(node, SinkNode)]
    renewed = Plan(plan.namespace, plan.pipeline, sinks)
    renewed.checkpoint, renewed.meter = plan.checkpoint, plan.meter
    renewed.allow_changed_input = plan.allow_changed_input
    renewed._definitions, renewed._outputs = plan.state_definitions, plan.output_definitions
    return renewed
