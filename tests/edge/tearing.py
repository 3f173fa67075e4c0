"""What a power cut leaves in the files of a box: pieces of a write that was not durable yet, and files that nobody gave their name."""

from __future__ import annotations

import random
from pathlib import Path

#: Files of which a part may lie behind the name of the whole one: what is replaced is written under this name first.
_NEW = ".new"


def tear(directory: Path, chance: random.Random) -> list[str]:
    """Leave torn files in the buffer and the checkpoint of a job that does not run; return what was done.

    Nothing that was durable is changed: a block that was never finished lies behind the last one of the buffer, and half of a file that
    was about to replace another one lies beside it.
    """
    done = []
    segments = sorted(directory.glob("buffer/*.log"))
    if segments:
        newest = segments[-1]
        length = chance.randrange(1, 5_000)
        kind = chance.choice(["zeros", "noise", "earlier block"])
        content = newest.read_bytes()
        if kind == "zeros":  # the length of the file was durable, its content not
            torn = bytes(length)
        elif kind == "noise":
            torn = chance.randbytes(length)
        else:
            begin = chance.randrange(len(content))
            torn = content[begin : begin + length]
        with newest.open("ab") as file:
            file.write(torn)
        done.append(f"{newest.name}: {len(torn)} bytes of {kind}")
    for path in sorted(directory.glob("buffer/*.json")) + sorted(directory.glob("state/**/*")):
        if path.is_file() and not path.name.endswith(_NEW) and chance.random() < 0.3:
            whole = path.read_bytes()
            path.with_name(path.name + _NEW).write_bytes(whole[: chance.randrange(len(whole) + 1)])
            done.append(f"{path.relative_to(directory)}{_NEW}")
    return done
