"""Run the node agent: `python -m worker.agent join|run`."""

import sys

from worker.agent.cli import main

sys.exit(main())
