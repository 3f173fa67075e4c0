"""Rules and the errors of wrong rules. A rule has an id, a condition in SQL, a severity, labels and a description."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from headrace.foundation.errors import JobError

#: From the least to the most severe.
SEVERITIES = ("informational", "low", "medium", "high", "critical")
DEFAULT_SEVERITY = "medium"


@dataclass(frozen=True, slots=True)
class Rule:
    """One rule. ``place`` says where it was read ("rules/web.yaml, rule 3"), for messages."""

    id: str
    expression: str
    severity: str = DEFAULT_SEVERITY
    labels: tuple[str, ...] = ()
    description: str = ""
    place: str = ""

    @property
    def rank(self) -> int:
        """The index of its severity in ``SEVERITIES``: 0 is the least severe."""
        return SEVERITIES.index(self.severity)


@dataclass(frozen=True, slots=True)
class Rejection:
    """A rule that cannot be used, and why. ``place`` says where it was read; ``id`` is empty if the rule has no usable id."""

    id: str
    reason: str
    place: str = ""

    def __str__(self) -> str:
        where = f" ({self.place})" if self.place else ""
        return f"rule {self.id!r}{where}: {self.reason}" if self.id else f"{self.place or 'a rule'}: {self.reason}"


class RulesError(JobError):
    """Some of a job's rules are wrong; ``rejections`` has each of them with its reason."""

    def __init__(self, rejections: Sequence[Rejection], *, total: int, hint: str | None = None) -> None:
        self.rejections = tuple(rejections)
        shown = [str(one).replace("\n", "\n    ") for one in self.rejections[:20]]
        rest = len(self.rejections) - len(shown)
        more = f"\n  … and {rest} more" if rest else ""
        what = "1 rule is wrong" if len(self.rejections) == 1 else f"{len(self.rejections)} rules are wrong"
        super().__init__(f"{what} (of {total}):\n  " + "\n  ".join(shown) + more, hint=hint)


class RuleSet(Sequence[Rule]):
    """An immutable sequence of rules with distinct ids."""

    def __init__(self, rules: Sequence[Rule]) -> None:
        self._rules = tuple(rules)
        self.by_id = {rule.id: rule for rule in self._rules}
        self._fingerprint = ""
        assert len(self.by_id) == len(self._rules), "ids are checked when rules are loaded"

    def __getitem__(self, index: int) -> Rule:  # type: ignore[override]
        return self._rules[index]

    def __iter__(self) -> Iterator[Rule]:
        return iter(self._rules)

    def __len__(self) -> int:
        return len(self._rules)

    def fingerprint(self) -> str:
        """Return a short text that changes with the order of the rules, and with the id, expression, severity or labels of a rule."""
        if not self._fingerprint:
            content = json.dumps([[r.id, r.expression, r.severity, r.labels] for r in self._rules], ensure_ascii=False)
            self._fingerprint = hashlib.sha256(content.encode()).hexdigest()[:16]
        return self._fingerprint
