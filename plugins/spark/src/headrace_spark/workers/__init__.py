"""What runs in Spark's Python workers: lanes, keyed stages and sinks, and the data sources that Spark calls."""
