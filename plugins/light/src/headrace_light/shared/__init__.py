"""Keyed stages that the instances of a job share: shuffles are topics of a broker, shards and their state move.

``stages.py`` implements ``Stages`` with three parts: ``transport.py`` writes to the topics of shuffles, ``membership.py`` knows which
shards this instance has, ``restore.py`` loads and stores the state of shards.
"""
