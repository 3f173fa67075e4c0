"""A trace as a sequence diagram (Mermaid): who asked whom for what, what failed, and who was killed."""

from __future__ import annotations

import re

from tests.simulation.world.trace import Event, Trace

_DISK = {"open", "write", "sync", "rename", "remove", "mkdir", "truncate", "link"}
_SERVER = re.compile(r"(s\d|table|bad|broker)(\.done)?")
_LEFT_OUT = {"thread.start", "thread.join", "has"}
_NOTED = {"killed", "power failed", "bit turned", "fails", "expels", "pause", "expel", "kill", "stop"}


def diagram(trace: Trace, *, events_max: int = 120) -> str:
    """Return a sequence diagram of the last events of a trace."""
    lines = [line for event in trace.events if (line := _line(event)) is not None]
    left_out = len(lines) - events_max
    shown = lines[-events_max:]
    if left_out > 0:
        shown.insert(0, f"  Note over driver: {left_out} events before")
    return "\n".join(["sequenceDiagram", "  participant driver", *shown, ""])


def _line(event: Event) -> str | None:
    """Return an event as a line; None: it is left out."""
    who, what = _name(event.who.partition("/")[0]), _text(event.what)
    if event.kind in _LEFT_OUT:
        return None
    if event.kind == "start":
        return f"  {who}->>{_name(event.what)}: start"
    if server := _SERVER.fullmatch(event.kind):
        return f"  {server[1]}-->>{who}: {what}" if server[2] else f"  {who}->>{server[1]}: {what}"
    if event.kind in _DISK:
        return f"  {who}->>disk: {event.kind} {what}"
    mark = "!" if event.kind in _NOTED else ""
    return f"  Note over {who}: {event.us / 1e6:.3f} s {event.kind}{mark} {what}".rstrip()


def _name(text: str) -> str:
    return re.sub(r"\W", "_", text)


def _text(text: str) -> str:
    return re.sub(r"[;#:]", " ", text)
