"""The base of plugins: a plugin acts by defining callbacks that the session asks."""

from __future__ import annotations

from collections.abc import Mapping

from scheduling.engine.callbacks import is_on
from scheduling.engine.session import Session
from scheduling.engine.types import PluginConfig


class Plugin:
    """Base of the plugins. A plugin acts by defining any of the callbacks named in `CALLBACKS`."""

    name = ""
    votes_alike = False
    """Whether its votes on evictions are the same for victims of one kind, see `kind_of`, that
    have no annotations; a plugin that does not say so is asked about each."""

    def __init__(self, session: Session, config: PluginConfig) -> None:
        """Keep the session, the configuration and its arguments."""
        self.session = session
        self.config = config
        self.arguments: Mapping[str, str] = config.arguments

    def has_flag(self, flag: str) -> bool:
        """Return whether a flag is set for this plugin."""
        return is_on(self.config, flag)

    def number(self, key: str, default: float) -> float:
        """Return a numeric argument; `parse_config` has refused what is no number."""
        return float(self.arguments.get(key, default))

    def flag(self, key: str, *, default: bool) -> bool:
        """Return a boolean argument."""
        value = self.arguments.get(key)
        return default if value is None else value.strip().lower() in ("true", "yes", "1", "on")
