"""Jobs that live for months: a server that starts, watches, upgrades and shows them.

Rooms, of which each imports only those before it: ``registry`` (the server's records, in a database), ``jobs_directory`` (what lies
in ``jobs/``), ``runner`` (the process that runs jobs), ``supervision`` (which keeps runners going), ``api`` (REST),
``service`` (units of systemd and launchd), ``commands`` (the command line).
"""

__version__ = "0.1.0"
