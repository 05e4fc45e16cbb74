"""The demo: an organisation, a simulated fleet, a trace replayed through the public API."""
