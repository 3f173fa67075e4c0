"""What backends drive: the lane of a queue, shards, the writers of sinks, dead letters, savepoints, and waiting for servers.

All semantics of a running job live here or in operators. A backend brings processes, threads and where checkpoints are kept. Plug-ins
that are backends import it; no other plug-in should.
"""
