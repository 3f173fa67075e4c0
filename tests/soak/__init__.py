"""Hours on real servers: jobs run while processes are killed and servers restarted, and a model checks each row as it appears."""
