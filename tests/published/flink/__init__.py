"""The test programs that Flink publishes for its own SQL engine."""
