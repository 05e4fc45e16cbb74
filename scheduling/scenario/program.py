"""Read files and print the answers as JSON lines."""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from scheduling.scenario.quantities import Data, UnsupportedCaseError
from scheduling.scenario.queries import answer_query
from scheduling.scenario.sessions import answer_session
from scheduling.spec.controller_cases import UnsupportedCaseError as UnsupportedControllersCaseError
from scheduling.spec.controller_cases import answer_controllers_case

log = logging.getLogger(__name__)


def answer_controllers(case: Data) -> dict[str, object]:
    """Say what becomes of a controller or admission case."""
    return {"then": answer_controllers_case(case["family"], case)}


KINDS: dict[str, Callable[[Data], dict[str, object]]] = {
    "session": answer_session,
    "query": answer_query,
    "controllers": answer_controllers,
}


def cases_of(data: Data) -> Iterator[Data]:
    """Yield the cases of a file."""
    if "cases" in data:
        for case in data["cases"]:
            yield {**{k: v for k, v in data.items() if k != "cases"}, **case}
    else:
        yield data


def answer(case: Data) -> dict[str, object]:
    """Answer one case, or say why not."""
    try:
        if "family" in case:
            return {"id": case["id"], "then": answer_controllers_case(str(case["family"]), case)}
        kind = str(case.get("kind"))
        if kind not in KINDS:
            return {"id": case.get("id"), "unsupported": f"kind {kind}"}
        return {"id": case["id"], **KINDS[kind](case)}
    except (UnsupportedCaseError, UnsupportedControllersCaseError) as error:
        return {"id": case.get("id"), "unsupported": str(error)}
    except Exception as error:
        log.warning("case %s failed", case.get("id"), exc_info=True)
        return {"id": case.get("id"), "unsupported": f"{type(error).__name__}: {error}"}


def main(paths: Sequence[str]) -> int:
    """Answer all cases of the files; 2 if one could not be read."""
    status = 0
    for path in paths:
        try:
            data = json.loads(Path(path).read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            sys.stderr.write(f"{path}: {error}\n")
            status = 2
            continue
        for case in cases_of(data):
            sys.stdout.write(json.dumps(answer(case)) + "\n")
    return status
