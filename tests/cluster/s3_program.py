"""Runs conformance cases with their checkpoints in S3: python -m tests.cluster.s3_program MASTER DIRECTORY CHECKPOINTS NAME …

Further settings of Spark are JSON in the variable CONF, because they hold keys.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

from tests.conformance.run_cases import CASES

#: Micro-batches are small, so that there are enough of them to kill something in.
_RECORDS = 100

if __name__ == "__main__":
    master, directory, checkpoints, *names = sys.argv[1:]
    for case in CASES:
        place = Path(directory) / case.name
        if case.name in names and not (place / "done").exists():
            case.build(place).run(
                checkpoint=f"{checkpoints}/{case.name}",
                master=master,
                conf=json.loads(os.environ["CONF"]),
                max_micro_batch_records=_RECORDS,
            )
            (place / "done").touch()
