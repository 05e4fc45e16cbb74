"""What can go wrong while starting: each message says what to do next."""


class StartError(Exception):
    """Something needed is missing or did not start; the message is for the person who started."""
