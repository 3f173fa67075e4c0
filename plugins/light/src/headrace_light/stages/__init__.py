"""The keyed stages of a job, as the engine drives them: one interface, and the implementation for a process that has all shards itself.

``interface.py`` declares ``Stages``. ``none.py`` is for jobs without keyed verbs, ``local.py`` for shards of this process;
``headrace_light.shared`` has the third implementation. Nothing here imports the engine or ``headrace_light.shared``.
"""
