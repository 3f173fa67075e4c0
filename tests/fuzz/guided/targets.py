"""All targets of the coverage-guided fuzzers, by name."""

from __future__ import annotations

from tests.fuzz.guided import bodies, frames, states, texts
from tests.fuzz.guided.target import Target

TARGETS: dict[str, Target] = {
    target.name: target for module in (bodies, texts, states, frames) for target in module.TARGETS
}
