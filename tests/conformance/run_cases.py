"""Runs cases in a process of its own, so that a test can kill it.

    python -m tests.conformance.run_cases BACKEND DIRECTORY NAME …

A case that is done leaves a file ``done`` in its directory; started again, the process goes on with the others.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tests.conformance.case import Case
from tests.conformance.stateful_cases import CASES as STATEFUL
from tests.conformance.stateless_cases import CASES as STATELESS

CASES = [*STATELESS, *STATEFUL]
#: Many batches and checkpoints, so that there is much between which a kill can come.
OPTIONS: Mapping[str, Any] = {"checkpoint_interval": "50 ms", "max_batch_records": 20}


def main(backend: str, directory: str, names: list[str], cases: Sequence[Case] = CASES, **options: Any) -> None:
    for case in cases:
        place = Path(directory) / case.name
        if case.name not in names or (place / "done").exists():
            continue
        case.build(place).run(backend, checkpoint=place / "checkpoint", **options)
        (place / "done").touch()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], sys.argv[3:], **OPTIONS)
