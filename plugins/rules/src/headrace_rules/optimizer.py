"""Optimizes a plan before it runs: verbs over the same rows share one engine, and get the directory of rule versions."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from headrace.codecs.json import JsonCodec
from headrace.foundation.clock import SystemClock
from headrace.foundation.errors import HeadraceError
from headrace.jobs.dsl import FunctionCatalog
from headrace.plan.graph import Node, OperatorNode, Plan, SourceNode, input_schema, rebuilt
from headrace.plan.same_origins import same_origins
from headrace_columnar.verbs.selection import Where

from headrace_rules.atoms import TextAtom, all_atoms
from headrace_rules.engine import EngineOptions
from headrace_rules.group import Member, RuleGroup
from headrace_rules.journal import temporary_place
from headrace_rules.plugin import PATTERNS_MIN
from headrace_rules.raw_scan import RawScan
from headrace_rules.relied_upon import Reliances, ReliesOnRules
from headrace_rules.verb import EngineWhere, Rules
from headrace_rules.versions import now_text


def optimized(plan: Plan) -> Plan | None:
    """Return the plan with groups of verbs; None if nothing changes. The job gives the same results with both plans."""
    has_rules = any(isinstance(node.spec, Rules) for node in plan.of_kind(OperatorNode).values())
    doubled = same_origins(plan) if has_rules else {}  # a job with rules reads such sources only once
    plan = rebuilt(plan, doubled) if doubled else plan
    changes: dict[Node, Node] = {}
    groups: list[tuple[RuleGroup, list[OperatorNode]]] = []
    place = _journal_place(plan)
    for nodes in _siblings(plan):
        rules = [node for node in nodes if isinstance(node.spec, Rules)]
        wheres = [node for node in nodes if isinstance(node.spec, Where)]
        patterns = {id(node): _patterns(node) for node in wheres}
        wheres = [node for node in wheres if patterns[id(node)]]
        if not rules and sum(patterns[id(node)] for node in wheres) < PATTERNS_MIN:
            continue
        for members in _alike([*rules, *wheres]):
            groups.append((_grouped(plan, members, place, changes), members))
    if not changes:
        return plan if doubled else None
    for source in plan.sources.values():
        scan = _raw_scan(plan, source, groups)
        if scan is not None:
            changes[source] = replace(source, body_filter=scan)
    return rebuilt(plan, changes)


def _siblings(plan: Plan) -> list[list[OperatorNode]]:
    """Return the ``rules`` and ``where`` verbs, one list per input stream. Verbs of unknown columns are left out."""
    found: dict[tuple[int, str], list[OperatorNode]] = {}
    for node in plan.of_kind(OperatorNode).values():
        if isinstance(node.spec, Rules | Where) and input_schema(node.input) is not None:
            found.setdefault((id(node.input.node), node.input.output), []).append(node)
    return list(found.values())


def _patterns(node: OperatorNode) -> int:
    """Return how many texts a ``where`` searches for; 0 if a scan cannot help it."""
    from headrace_columnar import dialect  # imports sqlglot, which takes a while

    from headrace_rules.triggers import need_of

    assert isinstance(node.spec, Where)
    schema = input_schema(node.input)
    assert schema is not None
    if not isinstance(node.spec.predicate, str):
        return 0
    try:
        functions = node.spec.functions
        need = need_of(dialect.parse(node.spec.predicate), schema, {} if functions is None else functions)
    except HeadraceError:
        return 0
    return 0 if need is None else sum(isinstance(atom, TextAtom) for atom in all_atoms(need))


def _alike(nodes: Sequence[OperatorNode]) -> list[list[OperatorNode]]:
    """Return the nodes in lists. The nodes of one list have the same functions and options and can share an engine."""
    found: dict[tuple[Any, EngineOptions], list[OperatorNode]] = {}
    with_options = [node.spec.options for node in nodes if isinstance(node.spec, Rules)]
    for node in nodes:
        assert isinstance(node.spec, Rules | Where)
        given = node.spec.functions
        own = given.own if isinstance(given, FunctionCatalog) else given or {}
        functions = frozenset((name, id(function)) for name, function in own.items())
        options = node.spec.options if isinstance(node.spec, Rules) else next(iter(with_options), EngineOptions())
        found.setdefault((functions, options), []).append(node)
    return list(found.values())


def _grouped(plan: Plan, nodes: Sequence[OperatorNode], place: str, changes: dict[Node, Node]) -> RuleGroup:
    """Make one group of the nodes, and add the nodes that replace them to ``changes``."""
    members = []
    since = now_text(SystemClock())
    for node in nodes:
        node_id = plan.id_of(node)
        if isinstance(node.spec, Rules):
            spec = node.spec
            watched = spec.given if spec.reload_interval is not None else None
            journal = str(Path(place) / node_id)
            reliances = _reliances(plan, node)
            members.append(
                Member(node_id, spec.rules, journal, watched, spec.reload_interval, since, spec.sigma, reliances)
            )
        else:
            assert isinstance(node.spec, Where)
            members.append(Member.of_condition(node_id, str(node.spec.predicate)))
    first = next((node.spec for node in nodes if isinstance(node.spec, Rules)), None)
    functions = nodes[0].spec.functions  # type: ignore[attr-defined]
    options = EngineOptions() if first is None else first.options
    like = None if first is None else first.group
    group = RuleGroup(members, functions if functions is not None else {}, options, like)
    for number, node in enumerate(nodes):
        if isinstance(node.spec, Rules):
            made: Rules | EngineWhere = copy.copy(node.spec)
            made.group, made.place = group, number
        else:
            made = EngineWhere(node.spec, group, number)
        changes[node] = replace(node, spec=made)
    return group


def _reliances(plan: Plan, node: OperatorNode) -> Reliances:
    """Return the rules and columns on which the verbs behind a node rely."""
    behind: dict[int, Node] = {}
    found: list[Node] = [node]
    while found:
        for _, consumer, _ in plan.consumers(found.pop()):
            if id(consumer) not in behind:
                behind[id(consumer)] = consumer
                found.append(consumer)
    specs = [each.spec for each in behind.values() if isinstance(each, OperatorNode)]
    return Reliances(tuple(spec.reliance() for spec in specs if isinstance(spec, ReliesOnRules)))


def _raw_scan(plan: Plan, source: SourceNode, groups: Sequence[tuple[RuleGroup, list[OperatorNode]]]) -> RawScan | None:
    """Return the scan before parsing for a source, if its records go only to ``rules`` verbs that allow it; else None."""
    consumers = [node for _, node, _ in plan.consumers(source)]
    specs = [node.spec for node in consumers if isinstance(node, OperatorNode)]
    if not specs or len(specs) < len(consumers) or not all(isinstance(s, Rules) and s.raw_scan for s in specs):
        return None
    # Event time and state need all records, also those that the scan would leave out.
    stateless = all(type(node).__name__ != "ShuffleNode" for node in plan.nodes.values())
    own = [group for group, nodes in groups if any(node in consumers for node in nodes)]
    schema = source.schema
    if source.format != "json" or len(own) != 1 or not stateless or schema is None or source.body_schema is None:
        return None
    read: set[str] = set()
    for spec in specs:
        read |= set(spec.required_columns((), schema) or ())
    if read - set(source.body_schema) or read & _raw_json_columns(source):
        return None  # the bytes do not show a column that is not in the body, or not a JSON string there
    return RawScan(own[0], schema)


def _raw_json_columns(source: SourceNode) -> set[str]:
    assert source.body_schema is not None
    of_options = source.codec.settings.json_columns if isinstance(source.codec, JsonCodec) else ()
    return {*source.body_schema.json_columns, *of_options}


def _journal_place(plan: Plan) -> str:
    """Return the directory of rule versions: below a local checkpoint, else a temporary directory of this run only."""
    if plan.checkpoint is not None and "://" not in plan.checkpoint:
        return str(Path(plan.checkpoint).absolute() / "rules")
    return temporary_place()
