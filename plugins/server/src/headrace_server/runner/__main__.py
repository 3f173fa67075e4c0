"""Entry point of a runner: limits and log first, then the jobs."""

from __future__ import annotations

import faulthandler
import logging
import os
import signal
import sys
from pathlib import Path


def main(file: Path) -> int:
    """Run the jobs of the specification in ``file``. Returns 0: how each job has ended is in the file of results."""
    from headrace.foundation.errors import OptionError

    from headrace_server.runner.limits import set_limits
    from headrace_server.runner.log_file import LogFile
    from headrace_server.runner.specification import JobOutcome, RunnerSpecification, write_result

    specification = RunnerSpecification.read(file)
    given = sys.stdin.buffer.read() if specification.leased else b""
    log = LogFile(Path(specification.log))
    log.open(specification.log_format)
    faulthandler.enable()
    try:
        set_limits(specification.limits, group=specification.control_group)
    except OptionError as error:
        refused = JobOutcome(outcome="refused", reason=str(error))
        write_result(file, {job.name: refused for job in specification.jobs})
        return 0
    os.chdir(specification.work_directory)

    from headrace_server.runner.service import Runner

    access = None
    if given:
        import msgspec

        from headrace_server.runner.unit_lease import Access

        access = msgspec.json.decode(given, type=Access)
    runner = Runner(specification, file, access=access)
    signal.signal(signal.SIGTERM, runner.ask_to_stop)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    logging.getLogger("headrace_server").info(
        "runner of %s begins: %s",
        specification.unit,
        ", ".join(f"{j.name} version {j.version}" for j in specification.jobs),
    )
    runner.run(log)
    return 0


if __name__ == "__main__":
    code = main(Path(sys.argv[1]))
    sys.stdout.flush()
    sys.stderr.flush()
    # Threads of a job that hangs must not keep the process: everything durable is written.
    os._exit(code)
