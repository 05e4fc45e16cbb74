"""The leased loops: scheduler, relay, reconcile."""
