"""What the server knows: jobs, their versions, their runs, and operations that take long. In one database, by one URL."""

from headrace_server.registry.tables import metadata

__all__ = ["metadata"]
