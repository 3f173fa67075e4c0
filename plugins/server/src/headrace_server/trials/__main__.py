"""Entry point of a trial: the request comes on standard input, the answer goes into a file."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any


def main() -> None:
    """Read the request, set the limits, carry it out and write the answer."""
    import msgspec

    from headrace_server.runner.limits import Limits, set_limits

    asked = msgspec.json.decode(sys.stdin.buffer.read())
    set_limits(Limits(memory_max_bytes=asked.pop("memory_max_bytes")), group=None)
    answer = Path(asked.pop("answer"))
    answer.write_bytes(msgspec.json.encode(_answer(asked.pop("do"), asked), enc_hook=str))


def _answer(do: str, asked: dict[str, Any]) -> dict[str, Any]:
    from headrace.foundation.errors import HeadraceError

    from headrace_server.trials import over_last_records, replaying, rules, sql

    trials: dict[str, Callable[..., Any]] = {"lint": sql.lint, "sample": sql.sample, "rules": rules.list_rules, "explain": rules.explain,
              "try_rules": rules.try_rules,
              "replay": replaying.replay, "check_replay": replaying.check_replay, "shadow": over_last_records.shadow}  # fmt: skip
    try:
        return {"answer": trials[do](**asked)}
    except HeadraceError as error:
        notes = "".join(f"\n{note}" for note in getattr(error, "__notes__", ()))
        return {"error": str(error) + notes, "hint": None}
    except ModuleNotFoundError as error:
        name = (error.name or "").partition(".")[0].replace("_", "-")
        return {"error": str(error), "hint": f"pip install {name}" if name.startswith("headrace-") else None}
    except Exception as error:  # whatever code of a job raises; the answer is the only place where it can be told
        logging.getLogger("headrace_server").exception("a trial has failed")
        return {"error": f"{type(error).__name__}: {error}", "hint": None}


if __name__ == "__main__":
    main()
    sys.stdout.flush()
    # Threads of a source that hangs must not keep the process: the answer is written.
    os._exit(0)
