"""How bodies are read: JSON without surprises, YAML as text for the spec's own bounded reader."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Mapping
from typing import Any, NoReturn

from rest_framework.exceptions import ParseError
from rest_framework.parsers import BaseParser

Context = Mapping[str, Any] | None


class JsonParser(BaseParser):
    """Reads JSON up to the view's own limit (`ApiView.largest_body`)."""

    media_type = "application/json"

    def parse(
        self, stream: Any, media_type: str | None = None, parser_context: Context = None
    ) -> Any:
        """Return the decoded value.

        Raises:
            ParseError: it is not JSON in UTF-8, is nested too deeply, says a key twice, or has a
                number that is none, such as NaN, or beyond what can be computed with.
        """
        del media_type, parser_context
        try:
            return json.loads(
                stream.read().decode(),
                parse_constant=_refuse,
                parse_float=_finite,
                object_pairs_hook=_without_repeats,
            )
        except RecursionError:
            raise ParseError("The JSON is nested too deeply.") from None
        except ValueError as error:
            raise ParseError(f"This is not JSON: {error}.") from None


class YamlParser(BaseParser):
    """Keeps YAML as bytes."""

    media_type = "application/yaml"

    def parse(
        self, stream: Any, media_type: str | None = None, parser_context: Context = None
    ) -> dict[str, bytes]:
        """Return the bytes under the key `yaml`."""
        del media_type, parser_context
        return {"yaml": stream.read()}


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is no JSON number")


def _finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(f"{text[:40]} is too large a number")
    return number


def _without_repeats(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return an object's members; of two with one key it could not be told which was meant."""
    found = dict(pairs)
    if len(found) < len(pairs):
        ((twice, _count),) = Counter(key for key, _value in pairs).most_common(1)
        raise ValueError(f"the key {twice[:80]!r} is there twice")
    return found
