"""Who tried to log in: lines of sshd and sudo in ``auth.log`` to JSON lines with names of the Elastic Common Schema.

    headrace run examples/auth_log_to_files.py --set path=/var/log/auth.log --set logins=logins --set others=others --backend light

reads what is there; with ``--until never --checkpoint state/`` it follows the file until Ctrl-C. Lines that no pattern fits go to
``others``, each with the pattern that came farthest.
"""

from __future__ import annotations

import headrace as hr

PATTERNS = (
    "^%{SYSLOGBASE2} %{SSHD_ACCEPTED}",
    "^%{SYSLOGBASE2} %{SSHD_FAILED}",
    "^%{SYSLOGBASE2} %{SSHD_INVALID}",
    "^%{SYSLOGBASE2} +%{SUDO}$",
)


def job(path: str, logins: str = "logins", others: str = "others") -> hr.Job:
    """Return the job; ``headrace run`` sets the arguments from ``--set NAME=VALUE``."""
    lines = hr.stream("examples", "auth-log").from_file(path, format="raw")
    made: hr.Job = (
        lines.grok(PATTERNS, on="line", names="ecs")
        .with_columns(outcome="CASE WHEN line LIKE '% Accepted %' THEN 'success' ELSE 'failure' END")
        .where('"source.ip" IS NOT NULL')
        .select("timestamp", '"host.hostname"', '"user.name"', '"source.ip"', '"source.port"', "outcome")
        .dead_letters(lambda bad: bad.select("reason", "row").to_file(others, format="json"))
        .to_file(logins, format="json")
    )
    return made
