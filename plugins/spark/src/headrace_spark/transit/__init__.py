"""What travels between the driver, the planner and the workers.

This is the job itself, envelopes with rows, ranges of queues, counts and errors.
"""
