"""The shards of keyed stages: which there are, which of them gets a row, and how the state of one is stored."""
