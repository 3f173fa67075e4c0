"""Worker processes of one job on one machine: they decode and transform records that the engine reads.

The engine reads all queues, and gives batches to the workers (``lane_workers``) through memory that both sides map (``slots``,
``exchange``). It takes the results in the order in which it has read (``reading_ahead``), so that order, positions, checkpoints and all
guarantees are those of one process. A worker (``process``, ``serving``) has nothing but the plan: if it dies, another one does its
batches again.
"""
