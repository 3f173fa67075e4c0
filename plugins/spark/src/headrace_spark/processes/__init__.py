"""The processes of a Spark, and how they start: Java, the session and its options, and Python workers that are forked.

Only the driver's code uses this room, and Spark, which starts the daemon and the fork client.
"""
