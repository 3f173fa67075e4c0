"""Loads rules from lists of dicts, YAML files and .sql files. A wrong rule does not affect the other rules.

YAML files hold a list of rules, or a mapping with a list under ``rules``, or several documents; a mapping with ``detection``
is a Sigma rule. A .sql file holds conditions that end with semicolons, each after a comment line ``-- id: …``.
"""

from __future__ import annotations

import contextlib
import glob
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml
from headrace.foundation.errors import ExpressionError, HeadraceError, JobError, OptionError, did_you_mean
from yaml.composer import Composer
from yaml.constructor import SafeConstructor
from yaml.resolver import Resolver

from headrace_rules.background import pause
from headrace_rules.model import DEFAULT_SEVERITY, SEVERITIES, Rejection, Rule, RulesError, RuleSet
from headrace_rules.prepared import Preparer
from headrace_rules.sigma_fields import SigmaOptions

#: What the verb ``rules`` and ``update_rules`` take as rules.
RulesInput = str | os.PathLike[str] | Sequence[Mapping[str, Any] | Rule | str | os.PathLike[str]] | Mapping[str, str]
_FIELDS = ("id", "expression", "severity", "labels", "description")
_YAML_SUFFIXES = (".yaml", ".yml")
_TIMESTAMP = "tag:yaml.org,2002:timestamp"
#: Levels of lists and mappings within each other in a YAML file.
_NESTING_MAX = 50
#: In a YAML text without aliases each value takes at least one character: only aliases can exceed this limit.
_VALUES_PER_CHARACTER = 4
_ID = re.compile(r"[^\s,;'\"\\]{1,200}")


@dataclass(slots=True)
class Loaded:
    """Rules that are well formed, and those that are not. ``files`` are the files that were read.

    ``left_out`` counts Sigma rules that are for other log sources than ``sigma`` names.
    """

    rules: list[Rule] = field(default_factory=list)
    rejections: list[Rejection] = field(default_factory=list)
    files: list[Path] = field(default_factory=list)
    sigma: SigmaOptions = field(default_factory=SigmaOptions)
    left_out: int = 0
    #: Entries with ``correlation``, which another verb reads, and their places.
    correlations: list[tuple[Mapping[str, Any], str]] = field(default_factory=list)

    @property
    def total(self) -> int:
        return len(self.rules) + len(self.rejections)

    def add(self, rule: Rule | Rejection) -> None:
        if isinstance(rule, Rejection):
            self.rejections.append(rule)
            return
        same = next((other for other in self.rules if other.id == rule.id), None) if rule.id in self._ids else None
        if same is not None:
            self.rejections.append(
                Rejection(rule.id, f"the id is already used by {same.place or 'a rule'}", rule.place)
            )
            return
        self._ids.add(rule.id)
        self.rules.append(rule)

    _ids: set[str] = field(default_factory=set)


def load(source: RulesInput, sigma: SigmaOptions | None = None) -> Loaded:
    """Read rules. A rule that is malformed is in ``rejections``, and so is a file that is not valid YAML.

    ``sigma``: what Sigma rules leave open.

    Raises OptionError when there is no such file or its suffix is unknown, JobError when a file cannot be read.
    """
    loaded = Loaded(sigma=sigma or SigmaOptions())
    if isinstance(source, str | os.PathLike):
        for path in files_of(source):
            _load_file(path, loaded)
        return loaded
    if isinstance(source, Mapping):
        source = [{"id": rule_id, "expression": expression} for rule_id, expression in source.items()]
    for number, entry in enumerate(source, 1):
        if isinstance(entry, str | os.PathLike):
            for path in files_of(entry):
                _load_file(path, loaded)
        else:
            loaded.add(entry if isinstance(entry, Rule) else rule_of(entry, f"rule {number}"))
    return loaded


def load_strictly(source: RulesInput, sigma: SigmaOptions | None = None) -> RuleSet:
    """Read rules. Raises RulesError when a rule is malformed, OptionError when there are none, and what ``load`` raises."""
    loaded = load(source, sigma)
    if loaded.rejections:
        raise RulesError(loaded.rejections, total=loaded.total)
    if not loaded.rules:
        raise OptionError("there are no rules", plugin="rules", option="rules")
    return RuleSet(loaded.rules)


def files_of(source: str | os.PathLike[str]) -> list[Path]:
    """Return the files of a path, a pattern or a directory (its YAML files), by name. Raises OptionError when there is none."""
    text = os.fspath(source)
    found = sorted(Path(name) for name in glob.glob(text, recursive=True) if os.path.isfile(name))
    if not found and os.path.isdir(text):
        found = sorted(path for suffix in _YAML_SUFFIXES for path in Path(text).glob(f"*{suffix}"))
    if not found:
        hint = "name a .yaml or .sql file, or a pattern such as 'rules/*.yaml'"
        raise OptionError(f"no file is called {text!r}", plugin="rules", option="rules", hint=hint)
    return found


