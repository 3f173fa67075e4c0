"""The processes of a Spark, and how they start: Java, the session and its options, and Python workers that are forked.

Only code of the driver comes in here, and Spark itself, which starts the daemon and the fork client.
"""
