"""What everything else stands on, and what knows nothing of streams: errors, time, durable files, trying again, fault points.

Every room may import it. It imports nothing of headrace.
"""