def _load_file(path: Path, loaded: Loaded) -> None:
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise JobError(f"cannot read rules from {path}: {error}", plugin="rules") from error
    loaded.files.append(path)
    if path.suffix.lower() in _YAML_SUFFIXES:
        _load_yaml(path, text, loaded)
    elif path.suffix.lower() == ".sql":
        for rule in sql_rules(text, str(path)):
            loaded.add(rule)
    else:
        raise OptionError(
            f"{path}: rules are read only from .yaml, .yml and .sql files", plugin="rules", option="rules",
        )  # fmt: skip


class _Limits:
    """What both loaders do beside ``yaml.SafeLoader``: limits, and pauses in threads that work beside batches.

    With aliases a short text can stand for any number of values. So an alias counts as all the values that it stands for.
    """

    def limit(self, text: str) -> None:
        self._values_max = len(text) * _VALUES_PER_CHARACTER
        self._nesting = 0
        #: By ``id`` of a node: how many values it stands for, with itself and all below it.
        self._sizes: dict[int, int] = {}

    def compose_node(self: Any, parent: yaml.Node | None, index: Any) -> yaml.Node | None:
        pause()
        event = self.peek_event()
        self._nesting += 1
        if self._nesting > _NESTING_MAX:
            raise _refused(f"values nest deeper than {_NESTING_MAX} levels", event)
        node: yaml.Node | None = super().compose_node(parent, index)  # type: ignore[misc]
        self._nesting -= 1
        if node is None:
            return None
        if isinstance(event, yaml.AliasEvent):
            if id(node) not in self._sizes:
                raise _refused("a YAML alias stands for a value that contains the alias itself", event)
        else:
            self._sizes[id(node)] = 1 + sum(self._sizes[id(each)] for each in _children(node))
        if self._sizes[id(node)] > self._values_max:
            raise _refused("its YAML aliases expand to too many values", event)
        return node

    def construct_object(self, node: yaml.Node, deep: bool = False) -> Any:
        try:
            return super().construct_object(node, deep=deep)  # type: ignore[misc]
        except (ValueError, OverflowError) as error:
            # The library reads dates and numbers by functions of Python, and lets their errors pass.
            if node.tag == _TIMESTAMP:
                return node.value  # 2026-02-30 is a text
            raise _refused(f"{str(node.value)!r:.40} is not a value of {node.tag}: {error}", node) from None


class _Loader(_Limits, yaml.SafeLoader):
    """Loads YAML as ``yaml.safe_load`` does, with limits."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.limit(text)


_QuickLoader: Any = None
if yaml.__with_libyaml__:
    from yaml.cyaml import CParser  # type: ignore[attr-defined]

    class _QuickLoader(_Limits, Composer, CParser, SafeConstructor, Resolver):  # type: ignore[no-redef]
        """Takes the events from the compiled parser, eight times as fast; nodes are composed in Python, where the limits are."""

        def __init__(self, text: str) -> None:
            CParser.__init__(self, text)
            Composer.__init__(self)
            SafeConstructor.__init__(self)
            Resolver.__init__(self)
            self.limit(text)


def _documents(text: str) -> list[Any]:
    """Return the documents of a text. What the compiled parser refuses, that of Python may take, and its errors say more."""
    if _QuickLoader is not None:
        with contextlib.suppress(yaml.YAMLError):
            return list(yaml.load_all(text, _QuickLoader))
    return list(yaml.load_all(text, _Loader))


def _refused(problem: str, at: Any) -> yaml.YAMLError:
    return yaml.MarkedYAMLError(problem=problem, problem_mark=at.start_mark)


def _children(node: yaml.Node) -> Iterable[yaml.Node]:
    if isinstance(node, yaml.MappingNode):
        return [part for pair in node.value for part in pair]
    return list(node.value) if isinstance(node, yaml.SequenceNode) else []


def documents_of(path: Path) -> list[tuple[Any, str]]:
    """Return the content of the documents of a YAML file, each rule with its place for messages: for readers of other kinds of rules.

    Raises JobError when the file cannot be read, RulesError when it is not valid YAML.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise JobError(f"cannot read rules from {path}: {error}", plugin="rules") from error
    try:
        return _entries(path, text)
    except yaml.YAMLError as error:
        raise RulesError([_invalid(path, error)], total=1) from error


