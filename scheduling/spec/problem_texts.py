# ruff: noqa: E501 - a sentence is easier to read and to translate in one line
"""The English sentence for each code of problems and notes, with named placeholders.

`scheduling.domain.wording` translates them. A sentence says what is wrong and what would do.
"""

from __future__ import annotations

from collections.abc import Mapping


def _(text: str) -> str:
    """Mark a sentence for the translators' tool, which finds calls of this name."""
    return text


PROBLEM_TEXTS: Mapping[str, str] = {
    # reading a document
    "document_too_large": _("The document has {size} bytes; at most {limit} are read. Upload data as files instead."),
    "not_utf8": _("The document is not UTF-8 text (byte {position}). Save it as UTF-8."),
    "not_yaml": _("Line {line}, column {column}: this is not YAML ({detail})."),
    "empty_document": _("The document is empty. Write or paste a job."),
    "too_many_documents": _("The file has more than {limit} documents. Split it."),
    "too_many_nodes": _("The document has more than {limit} values. Split it, or upload data as files."),
    "too_many_alias_nodes": _("Line {line}: aliases stand for more than {limit} values. Write them out, or use fewer."),
    "too_deep": _("Maps and lists are nested more than {limit} levels deep. Flatten the document."),
    "duplicate_key": _('Line {line}: "{key}" is given twice in one map. Remove one of them.'),
    "key_not_text": _("Line {line}: the name of an entry must be a plain text. Text with braces or brackets needs quotes."),
    "merge_not_map": _("Line {line}: only maps can be merged with <<."),
    "tag_not_allowed": _("Line {line}: the tag {tag} is not allowed. Use plain values."),
    "tag_does_not_fit": _("Line {line}: the value does not fit its tag {tag}."),
    "unknown_alias": _('Line {line}: there is no anchor named "{alias}" before this place.'),
    "not_one_job": _("The text holds {count} documents; submit one job at a time, or import the file."),
    "not_a_job": _(
        "A document of kind {kind} ({api}) is not a job. Submit the job alone: what belongs to its"
        " gang (PodGroup) is made from its own min_available."
    ),
    "unsupported_kind": _("Terrace does not read documents of kind {kind} ({api})."),
    "required": _("This is needed."),
    "wrong_type": _("This must be {expected}, not {value}."),
    "unknown_field": _('There is no field "{field}". Did you mean: {hint}?'),
    "invalid_choice": _('"{value}" is not possible here; choose {allowed}.'),
    "not_a_quantity": _('"{value}" is not an amount of {resource}. Write cores and GPUs like 2 or 500m, memory like 512Mi or 4Gi.'),
    "not_a_duration": _('"{value}" is not a duration. Write it like 90s, 10m or 1h30m.'),
    "not_json": _("This annotation is not JSON."),
    "not_arguments": _("The arguments cannot be split into words ({detail}). Close the quotes."),
    # names and sizes
    "no_task": _("A job needs at least one role."),
    "nothing_to_run": _('Role "{role}" names no image, runtime or command: there is nothing to run.'),
    "no_container": _('The template of role "{role}" has no container. Give one with an image or command.'),
    "invalid_job_name": _("\"{name}\" cannot be a job's name: use lower-case letters, digits and '-', begin with a letter, end with a letter or digit, 63 characters at most, because it becomes a host name."),
    "invalid_name": _("\"{name}\" is not a valid name: use lower-case letters, digits and '-', begin and end with a letter or digit, 63 characters at most."),
    "duplicate_task_name": _('"{name}" is used twice; role names must differ.'),
    "pod_name_too_long": _("The longest task name \"{pod}\" has {length} characters, the limit is {limit}; shorten the job's or the role's name."),
    "too_many": _("{count} entries are given; at most {limit} are possible."),
    "too_many_tasks": _("The roles together have {count} tasks; a job may have {limit}. Split it into several jobs."),
    "text_too_long": _("This text has {length} characters; at most {limit} are possible. Put long scripts into a file."),
    "nul_character": _("A text given to a process cannot contain the character NUL."),
    "negative_number": _("{value} is below zero; give 0 or more, or leave it out."),
    "number_too_large": _("{value} is too large; the limit is {limit}."),
    "below_one": _("{value} is too small; it must be at least 1, or left out."),
    "min_success_above_total": _("{value} successes are impossible with {tasks} tasks; ask for {tasks} at most."),
    "min_available_above_total": _("{min_available} tasks can never run together, all roles have {tasks}: ask for {tasks} at most, or for more replicas."),
    "task_min_above_replicas": _('{min_available} is more than the {replicas} replicas of "{role}"; lower it, or ask for more replicas.'),
    # policies
    "event_and_exit_code": _("Choose either events or an exit code; make two policies for both."),
    "no_event_no_exit_code": _("The policy names no event and no exit code: it would never act."),
    "invalid_event": _('"{event}" is not an event that a policy can react to; possible are {allowed}.'),
    "invalid_action": _('"{action}" is not an action; possible are {allowed}.'),
    "duplicate_event": _("The event {event} is handled by several policies (numbers {policies}, from 0); only the first could act."),
    "exit_code_zero": _("Exit code 0 means success and cannot trigger a policy."),
    "duplicate_exit_code": _("Exit code {exit_code} is handled twice; only the first policy could act."),
    "any_event_not_alone": _('"*" covers every event already; remove the other events.'),
    # plugins
    "unknown_plugin": _('There is no plugin "{plugin}". Known are {known}.'),
    "unknown_option": _('The plugin {plugin} has no option "{option}". It has {known}.'),
    "wrong_option": _('"{value}" does not fit the option {option} of the plugin {plugin}.'),
    "mpi_master_missing": _('There is no role named "{master}" for the plugin mpi; add it, or set --master.'),
    "several_masters": _('Role "{role}" has {replicas} replicas, and each would have rank 0; give the master 1 replica.'),
    "ray_head_missing": _('There is no role named "{head}" for the plugin ray; add it, or set --head.'),
    "unknown_placeholder": _("{placeholder} names no role of this job."),
    # volumes and code
    "mount_path_required": _("Say where the volume is mounted."),
    "duplicate_mount_path": _("{path} is used by volume {other} already (counted from 0)."),
    "colon_in_path": _("{path} contains ':', which a mount path cannot."),
    "claim_required": _("Name an existing claim, or describe a new one."),
    "claim_name_and_template": _("Name an existing claim or describe a new one, not both."),
    "duplicate_claim": _('The claim "{name}" is mounted by volume {other} already; mount it once and use folders in it.'),
    "not_a_git_url": _('"{url}" is not an address that git can fetch from; it begins with https://, ssh:// or user@host:.'),
    "path_leaves_folder": _("\"{path}\" leads out of the code's folder; give a path inside it."),
    # queue
    "queue_not_found": _('There is no queue "{queue}" that you can submit to.'),
    "queue_not_open": _('The queue "{queue}" is {state}; jobs can only be submitted to an open queue.'),
    "not_leaf_queue": _('"{queue}" is a group of {children} queues; choose a queue below it.'),
    "root_queue": _("The root queue takes no jobs; choose a queue below it."),
    # the queue tree
    "queue_name": _('"{queue}" cannot be a queue\'s name: use lower-case letters, digits, "-" and ".", {max} characters at most.'),
    "queue_name_twice": _("Two queues have the same name; names must differ."),
    "queue_one_root": _("The tree has {roots} roots; it must have exactly one."),
    "queue_parent_missing": _('"{queue}" lies below "{parent}", which does not exist.'),
    "queue_cycle": _('"{queue}" lies below itself; choose another parent.'),
    "queue_too_deep": _('"{queue}" would lie {depth} levels below the root; the tree may be {max} levels deep.'),
    "queue_number_range": _('"{queue}": {value} is out of range; it must be from {least} to {most}.'),
    "queue_resource_name": _('"{queue}": a resource needs a name.'),
    "queue_amount": _('"{queue}": {value} is not an amount of {resource}. Write cores and GPUs like 2 or 500m, memory like 4Gi.'),
    "queue_min_above_max": _('"{queue}": the min of {resource} ({amount}) is above its max ({bound}). Lower the min or raise the max.'),
    "queue_min_above_deserved": _('"{queue}": the min of {resource} ({amount}) needs a deserved share of at least as much ({bound}). Raise it or lower the min.'),
    "queue_deserved_above_max": _('"{queue}": the deserved share of {resource} ({amount}) is above its max ({bound}). Lower it or raise the max.'),
    "queue_max_above_ancestor": _('"{queue}": the max of {resource} ({amount}) is more than "{ancestor}" allows ({bound}). Lower it, or raise the max of "{ancestor}" first.'),
    "queue_children_min_above_parent": _('"{queue}": the queues below it are guaranteed {amount} of {resource} together, it has {bound}. Raise its min or lower theirs.'),
    "queue_children_deserved_above_parent": _('"{queue}": the queues below it deserve {amount} of {resource} together, it has {bound}.'),
    "queue_children_min_above_max": _('"{queue}": the queues below it are guaranteed {amount} of {resource}, its max is {bound}. Raise the max or lower what they are guaranteed.'),
    # Volcano's admission of single queues
    "weight_out_of_range": _("The weight {value} is out of range; it must be from 1 to 65535."),
    "invalid_state": _("The state {state} cannot be set; open or close the queue instead."),
    "not_in_list": _('"{value}" is not possible here; choose one of those offered.'),
    "negative_amount": _("{value} is below zero; give 0 or more."),
    "min_above_max": _("The min of {resource} is above the max."),
    "deserved_below_min": _("The min of {resource} needs a deserved share of at least as much."),
    "deserved_above_max": _("The deserved share of {resource} is above the max."),
    "length_mismatch": _('The path "{path}" and the weights have different lengths.'),
    "weight_not_number": _('"{value}" is not a weight.'),
    "weight_not_positive": _("The weight {value} must be above zero."),
    "inner_node_of_other_path": _('"{path}" is a group in the path of "{queue}"; a queue must be a leaf.'),
    "self_parent": _('"{queue}" cannot be its own parent.'),
    "parent_not_found": _('There is no queue "{parent}" to put it under.'),
    "queue_depth": _("The queue would lie {depth} levels below the root; {limit} are possible."),
    "parent_has_pods": _('"{parent}" runs tasks; move or finish them before giving it queues of its own.'),
    "max_above_ancestor": _('The max of {resource} is more than "{queue}" allows.'),
    "max_below_descendant": _("The max of {resource} is less than that of a queue below."),
    "children_min_above_parent": _('The queues below "{queue}" are guaranteed more than it is.'),
    "children_deserved_above_parent": _('The queues below "{queue}" deserve more than it does.'),
    "root_limits_protected": _("The root queue mirrors the cluster; its limits cannot be edited."),
    "protected_queue": _('"{queue}" is built in and cannot be removed.'),
    "has_children": _('"{queue}" still has queues below it; remove them first.'),
    "has_allocated_pods": _('"{queue}" still runs tasks; let them finish first.'),
    "unsupported_operation": _("This cannot be done with a queue."),
    # flows
    "duplicate_step": _('"{name}" is used twice; the steps of a flow must differ.'),
    "unknown_step": _('"{step}" waits for "{name}", but there is no such step.'),
    "flow_cycle": _("The flow has a cycle: {path}."),
    # budgets and schedules
    "conflicting_annotations": _("State either the least available or the most unavailable, not both."),
    "percentage_out_of_range": _("{value} is out of range; give 1% to 99%."),
    "not_a_number": _('"{value}" is neither a number nor a percentage.'),
    "not_positive": _("{value} must be above zero."),
    "zone_in_schedule": _("Write the time zone into its own field, not into the schedule."),
    "not_a_schedule": _("This is no schedule ({detail}). Write five fields, like */5 * * * *."),
    "empty": _("Leave it out, or fill it in."),
    "local_zone": _("Name a zone like Europe/Berlin; which one is local depends on the machine."),
    "unknown_zone": _('No time zone can be called "{zone}".'),
    "invalid_zone": _('There is no time zone "{zone}".'),
    "too_long": _("{length} characters are too many; {limit} are possible."),
    # start order, partitions, topology, amounts
    "dependency_not_acyclic": _("The start order has a cycle: {path}."),
    "unknown_dependency": _('"{role}" waits for "{name}", but there is no such role.'),
    "tier_number_and_name": _("Give either a tier's number or its name, not both."),
    "partition_count_not_positive": _("The number of groups must be at least 1, not {total}."),
    "partition_size_not_positive": _("The size of a group must be at least 1, not {size}."),
    "replicas_not_partition_product": _('{total} groups of {size} make {product} tasks, role "{role}" has {replicas}.'),
    "task_min_not_partition_product": _('The least number of groups makes {product} tasks, but role "{role}" says {min_available}.'),
    "cpu_not_integer": _('The NUMA policy {policy} needs whole CPUs, "{container}" asks for {cpu}.'),
    "request_above_limit": _("The request of {resource} ({request}) is above its limit ({limit})."),
    "resource_has_field": _("Ask for {resource} with the field {field}, not under resources."),
    "resource_not_whole": _('There is no part of {resource}, and {amount} is asked for; write "1" in quotes for one: a bare number is thousandths.'),
    "pod_resources_below_containers": _("The pod asks for {request} of {resource}, its containers together for {sum}."),
    "gpu_fraction_above_one": _("{gpus} GPUs are not possible: ask for a part of one GPU, or for whole ones."),
    "secret_path": _('"{path}" leaves the folder of secrets; use a path without "..".'),
    "invalid_env_name": _("\"{name}\" cannot be the name of an environment variable: use letters, digits, '_', '-' and '.', no digit first."),
    "not_a_port": _("{value} is not a port; ports are 1 to 65535."),
    # changes of a submitted job
    "tasks_added_or_removed": _("The job has {before} roles, the change {after}. Clone the job instead."),
    "immutable_field": _("Only replicas, min_available and priority can change on a submitted job; {field} differs. Clone the job instead."),
}  # fmt: skip

