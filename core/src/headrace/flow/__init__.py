"""What flows through a job: queues and positions, batches with their header, system messages, schemas, rows of unknown columns,
changes, dead letters, and the hash that decides the shard of a key.

Every room above may import it. It imports only ``foundation``.
"""
