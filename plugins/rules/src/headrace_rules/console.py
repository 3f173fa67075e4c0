"""Runs the commands ``headrace rules check``, ``explain`` and ``profile``."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import typer
from headrace.codecs.json import JsonCodec
from headrace.flow.messages import Bodies
from headrace.flow.schema import Schema
from headrace.foundation.errors import JobError, OptionError, did_you_mean
from headrace.plan.graph import OperatorNode, input_schema
from headrace_columnar.expressions import compile_expression, conjuncts, evaluate
from headrace_console.job_files import load_job
from headrace_console.reporting import say

from headrace_rules.atoms import Atom
from headrace_rules.engine import EngineOptions, RuleEngine
from headrace_rules.loading import check_rules, load
from headrace_rules.model import Rejection, Rule, RulesError, RuleSet
from headrace_rules.prepared import Preparer
from headrace_rules.raw_scan import saved
from headrace_rules.verb import Rules, columns_of

_SAMPLE_MESSAGES = 1000
#: Copies of the message on which a rule is evaluated to measure its cost.
_REPEAT = 2_000
#: Rules that are named for which the scan before parsing decodes most messages.
_KEEPERS = 5


@dataclass(frozen=True)
class Subject:
    """Rules, the columns that they read from, and the user functions that they may call."""

    rules: RuleSet
    schema: Schema
    functions: Mapping[str, Any]


def check(rules: str, *, job: str | None, columns: str | None, on: Path | None) -> None:
    """Check rules and print how many they are. Raises RulesError, which names all wrong rules, if any rule is wrong."""
    loaded = load(rules)
    functions: Mapping[str, Any] = {}
    schema = _schema(columns, on)
    if job is not None:
        subject = _of_job(job)
        schema, functions = schema or subject.schema, subject.functions
    if schema is None:
        wrong = [problem for rule in loaded.rules if (problem := _syntax_problem(rule)) is not None]
        note = "syntax only: pass --columns, --job or --on to check columns and types"
    else:
        _, wrong = check_rules(loaded.rules, Preparer(schema, functions))
        note = f"for the columns {', '.join(schema)}"
    rejections = [*loaded.rejections, *wrong]
    if rejections:
        raise RulesError(rejections, total=loaded.total)
    typer.echo(f"{len(loaded.rules)} rules are right ({note})")


def explain(rule_id: str, *, on: Path, rules: str | None, job: str | None, columns: str | None) -> None:
    """Print why a rule matches a message or not."""
    subject = _subject(rules, job, columns, on)
    rule = subject.rules.by_id.get(rule_id)
    if rule is None:
        hint = did_you_mean(rule_id, subject.rules.by_id, known="rules")
        raise OptionError(f"there is no rule {rule_id!r}", option="ID", hint=hint)
    frame, bad = _messages(on, subject.schema)
    if bad or not frame.height:
        raise JobError(f"{on}: the message cannot be decoded: {bad[0] if bad else 'the file is empty'}")
    if frame.height > 1:
        say(f"{on} has {frame.height:,} messages: only the first is explained", style="yellow")
    frame = frame.head(1)
    preparer = Preparer(subject.schema, subject.functions)
    _, wrong = check_rules([rule], preparer)
    if wrong:
        raise RulesError(wrong, total=1)
    engine = RuleEngine([rule.expression], subject.schema, subject.functions, EngineOptions(cache=False), preparer)
    engine.use_triggers()
    matches = engine.evaluate(frame)
    typer.echo(
        f"rule {rule.id}  severity {rule.severity}" + (f"  labels {', '.join(rule.labels)}" if rule.labels else "")
    )
    for text in conjuncts(rule.expression):
        typer.echo(f"  {_verdict_of(text, frame, subject):<6} {' '.join(text.split())}")
    if len(matches.failures):
        typer.echo(f"  the rule fails for this message: {matches.failures[0][2]}")
    else:
        typer.echo(f"  {'matches' if len(matches.pairs) else 'does not match'}")
    _echo_trigger(engine, frame)
    _echo_cost(engine, frame)


def profile(*, on: Path, rules: str | None, job: str | None, columns: str | None, top: int) -> None:
    """Print what rules cost on messages, the costliest first."""
    subject = _subject(rules, job, columns, on)
    preparer = Preparer(subject.schema, subject.functions)
    good, wrong = check_rules(subject.rules, preparer)
    if not good:
        raise RulesError(wrong, total=len(subject.rules))
    for rejection in wrong:
        say(f"a rule is left out: {rejection}", style="yellow")
    texts = [rule.expression for rule in good]
    engine = RuleEngine(texts, subject.schema, subject.functions, EngineOptions(background=False), preparer)
    # As a job does, it decodes what the rules read: a bad value elsewhere is no matter of theirs.
    read = columns_of(RuleSet(good), preparer) or frozenset(subject.schema)
    frame, bad = _messages(on, Schema({name: kind for name, kind in subject.schema.items() if name in read}))
    if not frame.height:
        raise JobError(f"{on}: no message could be decoded", hint=str(bad[0]) if bad else "the file is empty")
    engine.evaluate(frame)  # chooses triggers
    figures = engine.figures
    figures.candidates[:] = figures.matches[:] = 0
    begun = time.thread_time()
    engine.evaluate(frame)
    seconds = max(time.thread_time() - begun, 1e-9)
    plan = engine.plan
    assert plan is not None
    typer.echo(f"{len(texts)} rules on {frame.height:,} messages ({len(bad):,} could not be decoded): "
               f"{seconds / frame.height * 1e6:.2f} us per message, {frame.height / seconds:,.0f} messages/s")  # fmt: skip
    without = len(plan.everywhere)
    if without:
        what = (
            "1 rule has no usable trigger and is" if without == 1 else f"{without} rules have no usable trigger and are"
        )
        typer.echo(f"{what} evaluated for every message")
    _echo_saved(engine, _lines(on), [rule.id for rule in good])
    costs = _costs(engine, frame)
    order = np.lexsort((-figures.candidates, -costs))[:top]
    typer.echo(f"\n{'ns/message':>11} {'met':>9} {'matches':>9}  rule [trigger]")
    for number in order.tolist():
        met = "every row" if plan.atoms[number] is None else f"{int(figures.candidates[number]):,}"
        rule = good[number]
        typer.echo(
            f"{costs[number] / frame.height * 1e9:>11.1f} {met:>9} {int(figures.matches[number]):>9,}  {rule.id}"
            f"  [{_shown(plan.atoms[number])}]"
        )


# ---------------------------------------------------------------------------------------------------- private


def _costs(engine: RuleEngine, frame: pl.DataFrame) -> Any:
    """Return the CPU seconds for verifying each rule. The scan is not included, because all rules share it."""
    plan, verifier = engine.plan, engine.verifier
    assert plan is not None
    assert verifier is not None
    count = len(engine.conditions)
    candidates = plan.candidates(frame, count)
    numbers = candidates % count
    costs = np.zeros(count)
    for number in np.flatnonzero(np.bincount(numbers, minlength=count)).tolist():
        own = candidates[numbers == number]
        costs[number] = _seconds(lambda own=own: verifier.verify(frame, own))  # type: ignore[misc]
    for number in plan.everywhere.tolist():
        alone = np.array([number])
        costs[number] = _seconds(lambda alone=alone: verifier.verify_everywhere(frame, alone))  # type: ignore[misc]
    return costs


def _echo_saved(engine: RuleEngine, lines: Sequence[bytes], ids: Sequence[str]) -> None:
    """Print the savings of the scan before parsing, and the rules for which it decodes most bodies."""
    found = saved(engine, Bodies.of(lines)) if lines else None
    if found is None:
        typer.echo("raw_scan=True would save nothing: a rule has no text or whole number to look for, or can fail")
        return
    escapes = f", {found.for_escapes:,} of them for an escape" if found.for_escapes else ""
    typer.echo(f"raw_scan=True would decode {found.kept:,} of {len(lines):,} messages{escapes}")
    most = np.argsort(-found.by_condition, kind="stable")[:_KEEPERS]
    kept = [f"{ids[each]} {int(found.by_condition[each]):,}" for each in most.tolist() if found.by_condition[each]]
    if kept:
        typer.echo(f"  most messages are decoded for: {', '.join(kept)}")


def _seconds(work: Callable[[], Any]) -> float:
    """Return the CPU seconds of the fastest of three runs: the first run may still compile expressions."""
    found = []
    for _ in range(3):
        begun = time.thread_time()
        work()
        found.append(time.thread_time() - begun)
    return min(found)


def _verdict_of(text: str, frame: pl.DataFrame, subject: Subject) -> str:
    compiled = compile_expression(text, subject.schema, subject.functions)
    values, failures = evaluate(compiled, frame)
    if failures:
        return "fails"
    return {True: "true", False: "false", None: "NULL"}[values[0]]


def _echo_trigger(engine: RuleEngine, frame: pl.DataFrame) -> None:
    plan = engine.plan
    assert plan is not None
    atoms = plan.atoms[0]
    if atoms is None:
        typer.echo("  trigger: none, the rule is evaluated for every message")
        return
    met = len(plan.candidates(frame, 1)) > 0
    typer.echo(f"  trigger: {_shown(atoms)} ({'met' if met else 'not met: the rule is not evaluated'})")


def _echo_cost(engine: RuleEngine, frame: pl.DataFrame) -> None:
    many = pl.concat([frame] * _REPEAT)
    each = _seconds(lambda: engine.evaluate(many)) / _REPEAT
    typer.echo(f"  cost: {each * 1e6:.2f} us for a message like this, alone, in batches of {_REPEAT:,}")


def _shown(atoms: frozenset[Atom] | None) -> str:
    if atoms is None:
        return "no trigger"
    texts = sorted(map(str, atoms))
    return " or ".join(texts[:4]) + (f" or {len(texts) - 4} more" if len(texts) > 4 else "")


def _syntax_problem(rule: Rule) -> Rejection | None:
    try:
        conjuncts(rule.expression)
    except JobError as error:
        return Rejection(rule.id, str(error), rule.place)
    return None


def _subject(rules: str | None, job: str | None, columns: str | None, on: Path) -> Subject:
    found = None if job is None else _of_job(job)
    if rules is not None:
        loaded = load(rules)
        for rejection in loaded.rejections:
            say(f"a rule is left out: {rejection}", style="yellow")
        own = RuleSet(loaded.rules)
    elif found is not None:
        own = found.rules
    else:
        raise OptionError("no rules are given", option="rules", hint="pass --rules FILE or --job FILE")
    schema = _schema(columns, on if found is None else None) or (found.schema if found is not None else None)
    assert schema is not None
    return Subject(own, schema, found.functions if found is not None else {})


def _of_job(target: str) -> Subject:
    """Return the rules of a job's first ``rules`` verb, and its columns."""
    nodes = load_job(target).plan().of_kind(OperatorNode).values()
    for node in nodes:
        schema = input_schema(node.input)
        if isinstance(node.spec, Rules) and schema is not None:
            return Subject(node.spec.rules, schema, node.spec.functions)
    raise JobError(f"{target}: the job has no rules over known columns", option="job")


