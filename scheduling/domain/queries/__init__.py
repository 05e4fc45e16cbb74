"""The read side for pages and API: keyset pages, counters, nothing that writes."""
