"""A state store in RocksDB, for headrace."""
