"""What is wrong with how a cluster schedules and places, in words; `wording` shows them."""

from django.utils.functional import Promise
from django.utils.translation import gettext_lazy as _

TEXTS: dict[str, Promise] = {
    "config_invalid_yaml": _("This is not YAML: {detail}."),
    "config_not_a_mapping": _("A mapping of names and values is expected here."),
    "config_not_a_list": _("A list is expected here."),
    "config_unknown_key": _("This key is not known. Known are: {known}."),
    "config_no_actions": _("Name the actions of a cycle, such as “enqueue, allocate, backfill”."),
    "config_unknown_action": _("There is no action “{name}”. There are: {known}."),
    "config_no_tiers": _("At least one tier with plugins is needed."),
    "config_no_name": _("A name is missing here."),
    "config_faulty_plugin": _("The installed plugin “{name}” could not be loaded: {detail}."),
    "config_unknown_plugin": _("There is no plugin “{name}”. There are: {known}."),
    "config_not_a_boolean": _("“{value}” is neither true nor false."),
    "config_not_a_duration": _("“{value}” is not a duration; write it like 90s, 15m or 1h30m."),
    "config_not_a_number": _("“{value}” is not a number."),
    "config_not_a_number_from": _("“{value}” is not a number from {least} on."),
    "config_not_a_count": _("“{value}” is not a whole number from {least} on."),
    "config_not_a_choice": _("“{value}” is not one of: {known}."),
    "config_not_hours": _("“{value}” is not a span of the day; write it like 22:00-06:00."),
    "config_not_a_time_zone": _("“{value}” is not a time zone, such as Asia/Shanghai."),
    "config_argument_form": _("This cannot be read; write it like {example}."),
    "config_argument_unknown": _(
        "Nothing reads the argument “{name}” here; it changes nothing. Known are: {known}."
    ),
    "config_argument_ignored": _(
        "“{name}” is read, so that a file of Volcano's carries over, and changes nothing."
    ),
    "config_two_share_rules": _(
        "{plugins}: each of these says what a queue deserves; name only one of them."
    ),
    "tier_name": _(
        "“{name}” is not a tier's name: up to 63 small letters, digits and dashes, like “rack”."
    ),
    "tier_label": _("“{label}” is not the key of a label, such as “topology/rack”."),
    "label_key": _("“{key}” is not the key of a label, such as “topology/rack”."),
    "label_value": _("“{value}” is not a label's value: letters, digits, dashes, dots, up to 63."),
    "taint_effect": _("“{effect}” is no effect of a taint. There are: {known}."),
    "taint_twice": _("“{key}” stands twice with the same effect."),
    "node_group_name": _(
        "“{name}” is not the name of a group of nodes: letters, digits, dashes, dots, up to 63."
    ),
    "group_limit": _(
        "“{line}” is no limit; write a group and its amounts, such as “a100: gpu=8 memory=512Gi”."
    ),
    "node_group_twice": _("“{name}” is wanted and kept away from; one of both."),
    "tier_repeated": _("“{name}” stands twice; each tier needs its own."),
}
