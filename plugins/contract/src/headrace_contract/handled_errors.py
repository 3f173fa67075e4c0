"""Finds the ``except`` clauses in the code that a call executes, and raises the errors that they catch in that code."""

from __future__ import annotations

import ast
import builtins
import os
import sys
import types
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class Injection:
    """An error to raise when a line is about to run."""

    kind: type[Exception]
    file: str
    line: int

    def __str__(self) -> str:
        return f"{self.kind.__name__} in {os.path.basename(self.file)}, line {self.line}"


class Watched:
    """The code of a plug-in: of its class and base classes, and of the packages that have them, without headrace's core."""

    def __init__(self, kind: type) -> None:
        self._folders = own_folders(kind)
        self._lines: dict[str, set[int]] = {}
        self._globals: dict[str, dict[str, Any]] = {}

    @contextmanager
    def noting(self) -> Iterator[None]:
        """Note the lines of the plug-in that are executed in this thread during the block."""

        def trace(frame: types.FrameType, event: str, _: Any) -> Any:
            file = frame.f_code.co_filename
            if not file.startswith(self._folders):
                return None
            if event == "line":
                self._lines.setdefault(file, set()).add(frame.f_lineno)
                self._globals.setdefault(file, frame.f_globals)
            return trace

        with _tracing(trace):
            yield

    @contextmanager
    def raising(self, injection: Injection) -> Iterator[list[int]]:
        """Raise the error of ``injection`` the first time that its line is reached. The list is empty until then."""
        struck: list[int] = []

        def trace(frame: types.FrameType, event: str, _: Any) -> Any:
            if frame.f_code.co_filename != injection.file:
                return None
            if event == "line" and frame.f_lineno == injection.line and not struck:
                struck.append(injection.line)
                raise _made(injection.kind)
            return trace

        with _tracing(trace):
            yield struck

    def injections(self) -> list[Injection]:
        """Return an injection for each error that an executed clause catches, in up to three lines that the clause covers."""
        found: dict[Injection, None] = {}
        for file, lines in self._lines.items():
            try:
                tree = ast.parse(Path(file).read_text(encoding="utf-8"))
            except (OSError, SyntaxError, ValueError):
                continue  # generated code, which has no file
            for covered, expressions in _clauses(tree):
                ran = sorted(line for line in covered if line in lines)
                for kind in self._kinds(file, expressions) if ran else ():
                    for line in (ran[0], ran[len(ran) // 2], ran[-1]):
                        found[Injection(kind, file, line)] = None
        return list(found)

    def _kinds(self, file: str, expressions: list[ast.expr | None]) -> list[type[Exception]]:
        """Return the types that a clause names; a bare ``except`` catches every one."""
        kinds: list[type[Exception]] = []
        for expression in expressions:
            if expression is None:
                kinds.append(Exception)
                continue
            value = _named(expression, self._globals[file])
            for kind in value if isinstance(value, tuple) else (value,):
                if isinstance(kind, type) and issubclass(kind, Exception):
                    kinds.append(kind)
                elif kind is BaseException:
                    kinds.append(Exception)
        return kinds


def _clauses(tree: ast.AST) -> Iterator[tuple[range, list[ast.expr | None]]]:
    """Yield for each clause (``try`` and ``with suppress(...)``) the lines that it covers, and the types that it catches."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Try):
            lines = range(node.body[0].lineno, (node.body[-1].end_lineno or node.body[-1].lineno) + 1)
            yield lines, [handler.type for handler in node.handlers]
        elif isinstance(node, ast.With):
            for item in node.items:
                call = item.context_expr
                if isinstance(call, ast.Call) and ast.unparse(call.func).rpartition(".")[2] == "suppress":
                    lines = range(node.body[0].lineno, (node.body[-1].end_lineno or node.body[-1].lineno) + 1)
                    yield lines, list(call.args)


def _named(expression: ast.expr, names: dict[str, Any]) -> Any:
    """Return the value of a name, of a dotted name or of a tuple of names; None for a local name of a function."""
    if isinstance(expression, ast.Tuple):
        return tuple(_named(each, names) for each in expression.elts)
    if isinstance(expression, ast.Attribute):
        return getattr(_named(expression.value, names), expression.attr, None)
    if isinstance(expression, ast.Name):
        return names.get(expression.id, getattr(builtins, expression.id, None))
    return None


def _made(kind: type[Exception]) -> Exception:
    """Return an error of a type, whatever arguments its constructor needs."""
    text = "an error that the contract suite has raised here"
    try:
        return kind(text)
    except Exception:
        made = kind.__new__(kind)
        made.args = (text,)
        return made


@contextmanager
def _tracing(trace: Any) -> Iterator[None]:
    before = sys.gettrace()
    sys.settrace(trace)
    try:
        yield
    finally:
        sys.settrace(before)


def own_folders(kind: type) -> tuple[str, ...]:
    """Return the folders (or files) of a plug-in's own code: those of its class and base classes, without headrace."""
    found = []
    for base in kind.__mro__:
        top = base.__module__.partition(".")[0]
        file = getattr(sys.modules.get(base.__module__), "__file__", None)
        if top in ("headrace", "builtins", "abc", "typing") or file is None:
            continue
        package = getattr(sys.modules.get(top), "__file__", None)
        found.append(os.path.dirname(package) + os.sep if package and package.endswith("__init__.py") else file)
    return tuple(found)
