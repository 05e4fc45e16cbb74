"""Read scenario files, print the engine's decisions as JSON lines: `python -m scheduling.scenario`.

It only translates: a file into a snapshot, a configuration and a question (`cluster`, `jobs`,
`cases`); a plan or a plugin's answer into names and quantities (`sessions`, `queries`). What it
cannot express it prints as unsupported (`program`).
"""

from scheduling.scenario.program import answer, main

__all__ = ["answer", "main"]
