"""The corpus of a target: a text file of base64 lines, so that it can be read in a diff and kept in the repository."""

from __future__ import annotations

import base64
from collections.abc import Iterable
from pathlib import Path

PLACE = Path(__file__).parent / "corpus"
#: Larger inputs reach no other code, and make every run slow.
INPUT_BYTES_MAX = 4096


def load(target: str) -> list[bytes]:
    """Return the inputs that are kept for a target, in the order of the file."""
    path = PLACE / f"{target}.txt"
    return [base64.b64decode(line) for line in path.read_text().splitlines() if line] if path.exists() else []


def save(target: str, inputs: Iterable[bytes]) -> None:
    """Keep inputs for a target instead of those before: shortest first, each once."""
    PLACE.mkdir(exist_ok=True)
    ordered = sorted(set(inputs), key=lambda data: (len(data), data))
    (PLACE / f"{target}.txt").write_text("".join(base64.b64encode(data).decode() + "\n" for data in ordered))
