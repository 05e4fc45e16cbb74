"""What stops a backup or a restore."""


class BackupError(Exception):
    """It cannot go on; the message says why and what to do."""
