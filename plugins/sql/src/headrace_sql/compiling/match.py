"""MATCH_RECOGNIZE: its clauses read and checked; the operator is in ``operators.match_operator``."""

from __future__ import annotations

import re
from dataclasses import replace
from functools import partial

from headrace.jobs.keyed import shuffled
from sqlglot import exp

from headrace_sql.binding.context import Context
from headrace_sql.binding.intervals import interval_us
from headrace_sql.binding.scope import Column, Relation, Time, is_updating, resolve
from headrace_sql.compiling.match_reader import Reader, is_proctime, is_rowtime
from headrace_sql.compiling.pattern_groups import needs_groups, program
from headrace_sql.operators.match_automaton import PatternPart
from headrace_sql.operators.match_groups import Program
from headrace_sql.operators.match_operator import MatchRecognize

#: A name in backticks; it may contain any character.
_QUOTED = re.compile(r"`((?:[^`]|``)+)`")
_PART = re.compile(r"\s*([A-Za-z_]\w*)\s*(\*|\+|\?|\{\s*\d*\s*(?:,\s*\d*\s*)?\})?(\?)?")


def matched(context: Context, node: exp.MatchRecognize, relation: Relation) -> Relation:
    """Return the relation of a MATCH_RECOGNIZE clause. Raises ExpressionError for parts that are not supported."""
    if is_updating(relation):
        raise context.error(node, "MATCH_RECOGNIZE needs rows that are only added, and its input changes")
    rows = node.args.get("rows")
    if rows is not None and rows.name != "ONE ROW PER MATCH":
        raise context.error(node, f"{rows.name} is not supported", "ONE ROW PER MATCH")
    keys = []
    for each in node.args.get("partition_by") or ():
        keys.append(resolve(relation, each, context.text)[0])
    order = node.args.get("order")
    terms = order.expressions if order is not None else []
    if not terms or not isinstance(terms[0].this, exp.Column) or terms[0].args.get("desc"):
        raise context.error(node, "MATCH_RECOGNIZE must be ordered by a time attribute, ascending", "ORDER BY ts")
    time, _ = resolve(relation, terms[0].this, context.text)
    if time.time is None:
        raise context.error(
            terms[0], f"{time.name!r} is not a time attribute", f"declare WATERMARK FOR {time.name} in its table"
        )
    on = time.physical if time.time == "event" else None
    if on is None and len(terms) > 1:
        raise context.error(
            terms[1], "in processing time, rows are ordered by their arrival", "ORDER BY only the processing time"
        )
    further = [resolve(relation, term.this, context.text)[0].physical for term in terms[1:]]
    pattern, groups = _pattern(context, node.args["pattern"])
    names = [part.variable for part in pattern]
    reader = Reader(context, relation, names, on)
    definitions = {}
    for each in node.args.get("define") or ():
        if each.alias not in names:
            raise context.error(each.this, f"{each.alias!r} is not in the pattern", f"variables: {', '.join(names)}")
        definitions[each.alias] = reader.read(each.this, each.alias)
    measures, types = {}, {}
    for each in node.args["measures"]:
        if is_proctime(each.this):
            continue
        measures[each.alias] = reader.read(each.this, None)
        types[each.alias] = reader.type_of(each.this)
    within = node.args["pattern"].args.get("within")
    spec = MatchRecognize(
        keys=tuple(c.physical for c in keys), on=on, order=tuple(further), pattern=tuple(pattern), definitions=definitions,
        measures=measures, types=types, skip=_skip(context, node, names),
        within_us=interval_us(within, context.text, "WITHIN") if within is not None else None, program=groups,
    )  # fmt: skip
    source = relation.stream.with_columns(**reader.computed) if reader.computed else relation.stream
    stream = shuffled(source, spec.keys).apply(spec)
    alias = node.args.get("alias")
    table = alias.name if alias is not None else None
    columns = [replace(c, table=table) for c in keys] + [
        Column(each.alias, each.alias, table, _time_of(each.this)) for each in node.args["measures"]
    ]
    return Relation(stream, tuple(columns))


