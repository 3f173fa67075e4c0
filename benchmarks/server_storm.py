"""Faults over several servers whose jobs are under load: kills, pauses, stops, clocks that are set.

    python -m benchmarks.server_storm [--faults 30] [--seed 15] [--jobs 6] [--registry sqlite|mysql|postgresql]

Three servers, each on a machine of its own as far as they know (with SQLite: on one), share a registry. A seed chooses the faults.
Shown is, by kind of fault, the longest pause in the output of a job from the fault until the job runs where it stays; the usual pause
is 0.1 s. At the end each row is counted, and the batches that each job has noted are looked through for two processes that worked on
it at a time. The code, and a short form, are beside the tests of the server.
"""

from __future__ import annotations

import runpy
import sys
from pathlib import Path

if __name__ == "__main__":
    place = Path(__file__).parents[1] / "plugins" / "server" / "tests"
    sys.path.insert(0, str(place))
    runpy.run_path(str(place / "server_storm.py"), run_name="__main__")
