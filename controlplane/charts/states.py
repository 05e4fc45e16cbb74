"""Which state token (glyph, label, colour) a phase or state shows as."""

PHASES = {
    "Running": "running",
    "Restarting": "terminating",
    "Aborting": "terminating",
    "Completing": "terminating",
    "Terminating": "terminating",
    "Aborted": "held",
    "Terminated": "held",
    "Completed": "succeeded",
    "Failed": "failed",
}
ATTEMPTS = {
    "Pending": "pending",
    "Bound": "queued",
    "Starting": "queued",
    "Running": "running",
    "Stopping": "terminating",
    "Succeeded": "succeeded",
    "Failed": "failed",
    "Evicted": "preempted",
    "Cancelled": "held",
    "Lost": "unknown",
}
TOKENS = (
    "queued",
    "pending",
    "running",
    "succeeded",
    "failed",
    "preempted",
    "held",
    "terminating",
    "unknown",
)


def phase_token(phase: str, gang_phase: str) -> str:
    """Return the token of a job: a pending one is queued until it was admitted."""
    if phase == "Pending":
        return "queued" if gang_phase in {"", "Pending"} else "pending"
    return PHASES.get(phase, "unknown")


def attempt_token(state: str) -> str:
    """Return the token of a task or attempt."""
    return ATTEMPTS.get(state, "unknown")
