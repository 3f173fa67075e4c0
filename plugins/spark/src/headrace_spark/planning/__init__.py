"""What a micro-batch reads, decided in the planner's process beside the driver."""
