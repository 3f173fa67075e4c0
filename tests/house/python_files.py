"""The Python files of the workspace, and what the rules of this folder look at in them."""

from __future__ import annotations

import ast
import functools
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).parents[2]
FUNCTION_LINES_MAX = 70
_ASKING = ("getattr", "hasattr")
_CLOCKS = {"time.monotonic", "time.perf_counter", "time.process_time", "time.thread_time", "time.time"}
_DOUBLES = ("Mock", "MagicMock", "AsyncMock", "NonCallableMock", "create_autospec")


@dataclass(slots=True)
class Facts:
    """What is kept of a file: the syntax trees of all would be millions of objects."""

    lines: int = 0
    #: Functions whose bodies have more lines than a screen.
    long_functions: list[str] = field(default_factory=list)
    #: Lines at which any error is caught, and is then neither raised, nor used, nor logged.
    vanishing: list[int] = field(default_factory=list)
    #: Names that classes declare: fields, methods, and what methods set on an object.
    declared: set[str] = field(default_factory=set)
    #: Attributes that an object is asked for although it may not have them.
    asked: set[str] = field(default_factory=set)
    #: Lines at which an object is made that agrees with every test.
    doubles: list[int] = field(default_factory=list)
    #: Lines at which tests are skipped, or expected to fail, whatever the machine, or for no reason.
    skips: list[int] = field(default_factory=list)
    sleeps: bool = False
    #: Lines at which something is asserted of the time that has passed.
    timed: list[int] = field(default_factory=list)
    #: Modules that are imported when the program runs, at the top or in a function, and names that may be modules.
    imports: set[str] = field(default_factory=set)


@functools.cache
def facts() -> Mapping[str, Facts]:
    """Return what there is to know of each Python file that git tracks or would track; by its path from the root."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "*.py"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    paths = sorted({path for path in done.stdout.splitlines() if (ROOT / path).exists()})
    assert len(paths) > 1_500
    return {path: facts_of((ROOT / path).read_text(encoding="utf-8")) for path in paths}


def facts_of(text: str) -> Facts:
    """Return what there is to know of a file with this text."""
    tree = ast.parse(text)
    found = Facts(lines=text.count("\n"))
    for_types = _for_types(tree)
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            # The body alone: the options of a command, each with its help, are a table.
            assert node.end_lineno is not None
            if node.end_lineno - node.body[0].lineno + 1 > FUNCTION_LINES_MAX:
                found.long_functions.append(node.name)
        elif isinstance(node, ast.Call):
            _add_call(found, node)
        elif isinstance(node, ast.Assert):
            if _is_of_passed_time(node.test):
                found.timed.append(node.lineno)
        elif isinstance(node, ast.ExceptHandler):
            if _is_broad(node.type) and _vanishes(node):
                found.vanishing.append(node.lineno)
        elif isinstance(node, ast.ClassDef):
            _add_declared(found, node)
        elif isinstance(node, ast.Import | ast.ImportFrom):
            if node not in for_types:
                found.imports |= _imported(node)
        elif isinstance(node, ast.Attribute) and _is_always_skipped(node):
            found.skips.append(node.lineno)
    return found


def _add_call(found: Facts, node: ast.Call) -> None:
    function = node.func
    name = (
        function.attr if isinstance(function, ast.Attribute) else function.id if isinstance(function, ast.Name) else ""
    )
    if name in _ASKING and len(node.args) > 1:
        asked = node.args[1]
        may_lack = name == "hasattr" or len(node.args) > 2
        if may_lack and isinstance(asked, ast.Constant) and isinstance(asked.value, str):
            found.asked.add(asked.value)
    elif name in _DOUBLES:
        found.doubles.append(node.lineno)
    elif name == "suppress":
        found.vanishing += [node.lineno] * any(_is_broad(each) for each in node.args)
    elif name == "skipif":
        found.skips += [node.lineno] * all(keyword.arg != "reason" for keyword in node.keywords)
    elif name == "sleep":
        found.sleeps = found.sleeps or ast.unparse(function) in ("time.sleep", "sleep")


def _for_types(tree: ast.Module) -> set[ast.AST]:
    """Return what stands below ``if TYPE_CHECKING`` at the top of a file."""
    blocks = [node for node in tree.body if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test)]
    return {node for block in blocks for node in block.body}


def _imported(node: ast.Import | ast.ImportFrom) -> set[str]:
    if isinstance(node, ast.Import):
        return {alias.name for alias in node.names}
    module = node.module or ""
    return {module, *(f"{module}.{alias.name}" for alias in node.names)}


def _is_of_passed_time(test: ast.expr) -> bool:
    """Return whether a clock is read in a difference, as in ``time.monotonic() - begun < 5``."""
    differences = [node for node in ast.walk(test) if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Sub)]
    calls = {ast.unparse(node.func) for each in differences for node in ast.walk(each) if isinstance(node, ast.Call)}
    return not calls.isdisjoint(_CLOCKS)


def _is_always_skipped(node: ast.Attribute) -> bool:
    return node.attr in ("skip", "xfail") and ast.unparse(node.value) == "pytest.mark"


def _is_broad(kind: ast.expr | None) -> bool:
    if isinstance(kind, ast.Tuple):
        return any(_is_broad(each) for each in kind.elts)
    return kind is None or (isinstance(kind, ast.Name) and kind.id in ("Exception", "BaseException"))


def _vanishes(node: ast.ExceptHandler) -> bool:
    for statement in node.body:
        for part in ast.walk(statement):
            is_logged = (
                isinstance(part, ast.Call) and isinstance(part.func, ast.Attribute) and part.func.attr == "exception"
            )
            if isinstance(part, ast.Raise) or is_logged or (isinstance(part, ast.Name) and part.id == node.name):
                return False
    return True


def _add_declared(found: Facts, owner: ast.ClassDef) -> None:
    for node in owner.body:
        if isinstance(node, ast.AnnAssign | ast.Assign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            found.declared |= {target.id for target in targets if isinstance(target, ast.Name)}
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            found.declared.add(node.name)
            for part in ast.walk(node):
                if isinstance(part, ast.Attribute) and isinstance(part.ctx, ast.Store):
                    found.declared.add(part.attr)


def import_circles(files: Mapping[str, Facts]) -> list[list[str]]:
    """Return the modules of packages that import each other, each circle as a list of their names."""
    names = {path.partition("/src/")[2].removesuffix(".py").replace("/", "."): path for path in files}
    names = {name.removesuffix(".__init__"): path for name, path in names.items()}
    edges = {name: sorted((files[path].imports & names.keys()) - {name}) for name, path in names.items()}
    # Packages are left out: their __init__ gives public names, and is imported with each of their modules.
    packages = {name for name, path in names.items() if path.endswith("/__init__.py")}
    graph = {name: [each for each in each_of if each not in packages] for name, each_of in edges.items()}
    reached = {name: _reached(graph, name) for name in graph if name not in packages}
    circles = {tuple(sorted(each for each in found if name in reached[each])) for name, found in reached.items()}
    return sorted([*circle] for circle in circles if len(circle) > 1)


def _reached(graph: Mapping[str, list[str]], begin: str) -> set[str]:
    """Return the modules that a module imports, and those that these import; with itself if one imports it."""
    found: set[str] = set()
    waiting = [*graph[begin]]
    while waiting:
        name = waiting.pop()
        if name not in found:
            found.add(name)
            waiting += graph[name]
    return found
