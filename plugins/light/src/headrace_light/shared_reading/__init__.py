"""Jobs of one process that read the same topics: records are fetched and decoded once, each job keeps its own positions.

``source.py`` stands in the plan of a job in the place of its source. ``reader.py`` reads a queue for one job: from what all have read,
or by itself where the job is at another place. ``feed.py`` is a queue that is read for all, ``hub.py`` the source with its feeds,
``decoding.py`` decodes the columns that all want. Nothing here imports the engine.
"""
