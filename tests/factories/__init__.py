"""Rows for tests, written by the domain's own functions wherever it has one."""
