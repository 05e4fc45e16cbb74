"""A cluster's own plugin: found by entry point, or refused with the reason."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from scheduling.engine import registry
from scheduling.engine.config import parse_config
from scheduling.engine.cycle import plan
from scheduling.engine.explain import explain
from tests.scenarios import read

SOURCE = """
import numpy as np
from scheduling.engine.plugin import Plugin

class Last(Plugin):
    def node_order(self, shape, nodes):
        return np.arange(self.session.tables.nodes.count)[nodes] * 1.0

class Crowd(Plugin):
    def predicate(self, shape):
        return np.full(self.session.tables.nodes.count, len(self.session.groups) > 1)

NOT_A_PLUGIN = 7
"""

NAMES = """
[terrace.scheduler.plugins]
own-last = own_terrace_plugins:Last
own-crowd = own_terrace_plugins:Crowd
own-number = own_terrace_plugins:NOT_A_PLUGIN
own-missing = own_terrace_plugins:Nothing
gang = own_terrace_plugins:Last
"""

TEXT = """
actions: allocate
tiers:
- plugins:
  - name: gang
  - name: {name}
"""


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Install a package that offers plugins."""
    (tmp_path / "own_terrace_plugins.py").write_text(SOURCE, encoding="utf-8")
    info = tmp_path / "own_terrace_plugins-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Name: own-terrace-plugins\nVersion: 1.0\n", encoding="utf-8")
    (info / "entry_points.txt").write_text(NAMES, encoding="utf-8")
    monkeypatch.syspath_prepend(str(tmp_path))
    known = dict(registry.PLUGINS)
    registry.load_installed()
    yield
    registry.PLUGINS.clear()
    registry.PLUGINS.update(known)
    registry.FAULTY.clear()
    sys.modules.pop("own_terrace_plugins", None)


@pytest.mark.usefixtures("installed")
def test_an_installed_plugin_acts_by_its_name() -> None:
    """It scores the last node highest."""
    config = parse_config(TEXT.format(name="own-last")).config

    assert config is not None
    found = plan(read("nodes n1 n2 n3: cpu=1\nqueue q:\njob q/a: 1 x cpu=1"), config)
    assert [b.node for b in found.binds] == ["n3"]


@pytest.mark.usefixtures("installed")
@pytest.mark.parametrize(
    ("name", "detail"),
    [("own-number", "is no subclass of Plugin"), ("own-missing", "AttributeError")],
)
def test_a_plugin_that_cannot_be_loaded_is_refused_with_the_reason(name: str, detail: str) -> None:
    """The configuration names the place, and what is wrong with the package."""
    parsed = parse_config(TEXT.format(name=name))

    assert parsed.config is None
    assert [(p.path, p.code) for p in parsed.problems] == [
        ("tiers[0].plugins[1].name", "faulty_plugin")
    ]
    assert detail in str(parsed.problems[0].params["detail"])


@pytest.mark.usefixtures("installed")
def test_a_plugin_cannot_take_the_name_of_another_one() -> None:
    """Gang stays gang."""
    assert registry.PLUGINS["gang"].__name__ == "Gang"
    assert registry.FAULTY["gang"] == "the name is taken by another plugin"


@pytest.mark.usefixtures("installed")
def test_a_plugin_that_looks_at_others_finds_them_when_one_job_is_explained() -> None:
    """What is said of one job is what the cycle of all does, whatever a plugin goes by."""
    config = parse_config(TEXT.format(name="own-crowd")).config
    snapshot = read("nodes n1: cpu=1\nqueue q:\njob q/a: 1 x cpu=9\njob q/b: 1 x cpu=1")

    assert config is not None
    (bind,) = plan(snapshot, config).binds
    assert explain(snapshot, config, bind.job).starts
