"""Entry point of the ``headrace`` script: signals are handled before anything else is imported."""

from __future__ import annotations

import signal
import sys
from types import FrameType
from typing import NoReturn

EXIT_INTERRUPTED = 130
EXIT_TERMINATED = 143


class StopAsked(BaseException):
    """SIGTERM has come, or Ctrl-C while a job was loaded or started. No job runs yet that could be stopped gracefully."""


def ask_to_stop(number: int, frame: FrameType | None) -> NoReturn:
    """Handle a signal: interrupt the main thread with StopAsked, whatever it is doing."""
    raise StopAsked


def main() -> None:
    """Run the command. SIGTERM ends it with a message and an exit code; ``run`` handles signals itself later on."""
    signal.signal(signal.SIGTERM, ask_to_stop)
    try:
        from headrace_console.app import app

        app()
    except StopAsked:
        sys.stderr.write("terminated\n")
        sys.exit(EXIT_TERMINATED)
    except KeyboardInterrupt:
        sys.stderr.write("interrupted\n")
        sys.exit(EXIT_INTERRUPTED)


if __name__ == "__main__":
    main()
