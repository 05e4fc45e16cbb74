"""The scheduling engine: a pure function from a snapshot and a configuration to a plan."""
