"""`python -m scheduling.scenario FILE…`: answers on stdout, the log on stderr."""

from __future__ import annotations

import logging
import sys

from scheduling.scenario.program import main

if __name__ == "__main__":
    logging.basicConfig(stream=sys.stderr, level=logging.ERROR)
    sys.exit(main(sys.argv[1:]))
