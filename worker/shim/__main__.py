"""Start the supervisor of one attempt: `python -m worker.shim SPECFILE [LOCK_FD STATUS_FD]`.

The agent adds a third descriptor where the task has secrets: a file in memory that holds them.

The agent runs this file by its path under `python -I -S`, which skips site-packages: the shim
needs the standard library only, and every millisecond here is a millisecond before the task runs.
"""

import os
import sys

if not __package__:
    sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))

from worker.shim.supervisor import main

sys.exit(main(sys.argv[1:]))
