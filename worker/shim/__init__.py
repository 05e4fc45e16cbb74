"""The small supervisor that stands between the agent and one task's process."""