def _schema(columns: str | None, on: Path | None) -> Schema | None:
    if columns is not None:
        pairs = [part.partition(":") for part in _split(columns)]
        return Schema.of({name.strip(): kind.strip() for name, _, kind in pairs})
    if on is None:
        return None
    return Schema(_types(on))


def _split(text: str) -> list[str]:
    """Split at commas outside of brackets."""
    parts, depth = [""], 0
    for character in text:
        depth += (character in "<(") - (character in ">)")
        if character == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += character
    return [part for part in parts if part.strip()]


def _lines(on: Path) -> list[bytes]:
    try:
        content = on.read_bytes()
    except OSError as error:
        raise OptionError(f"cannot read {on}: {error.strerror}", option="on") from error
    try:
        json.loads(content)
    except ValueError:
        return [line for line in content.split(b"\n") if line.strip()]
    return [content]  # one message, perhaps over several lines


def _types(on: Path) -> dict[str, pl.DataType]:
    """Return the columns of the first 1,000 messages, with types that are found from their values."""
    kinds: dict[str, pl.DataType] = {}
    for line in _lines(on)[:_SAMPLE_MESSAGES]:
        try:
            message = json.loads(line)
        except ValueError:
            continue  # counted among those that could not be decoded
        if isinstance(message, dict):
            for name, value in message.items():
                if value is not None and (name not in kinds or (kinds[name] == pl.Int64 and isinstance(value, float))):
                    kinds[name] = pl.Series([value]).dtype
                elif value is None:
                    kinds.setdefault(name, pl.Null())
    if not kinds:
        raise OptionError(f"{on} holds no JSON object", option="on")
    return {name: pl.String() if kind == pl.Null else kind for name, kind in kinds.items()}


def _messages(on: Path, schema: Schema) -> tuple[pl.DataFrame, list[str]]:
    decoded = JsonCodec().decoder(schema).decode(Bodies.of(_lines(on)))
    return decoded.frame, [one.reason for one in decoded.bad]
