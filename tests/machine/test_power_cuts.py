"""A box at the edge whose power is cut: the kernel's memory is gone, and what was answered is there once all the same."""

from __future__ import annotations

import json
import random
import sys
from collections import Counter
from pathlib import Path

import pytest

from tests.machine.machine import Machine
from tests.packaging.wheels import ROOT
from tests.servers.fixtures import skipped_where_impossible

pytestmark = [pytest.mark.slow, pytest.mark.servers, pytest.mark.timeout(3600)]

#: Takes records over HTTP into its buffer, and stores them in SQLite.
JOB = f"{sys.executable} {ROOT / 'tests' / 'edge' / 'http_job.py'} 8088"
#: Sends records as fast as they are taken, and writes down which were answered, outside of the machine.
SENDER = """
import json, sys, time, urllib.request
answered, n = open("/share/answered", "a"), int(sys.argv[1])
while True:
    numbers = range(n, n + 40)
    body = "".join(json.dumps({"n": each, "pad": "x" * 200}) + "\\n" for each in numbers).encode()
    request = urllib.request.Request("http://127.0.0.1:8088/", body, {"content-type": "application/x-ndjson"})
    try:
        urllib.request.urlopen(request).close()
    except OSError:
        time.sleep(0.1)
        continue  # the first answer is waited for; records of one number are sent once it was given
    answered.write("".join(f"{each}\\n" for each in numbers))
    answered.flush()
    n += 40
"""
MOUNT = (
    "[ -e /share/made ] || (mkfs.ext4 -q /dev/vda && touch /share/made)\nmkdir -p /box\nmount /dev/vda /box\ncd /box\n"
)


@pytest.mark.parametrize("cuts", [1, 3])
def test_what_was_answered_is_there_once_though_the_power_is_cut(tmp_path: Path, cuts: int) -> None:
    share, disk = tmp_path / "share", tmp_path / "disk"
    share.mkdir()
    with disk.open("wb") as file:
        file.truncate(512 * 2**20)
    with skipped_where_impossible():
        machine = Machine(share, disk)
    (share / "sender.py").write_text(SENDER)
    (share / "answered").touch()
    chance = random.Random(5)

    def answered() -> list[int]:
        return [int(line) for line in (share / "answered").read_text().split("\n")[:-1]]

    for cut in range(cuts):
        wanted = len(answered()) + chance.randrange(400, 2_000)
        begin = (cut + 1) * 1_000_000
        machine.cut_power(
            f"{MOUNT}{JOB} listen &\n/usr/bin/python3 /share/sender.py {begin}\n",
            lambda wanted=wanted: len(answered()) >= wanted,  # type: ignore[misc]
        )
    read = (
        "import json, sqlite3; print(json.dumps(sqlite3.connect('rows.db').execute('SELECT n FROM rows').fetchall()))"
    )
    told = machine.run(f'{MOUNT}dmesg >&2\n{JOB} end >&2\n/usr/bin/python3 -c "{read}"\n')
    found = Counter(n for (n,) in json.loads(told.splitlines()[-1]))
    assert "recovery complete" in (share / "errors").read_text(), "the file system was mounted after a cut"
    assert set(answered()) <= set(found)
    # At most one request of each cut was stored and not answered.
    assert len(found) - len(set(answered())) <= 40 * cuts
    assert max(found.values()) == 1
