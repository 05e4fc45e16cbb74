"""The default configuration, and the reader of Volcano's scheduler configuration."""

from __future__ import annotations

from scheduling.engine.types import ActionConfig, Config, PluginConfig

DEFAULT_CONFIG = Config(
    actions=(
        ActionConfig("enqueue"),
        ActionConfig("allocate", {"elastic": "false"}),
        ActionConfig("preempt"),
        ActionConfig("reclaim"),
        ActionConfig("elastic", {"takeBack": "true"}),
        ActionConfig("backfill"),
    ),
    tiers=(
        (
            PluginConfig("queue_policy"),
            PluginConfig("sla", {"sla.overdueOnly": "true"}),
            PluginConfig("priority", {"priority.elasticForAll": "true"}),
            PluginConfig("gang", {"gang.wholeGangs": "true"}),
            PluginConfig("conformance"),
        ),
        (
            PluginConfig("fair_users"),
            PluginConfig("drf", disabled=frozenset({"preemptable"})),
            PluginConfig("shares"),
            PluginConfig("predicates"),
            PluginConfig("packing"),
        ),
    ),
)
"""Serves a GPU cluster: shares by water-filling, gangs, elastic growth, preemption, reclaim."""
