"""What this copy counts about itself, for /metrics."""

from prometheus_client import Counter, Gauge, Histogram

SESSIONS = Gauge("terrace_gateway_sessions", "Agents' sessions held by this copy")
FRAMES = Counter("terrace_gateway_frames_total", "Frames received from agents", ["type"])
REFUSED = Counter("terrace_gateway_refused_total", "Sessions and joins refused", ["code"])
REPORTS = Counter("terrace_gateway_reports_total", "Reports committed")
COMMANDS = Counter("terrace_gateway_commands_total", "Commands sent to agents", ["type"])
COMMIT_SECONDS = Histogram(
    "terrace_gateway_commit_seconds",
    "From a report's arrival to its acknowledgement",
    buckets=(0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10),
)