def _time_of(measure: exp.Expr) -> Time | None:
    if is_proctime(measure):
        return "processing"
    return "event" if is_rowtime(measure) else None


def _skip(context: Context, node: exp.MatchRecognize, names: list[str]) -> tuple[str, str]:
    after = node.args.get("after")
    text = after.name.removeprefix("AFTER MATCH SKIP ") if after is not None else "TO NEXT ROW"
    for words in ("TO FIRST ", "TO LAST "):
        if text.startswith(words):
            variable = text.removeprefix(words)
            if variable not in names:
                raise context.error(node, f"AFTER MATCH SKIP {words}{variable}: it is not in the pattern")
            return words.strip(), variable
    return text, ""


_REFUSED = (
    (r"\{\s*-", "parts that are left out, {- … -}, are"),
    (r"[\^$]", "the anchors ^ and $ are"),
)


def _without_groups(context: Context, text: str) -> str:
    """Return a pattern without brackets that change nothing. Raises ExpressionError for what Flink's streams have not either."""
    for expression, what in _REFUSED:
        if re.search(expression, text):
            raise context.error(
                None,
                f"PATTERN ({text}): {what} not supported, as in Flink",
                "variables with *, +, ?, {n}, {n,m}, one after the other",
            )
    return re.sub(r"[()]", " ", text).strip()


def _pattern(context: Context, node: exp.Expr) -> tuple[list[PatternPart], Program | None]:
    """Return the parts of a pattern, or of one with groups or alternatives its variables and its instructions."""
    quoted: dict[str, str] = {}

    def named(found: re.Match[str]) -> str:
        quoted[name := f"__quoted_{len(quoted)}"] = found[1].replace("``", "`")
        return f" {name}"

    plain = _QUOTED.sub(named, node.name.strip())
    names = {name: word for name, word in quoted.items()}
    by_word = {word: name for name, word in quoted.items()}
    for name, word in names.items():  # a name in backticks that stands there twice is one variable
        plain = re.sub(rf"\b{name}\b", by_word[word], plain)
    if needs_groups(plain):
        _without_groups(context, plain)
        made = program(plain, lambda word: quoted.get(word, word), partial(_wrong, context, node.name.strip()))
        return [PatternPart(each, 1, 1) for each in made.variables], made
    return _parts(context, plain, quoted), None


def _wrong(context: Context, text: str, reason: str) -> Exception:
    return context.error(None, f"PATTERN ({text}): {reason}")


def _parts(context: Context, plain: str, quoted: dict[str, str]) -> list[PatternPart]:
    text, at, parts = _without_groups(context, plain), 0, []
    while at < len(text):
        found = _PART.match(text, at)
        if found is None or not found[0]:
            raise context.error(
                None,
                f"PATTERN ({text}): {text[at:]!r} is not supported",
                "variables with *, +, ?, {n}, {n,m}, one after the other",
            )
        least, most = {None: (1, 1), "*": (0, None), "+": (1, None), "?": (0, 1)}.get(found[2], (0, 0))
        if found[2] is not None and found[2].startswith("{"):
            low, comma, high = found[2].strip("{} ").partition(",")
            least = int(low or 0)
            most = (int(high) if high.strip() else None) if comma else least
        parts.append(PatternPart(quoted.get(found[1], found[1]), least, most, greedy=found[3] is None))
        at = found.end()
    if any(not part.greedy and (part.least, part.most) == (0, 1) for part in parts):
        raise context.error(None, f"PATTERN ({text}): ?? is not supported, as in Flink", "A*? or two queries")
    if len({part.variable for part in parts}) < len(parts):
        raise context.error(None, f"PATTERN ({text}): a variable can occur only once in a pattern")
    if parts and parts[-1].most is None and parts[-1].greedy:
        raise context.error(
            None,
            f"PATTERN ({text}): the last variable must not have an open-ended greedy quantifier",
            "add a variable after it, or make it reluctant with ?",
        )
    return parts


__all__ = ["matched"]
