"""The directory of a job's checkpoint: its files on disk or in an object store, the offsets in it, and which run owns it."""
