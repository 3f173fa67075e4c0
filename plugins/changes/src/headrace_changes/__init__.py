"""Formats of rows that change: what tools that follow a database write into topics, to changelogs and back.

``decoder`` makes rows of the envelopes that a format's own module reads (``debezium``, ``canal``, ``maxwell``, ``ogg``, ``changelog``);
``encoder`` writes them; ``upsert`` reads topics whose last record of a key is its row. ``databases`` has the common
parts of connectors of databases that follow tables themselves.
"""
