"""When windows give results: EMIT behind an INSERT, and the options ``table.exec.emit.*``."""

from __future__ import annotations

from collections.abc import Mapping

from headrace.foundation.errors import OptionError
from headrace.interfaces.windows import Emit
from sqlglot import exp

from headrace_sql.binding.intervals import interval_us
from headrace_sql.reading.durations import duration_us

_PREFIX = "table.exec.emit."
_TTL = "table.exec.state.ttl"
#: For how long windows take late rows that EMIT … AFTER WATERMARK asks for, where nothing else is said.
LATENESS_US = 3_600_000_000


def state_ttl(options: Mapping[str, str]) -> dict[str, str]:
    """Return the option by which an operator forgets what nothing has come for: as ``table.exec.state.ttl`` says, if it does."""
    given = options.get(_TTL)
    length = 0 if given is None else duration_us(given, _TTL)
    return {"ttl": f"{length} us"} if length else {}


def emit_of(options: Mapping[str, str], clause: exp.Expr | None, text: str) -> Emit | None:
    """Return the settings of early and late results, or None if only final results are wanted."""
    before: int | None = None
    after: int | None = None
    if options.get(_PREFIX + "early-fire.enabled", "").lower() == "true":
        before = duration_us(options.get(_PREFIX + "early-fire.delay", "0 ms"), _PREFIX + "early-fire.delay")
    if options.get(_PREFIX + "late-fire.enabled", "").lower() == "true":
        after = duration_us(options.get(_PREFIX + "late-fire.delay", "0 ms"), _PREFIX + "late-fire.delay")
    if clause is not None:
        for key in ("before", "after"):
            delay = clause.args.get(key)
            if delay is None:
                continue
            length = 0 if isinstance(delay, exp.Boolean) else interval_us(delay, text, "EMIT")
            if key == "before":
                before = length
            else:
                after = length
    until = _lateness(options, clause, after)
    if before is None and after is None and not until:
        return None
    return Emit(before, after, until)


def _lateness(options: Mapping[str, str], clause: exp.Expr | None, after: int | None) -> int:
    """Return for how long after its end a window takes rows. Raises OptionError where only Flink's options ask for late results.

    By default, the updates of AFTER WATERMARK come for an hour, as in Blink, or for the state's time to live.
    """
    given = options.get(_PREFIX + "allow-lateness")
    if given is not None:
        return duration_us(given, _PREFIX + "allow-lateness")
    if after is None:
        return 0
    ttl = options.get(_TTL)
    if ttl is not None and duration_us(ttl, _TTL):
        return duration_us(ttl, _TTL)
    if clause is not None and clause.args.get("after") is not None:
        return LATENESS_US
    raise OptionError(
        f"{_PREFIX}late-fire.enabled has no effect without the next option: windows do not accept late rows",
        option=_PREFIX + "allow-lateness",
        hint=f"SET '{_PREFIX}allow-lateness' = '1 h'",
    )
