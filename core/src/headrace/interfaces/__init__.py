"""What a plug-in implements, and how it is found: sources, sinks, operators, codecs, functions, state stores, topics, languages,
backends, their options and the hooks of pluggy.

Most of it is public: ``import headrace as hr`` gives it. It imports ``foundation`` and ``flow``, and names the plan in type
annotations only.
"""
