"""Seeded sets of rules over the events of demo/security_events.py, for the measurements of rules.

``selective`` rules ask for things that normal traffic has not, as detection rules do. ``fragments`` are made of pieces of
normal traffic, the worst case for an engine that looks for texts: each is found all the time, and few rules match. Of the
``numbers`` rules one of twenty asks for a whole number alone, the others are ``selective``. All
begin with the same 41 - N patterns that find the attacks in the traffic, about one event in a hundred.
"""

from __future__ import annotations

import itertools
import random
import re
from collections.abc import Callable, Mapping

from demo.security_events import events

#: The columns that the rules read, and their types.
COLUMNS = {"host": "string", "user": "string", "process": "string", "cmdline": "string", "exit_code": "int64"}
#: What finds the attacks that the generator puts into the traffic.
ATTACKS = [
    "lower(cmdline) LIKE '%curl%|%sh' AND process = 'curl'",
    "cmdline LIKE '%/dev/tcp/%'",
    "cmdline LIKE '%/etc/shadow%' AND process IN ('cat', 'less', 'grep')",
    "cmdline RLIKE 'socket.*pty.*connect'",
    "cmdline LIKE '%.ssh/id_rsa%' AND user <> 'root'",
    "process = 'wget' AND cmdline LIKE '%| sh%'",
    "lower(cmdline) LIKE '%chmod +x /tmp/.%'",
]
_TOOLS = ["mimikatz", "xmrig", "cobalt", "meterpreter", "lazagne", "chisel", "ligolo", "sliver", "havoc", "rubeus"]
_PLACES = ["/tmp/.", "/dev/shm/", "/var/tmp/.", "/usr/share/.cache/", "/run/user/"]


def rule_set(kind: str, count: int, seed: int = 41) -> list[Mapping[str, str]]:
    """Return ``count`` rules of a kind (``selective``, ``numbers`` or ``fragments``) as the ``rules`` verb takes them."""
    rng = random.Random(f"{kind} {seed}")
    make: Callable[[random.Random], str] = _Fragments(rng) if kind == "fragments" else _selective
    rules: list[Mapping[str, str]] = [
        {"id": f"attack-{number}", "expression": text} for number, text in enumerate(ATTACKS)
    ]
    known = set(ATTACKS)
    while len(rules) < count:
        number = kind == "numbers" and len(rules) % 20 == 0
        text = f"exit_code = {rng.randrange(300, 65_536)}" if number else make(rng)
        if text not in known:
            known.add(text)
            rules.append({"id": f"{kind}-{len(rules)}", "expression": text})
    return rules[:count]


def _selective(rng: random.Random) -> str:
    token = f"{rng.choice(_TOOLS)}-{rng.getrandbits(32):08x}"
    kinds: list[Callable[[], str]] = [
        lambda: f"cmdline LIKE '%{token}%'",
        lambda: f"lower(cmdline) LIKE '%{token}%' AND user <> 'root'",
        lambda: f"process = 'bash' AND cmdline LIKE '%{rng.choice(_PLACES)}{token}%'",
        lambda: f"cmdline RLIKE '(curl|wget) .*{token}[.](sh|elf)'",
        lambda: f"cmdline LIKE '%{token}%--socks%' OR cmdline LIKE '%{token}%--tunnel%'",
        lambda: f"process IN ('{token}', '{token}.bin') AND exit_code = 0",
        lambda: f"host LIKE 'web-%' AND cmdline LIKE 'sh -c {token}%' AND exit_code BETWEEN 0 AND 2",
        lambda: f"user = 'svc-{token}' AND NOT cmdline LIKE '%backup%'",
    ]
    return rng.choice(kinds)()


class _Fragments:
    """Conditions from pieces of two events that hardly ever meet in one.

    A piece of a command is 10 to 18 characters, nine of ten with a number of several digits in it, the others with a digit:
    with 10,000 rules about eight triggers are met in every event.
    """

    def __init__(self, rng: random.Random) -> None:
        self._events = list(itertools.islice(events(20_000, seed=rng.randrange(10**6), suspicious_share=0.0), 20_000))

    def __call__(self, rng: random.Random) -> str:
        one, other = rng.choice(self._events), rng.choice(self._events)
        command = str(one["cmdline"])
        length = min(len(command), rng.randrange(10, 19))
        start = rng.randrange(len(command) - length + 1)
        piece = command[start : start + length].replace("'", "''").replace("%", "").replace("_", "")
        if re.search(r"\d\d" if rng.random() < 0.9 else r"\d", piece) is None:
            return self(rng)
        kinds: list[Callable[[], str]] = [
            lambda: f"cmdline LIKE '%{piece}%' AND host = '{other['host']}'",
            lambda: f"cmdline LIKE '%{piece}%' AND user = '{other['user']}' AND process = '{other['process']}'",
            lambda: (
                f"lower(cmdline) LIKE '%{piece.lower()}%' AND host LIKE '%{str(other['host'])[-4:]}'"
                f" AND exit_code = {other['exit_code']}"
            ),
            lambda: (
                f"cmdline LIKE '{piece}%' AND user IN ('{other['user']}', '{one['user']}') AND host = '{other['host']}'"
            ),
        ]
        return rng.choice(kinds)()