NOTE_TEXTS: Mapping[str, str] = {
    "role_runs_nothing": _('Role "{role}" names no image and no command: its tasks will have nothing to run.'),
    "queue_min_above_total": _("The queues are guaranteed {amount} of {resource} together; the cluster has {bound}."),
    "name_generated": _('The job is called "{name}".'),
    "name_assumed": _('The container has no name; "{name}" is used.'),
    "containers_not_a_list": _("One container is described where a list belongs; it is read as a list of one."),
    "amount_read_as_limit": _("{resource} stands directly under resources; it is read as request and limit."),
    "field_ignored": _('The field "{field}" is not known and has no effect.'),
    "field_without_effect": _('"{field}" has no effect in this place.'),
    "pending_without_timeout": _("A policy on PodPending acts only with a timeout."),
    "no_target": _("{action} needs a task, but the event Unknown is about the whole job: nothing will happen."),
    "no_partitions": _("{action} has no effect: no role is split into groups."),
    "gang_waits_for_itself": _("The gang needs {min_available} tasks, but only {tasks} can start before others are ready: the job would wait for ever. Lower min_available to {tasks}."),
}  # fmt: skip

TEXTS: Mapping[str, str] = {**PROBLEM_TEXTS, **NOTE_TEXTS}
"""All sentences; a code means the same everywhere."""
