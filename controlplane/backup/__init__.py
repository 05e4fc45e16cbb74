"""Backups: a folder with the database, the files and a manifest, and the way back from one."""
