"""What runs: the operators that only SQL needs, and the sources and sinks of this package. This is the lowest room. Its modules know
neither the syntax of SQL nor queries, and import no other room. All other rooms may import it.
"""
