"""Jobs on a Spark cluster: a standalone master with workers, each a process of its own."""
