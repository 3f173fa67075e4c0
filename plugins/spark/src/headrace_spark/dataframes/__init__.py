"""DataFrames of Spark as sources: their rows, and the types of their columns on both sides."""
