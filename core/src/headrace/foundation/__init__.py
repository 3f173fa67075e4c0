"""Basic parts that do not depend on streams, used by all other rooms: errors, time, durable files, retries, fault points.

Every room may import it. It imports nothing of headrace.
"""
