"""The stateless verbs of the DSL: where, select, map, …"""
