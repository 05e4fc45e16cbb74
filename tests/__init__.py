"""Terrace's tests."""
