"""A virtual cluster around the engine: apply plans, let time pass, see what would happen."""
