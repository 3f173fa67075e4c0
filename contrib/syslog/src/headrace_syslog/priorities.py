"""The names of facilities and severities, by their numbers."""

FACILITIES = (
    "kern", "user", "mail", "daemon", "auth", "syslog", "lpr", "news", "uucp", "cron", "authpriv", "ftp", "ntp", "audit", "alert",
    "clock", *(f"local{number}" for number in range(8)),
)  # fmt: skip
SEVERITIES = ("emerg", "alert", "crit", "err", "warning", "notice", "info", "debug")
#: The largest priority: facility 23, severity 7.
PRIORITY_MAX = 191