def _invalid(path: Path, error: yaml.YAMLError) -> Rejection:
    return Rejection("", f"this is not valid YAML: {' '.join(str(error).split())}", str(path))


def _entries(path: Path, text: str) -> list[tuple[Any, str]]:
    found: list[tuple[Any, str]] = []
    for document in _documents(text):
        if document is None:
            continue
        entries = document.get("rules", [document]) if isinstance(document, Mapping) else document
        for entry in entries if isinstance(entries, list) else [entries]:
            found.append((entry, f"{path}, rule {len(found) + 1}"))
    return found


def _load_yaml(path: Path, text: str, loaded: Loaded) -> None:
    from headrace_rules import sigma

    try:
        entries = _entries(path, text)
    except yaml.YAMLError as error:
        loaded.add(_invalid(path, error))
        return
    for entry, place in entries:
        if isinstance(entry, Mapping) and "correlation" in entry:
            loaded.correlations.append((entry, place))  # headrace-detection reads it: it says nothing of one row.
            continue
        if not isinstance(entry, Mapping) or "detection" not in entry:
            loaded.add(rule_of(entry, place))
        elif loaded.sigma.applies(entry.get("logsource")):
            loaded.add(sigma.rule_of(entry, place, loaded.sigma))
        else:
            loaded.left_out += 1


def rule_of(entry: Any, place: str) -> Rule | Rejection:
    """Return the rule that a mapping describes, or its error."""
    if not isinstance(entry, Mapping):
        return Rejection("", f"a rule is a mapping with id and expression, not {entry!r:.80}", place)
    rule_id = entry.get("id")
    shown = rule_id if isinstance(rule_id, str) else ""
    for name in entry:
        if name not in _FIELDS:
            hint = did_you_mean(str(name), _FIELDS, known="fields")
            return Rejection(shown, f"unknown field {name!r}; {hint}", place)
    for name in ("id", "expression"):
        if not isinstance(entry.get(name), str) or not entry[name].strip():
            return Rejection(shown, f"{name} must be a text that is not empty", place)
    if not _ID.fullmatch(str(rule_id)):
        return Rejection(
            shown, "an id has no blanks, commas, semicolons, quotes or backslashes, and at most 200 characters", place
        )
    severity = entry.get("severity", DEFAULT_SEVERITY)
    if severity not in SEVERITIES:
        hint = did_you_mean(str(severity), SEVERITIES, known="severities")
        return Rejection(shown, f"unknown severity {severity!r}; {hint}", place)
    labels = entry.get("labels") or ()
    if isinstance(labels, str) or not isinstance(labels, Sequence) or not all(isinstance(x, str) for x in labels):
        return Rejection(shown, "labels must be a list of texts", place)
    return Rule(
        str(rule_id), entry["expression"].strip(), severity, tuple(labels), str(entry.get("description") or ""), place
    )


_HEAD = re.compile(r"^--\s*(\w+)\s*:\s*(.*?)\s*$")


def sql_rules(text: str, path: str) -> Iterable[Rule | Rejection]:
    """Yield the rules of a .sql file: comment lines ``-- id: …``, ``-- severity: …``, ``-- labels: a, b``, then a condition."""
    head: dict[str, Any] = {}
    condition: list[str] = []
    first_line = 1
    for number, line in enumerate([*text.splitlines(), ";"], 1):
        found = _HEAD.match(line.strip())
        if found is not None and not condition:
            first_line = first_line if head else number
            value: Any = found[2]
            if found[1] == "labels":
                value = [label.strip() for label in value.split(",") if label.strip()]
            head[found[1]] = value
            continue
        if line.strip().startswith("--"):
            continue
        content = line.rstrip()
        if content.strip() or condition:
            condition.append(content)
        if content.endswith(";"):
            whole = "\n".join(condition).strip().rstrip(";").strip()
            if whole or head:
                yield rule_of({**head, "expression": whole}, f"{path}, line {first_line}")
            head, condition, first_line = {}, [], number + 1


def check_rules(rules: Sequence[Rule], preparer: Preparer) -> tuple[list[Rule], list[Rejection]]:
    """Compile each rule for the preparer's columns. Return the rules that compile, and for each other rule the reason."""
    good, rejections = [], []
    preparer.prepare_many([rule.expression for rule in rules])
    for rule in rules:
        pause()
        try:
            preparer.prepare(rule.expression)
        except ExpressionError as error:
            rejections.append(Rejection(rule.id, str(error), rule.place))
        except HeadraceError as error:
            rejections.append(Rejection(rule.id, error.message, rule.place))
        else:
            good.append(rule)
    return good, rejections
