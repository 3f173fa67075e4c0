"""The verb ``script``: several assignments and conditions in one text.

    severity = CASE WHEN status >= 500 THEN 'high' ELSE 'low' END;
    IF severity = 'high' THEN
        team = 'on-call'; score = score + 10;
    ELSE
        team = NULL;
    END;
    WHERE score > 5;
    DROP raw, debug;

Statements end with ``;`` and run in order, each sees the results of the ones before it. Inside ``IF`` there are assignments
and further ``IF``; a condition is decided once, before its first statement runs. A column that an ``IF`` makes is NULL
in the rows that it does not touch.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

import polars as pl
from headrace.flow.schema import Schema
from headrace.foundation.errors import ExpressionError
from headrace.interfaces.functions import UserFunction
from headrace.interfaces.operator import RejectedRows
from headrace_columnar import dialect
from headrace_columnar.expressions import compile_expression
from headrace_columnar.verbs.base import BoundVerb, Results, VerbSpec
from headrace_columnar.verbs.projection import Drop, WithColumns
from headrace_columnar.verbs.selection import Where


@dataclass(frozen=True)
class _Statement:
    """One statement: what to do, where its expression begins in the script, and the conditions around it."""

    kind: str  # "assign", "condition", "where", "drop"
    target: str
    text: str
    position: int
    guard: str | None = None


class Script(VerbSpec):
    """Runs the statements of a script, one after the other."""

    name: ClassVar[str] = "script"

    def __init__(self, text: str, *, functions: Mapping[str, UserFunction] | None = None) -> None:
        self.text = text
        self.functions = functions
        self._statements = _Parser(text).statements()

    def bind(self, schema: Schema) -> BoundVerb:
        steps: list[BoundVerb] = []
        temporary = [statement.target for statement in self._statements if statement.kind == "condition"]
        for statement in self._statements:
            try:
                step = self._bind_statement(statement, schema)
            except ExpressionError as error:
                raise self._placed(error, statement) from error
            steps.append(step)
            schema = step.schemas[""]
        if temporary:
            steps.append(Drop(*temporary).bind(schema))
            schema = steps[-1].schemas[""]
        return _BoundScript(schema, steps)

    def required_columns(self, wanted: Collection[str] | None, schema: Schema) -> Collection[str] | None:
        return None

    def describe(self) -> str:
        return " ".join(self.text.split())

    def _bind_statement(self, statement: _Statement, schema: Schema) -> BoundVerb:
        if statement.kind == "drop":
            return Drop(*(name.strip() for name in statement.text.split(","))).bind(schema)
        if statement.kind == "where":
            return Where(statement.text, functions=self.functions).bind(schema)
        compile_expression(statement.text, schema, self.functions)  # type: ignore[arg-type]
        text = statement.text
        if statement.kind == "condition":
            text = f"COALESCE(({text}), FALSE)"
        if statement.guard is not None:
            before = _quoted(statement.target) if statement.target in schema else "NULL"
            text = f"CASE WHEN {_quoted(statement.guard)} THEN ({text}) ELSE {before} END"
        return WithColumns(functions=self.functions, **{statement.target: text}).bind(schema)

    def _placed(self, error: ExpressionError, statement: _Statement) -> ExpressionError:
        """Show the error in the whole script."""
        inside = error.text == statement.text and error.position is not None
        position = statement.position + (error.position if inside and error.position is not None else 0)
        return ExpressionError(
            error.message,
            text=self.text,
            position=position,
            length=error.length if inside else len(statement.text),
            hint=error.hint,
        )


class _BoundScript(BoundVerb):
    def __init__(self, schema: Schema, steps: Sequence[BoundVerb]) -> None:
        self.schemas = {"": schema}
        self._steps = steps

    def process(self, frame: pl.DataFrame) -> Results:
        rejected: list[RejectedRows] = []
        for step in self._steps:
            [(_, frame)], bad = step.process(frame)
            if bad is not None:
                rejected.append(bad)
        if not rejected:
            return [("", frame)], None
        reasons = [reason for bad in rejected for reason in bad.reasons]
        errors = [error for bad in rejected for error in bad.errors]
        rows = pl.concat([bad.frame for bad in rejected], how="diagonal")
        return [("", frame)], RejectedRows(rows, reasons, errors)


class _Parser:
    """Cuts a script into statements by the tokens of the SQL dialect, so that texts and comments are left alone."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._tokens = dialect.tokens(text)
        self._at = 0
        self._conditions = 0
        self._found: list[_Statement] = []

    def statements(self) -> list[_Statement]:
        self._block(guard=None, ends=())
        if not self._found:
            raise self._error("the script has no statement")
        return self._found

    def _block(self, guard: str | None, ends: Sequence[str]) -> None:
        while self._at < len(self._tokens):
            word = self._word()
            if word == ";":
                self._at += 1
            elif word in ends:
                return
            elif word == "IF":
                self._if(guard)
            elif word in ("WHERE", "DROP"):
                if guard is not None:
                    raise self._error(f"{word} is not allowed inside IF")
                self._at += 1
                begin, text = self._until((";",))
                self._found.append(_Statement(word.lower(), "", text, begin))
            else:
                self._assignment(guard)
        if ends:
            raise self._error("this IF has no END")

    def _assignment(self, guard: str | None) -> None:
        name = self._tokens[self._at].text
        begin = self._tokens[self._at].start
        self._at += 1
        if self._at >= len(self._tokens) or self._word() != "=":
            raise ExpressionError(
                "expected a statement: name = expression", text=self._text, position=begin, length=len(name),
                hint="statements are assignments, IF … THEN … END, WHERE and DROP, each ended by ';'",
            )  # fmt: skip
        self._at += 1
        position, text = self._until((";",))
        self._found.append(_Statement("assign", name, text, position, guard))

    def _if(self, outer: str | None) -> None:
        self._at += 1
        position, condition = self._until(("THEN",))
        taken: list[str] = []
        while True:
            guard = self._condition(condition, position, outer, taken)
            self._at += 1  # THEN or ELSE
            self._block(guard, ("ELSE", "ELSEIF", "END"))
            taken.append(guard)
            ending = self._word()
            if ending == "ELSEIF":
                self._at += 1
                position, condition = self._until(("THEN",))
            elif ending == "ELSE":
                position, condition = self._tokens[self._at].start, "TRUE"
            else:
                self._at += 1
                return
            if ending == "ELSE":
                guard = self._condition(condition, position, outer, taken)
                self._at += 1
                self._block(guard, ("END",))
                self._at += 1
                return

    def _condition(self, text: str, position: int, outer: str | None, taken: Sequence[str]) -> str:
        """Add a column that says which rows this branch takes: not those of the branches before it."""
        self._conditions += 1
        name = f"(if {self._conditions})"
        if taken or outer:
            parts = [*([_quoted(outer)] if outer else []), *(f"NOT {_quoted(other)}" for other in taken)]
            checked = f"(if {self._conditions} alone)"
            self._found.append(_Statement("condition", checked, text, position))
            text = " AND ".join([*parts, _quoted(checked)])
        self._found.append(_Statement("condition", name, text, position))
        return name

    def _until(self, ends: Sequence[str]) -> tuple[int, str]:
        """Return where the text up to the next of ``ends`` begins, and that text; CASE … END inside it is skipped."""
        first = self._at
        depth = 0
        while self._at < len(self._tokens):
            word = self._word()
            if depth == 0 and word in ends:
                break
            depth += (word == "CASE") - (word == "END")
            self._at += 1
        if first == self._at:
            raise self._error("expected an expression")
        if self._at >= len(self._tokens) and ends != (";",):
            raise self._error(f"expected {ends[0]}")
        begin, end = self._tokens[first].start, self._tokens[self._at - 1].end + 1
        return begin, self._text[begin:end]

    def _word(self) -> str:
        token = self._tokens[self._at]
        return self._text[token.start : token.end + 1].upper()

    def _error(self, message: str) -> ExpressionError:
        at = min(self._at, len(self._tokens) - 1)
        position = self._tokens[at].start if self._tokens else 0
        return ExpressionError(message, text=self._text, position=position)


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'
