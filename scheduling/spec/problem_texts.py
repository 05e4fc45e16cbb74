# ruff: noqa: E501 - a sentence is easier to read and to translate in one line
"""The English sentence for each code of problems and notes, with named placeholders.

`scheduling.domain.wording` translates them. A sentence says what is wrong and what would do.
"""

from __future__ import annotations

from collections.abc import Mapping

PROBLEM_TEXTS: Mapping[str, str] = {
    # reading a document
    "document_too_large": "The document has {size} bytes; at most {limit} are read. Upload data as files instead.",
    "not_utf8": "The document is not UTF-8 text (byte {position}). Save it as UTF-8.",
    "not_yaml": "Line {line}, column {column}: this is not YAML ({detail}).",
    "empty_document": "The document is empty. Write or paste a job.",
    "too_many_documents": "The file has more than {limit} documents. Split it.",
    "too_many_nodes": "The document has more than {limit} values. Split it, or upload data as files.",
    "too_many_alias_nodes": "Line {line}: aliases stand for more than {limit} values. Write them out, or use fewer.",
    "too_deep": "Maps and lists are nested more than {limit} levels deep.",
    "duplicate_key": 'Line {line}: "{key}" is given twice in one map. Remove one of them.',
    "key_not_text": "Line {line}: the name of an entry must be a plain text. Text with braces or brackets needs quotes.",
    "merge_not_map": "Line {line}: only maps can be merged with <<.",
    "tag_not_allowed": "Line {line}: the tag {tag} is not allowed. Use plain values.",
    "tag_does_not_fit": "Line {line}: the value does not fit its tag {tag}.",
    "unknown_alias": 'Line {line}: there is no anchor named "{alias}" before this place.',
    "not_one_job": "The text holds {count} documents; submit one job at a time, or import the file.",
    "not_a_job": "A document of kind {kind} ({api}) is not a job. Use the import page for it.",
    "unsupported_kind": "Terrace does not read documents of kind {kind} ({api}).",
    "required": "This is needed.",
    "wrong_type": "This must be {expected}, not {value}.",
    "unknown_field": 'There is no field "{field}". Did you mean: {hint}?',
    "invalid_choice": '"{value}" is not possible here; choose {allowed}.',
    "not_a_quantity": '"{value}" is not an amount of {resource}. Write it like 2, 500m or 4Gi.',
    "not_a_duration": '"{value}" is not a duration. Write it like 90s, 10m or 1h30m.',
    "not_json": "This annotation is not JSON.",
    "not_arguments": "The arguments cannot be split into words ({detail}). Close the quotes.",
    # names and sizes
    "no_task": "A job needs at least one role.",
    "nothing_to_run": 'Role "{role}" names no image, runtime or command: there is nothing to run.',
    "no_container": 'The template of role "{role}" has no container. Give one with an image or command.',
    "invalid_job_name": "\"{name}\" cannot be a job's name: use lower-case letters, digits and '-', begin with a letter, end with a letter or digit, 63 characters at most, because it becomes a host name.",
    "invalid_name": "\"{name}\" is not a valid name: use lower-case letters, digits and '-', begin and end with a letter or digit, 63 characters at most.",
    "duplicate_task_name": '"{name}" is used twice; role names must differ.',
    "pod_name_too_long": "The longest task name \"{pod}\" has {length} characters, the limit is {limit}; shorten the job's or the role's name.",
    "too_many": "{count} entries are given; at most {limit} are possible.",
    "too_many_tasks": "The roles together have {count} tasks; a job may have {limit}. Split it into several jobs.",
    "text_too_long": "This text has {length} characters; at most {limit} are possible. Put long scripts into a file.",
    "nul_character": "A text given to a process cannot contain the character NUL.",
    "negative_number": "{value} is below zero.",
    "number_too_large": "{value} is too large; the limit is {limit}.",
    "below_one": "{value} is too small; it must be at least 1, or left out.",
    "min_success_above_total": "{value} successes are impossible with {tasks} tasks.",
    "min_available_above_total": "{min_available} tasks can never run together, all roles have {tasks}.",
    "task_min_above_replicas": '{min_available} is more than the {replicas} replicas of "{role}".',
    # policies
    "event_and_exit_code": "Choose either events or an exit code; make two policies for both.",
    "no_event_no_exit_code": "The policy names no event and no exit code: it would never act.",
    "invalid_event": '"{event}" is not an event that a policy can react to; possible are {allowed}.',
    "invalid_action": '"{action}" is not an action; possible are {allowed}.',
    "duplicate_event": "The event {event} is handled by several policies (numbers {policies}, from 0); only the first could act.",
    "exit_code_zero": "Exit code 0 means success and cannot trigger a policy.",
    "duplicate_exit_code": "Exit code {exit_code} is handled twice; only the first policy could act.",
    "any_event_not_alone": '"*" covers every event already; remove the other events.',
    # plugins
    "unknown_plugin": 'There is no plugin "{plugin}". Known are {known}.',
    "unknown_option": 'The plugin {plugin} has no option "{option}". It has {known}.',
    "wrong_option": '"{value}" does not fit the option {option} of the plugin {plugin}.',
    "mpi_master_missing": 'There is no role named "{master}" for the plugin mpi; add it, or set --master.',
    "several_masters": 'Role "{role}" has {replicas} replicas, and each would have rank 0; give the master 1 replica.',
    "ray_head_missing": 'There is no role named "{head}" for the plugin ray; add it, or set --head.',
    "unknown_placeholder": "{placeholder} names no role of this job.",
    # volumes and code
    "mount_path_required": "Say where the volume is mounted.",
    "duplicate_mount_path": "{path} is used by volume {other} already (counted from 0).",
    "colon_in_path": "{path} contains ':', which a mount path cannot.",
    "claim_required": "Name an existing claim, or describe a new one.",
    "claim_name_and_template": "Name an existing claim or describe a new one, not both.",
    "duplicate_claim": 'The claim "{name}" is mounted by volume {other} already; mount it once and use folders in it.',
    "not_a_git_url": '"{url}" is not an address that git can fetch from; it begins with https://, ssh:// or user@host:.',
    "path_leaves_folder": "\"{path}\" leads out of the code's folder; give a path inside it.",
    # queue
    "queue_not_found": 'There is no queue "{queue}" that you can submit to.',
    "queue_not_open": 'The queue "{queue}" is {state}; jobs can only be submitted to an open queue.',
    "not_leaf_queue": '"{queue}" is a group of {children} queues; choose a queue below it.',
    "root_queue": "The root queue takes no jobs; choose a queue below it.",
    # start order, partitions, topology, amounts
    "dependency_not_acyclic": "The start order has a cycle: {path}.",
    "unknown_dependency": '"{role}" waits for "{name}", but there is no such role.',
    "tier_number_and_name": "Give either a tier's number or its name, not both.",
    "partition_count_not_positive": "The number of groups must be at least 1, not {total}.",
    "partition_size_not_positive": "The size of a group must be at least 1, not {size}.",
    "replicas_not_partition_product": '{total} groups of {size} make {product} tasks, role "{role}" has {replicas}.',
    "task_min_not_partition_product": 'The least number of groups makes {product} tasks, but role "{role}" says {min_available}.',
    "cpu_not_integer": 'The NUMA policy {policy} needs whole CPUs, "{container}" asks for {cpu}.',
    "request_above_limit": "The request of {resource} ({request}) is above its limit ({limit}).",
    "pod_resources_below_containers": "The pod asks for {request} of {resource}, its containers together for {sum}.",
    "gpu_fraction_above_one": "{gpus} GPUs are not possible: ask for a part of one GPU, or for whole ones.",
    "invalid_env_name": "\"{name}\" cannot be the name of an environment variable: use letters, digits, '_', '-' and '.', no digit first.",
    "not_a_port": "{value} is not a port; ports are 1 to 65535.",
    # changes of a submitted job
    "tasks_added_or_removed": "The job has {before} roles, the change {after}. Clone the job instead.",
    "immutable_field": "Only replicas, min_available and priority can change on a submitted job; {field} differs. Clone the job instead.",
}  # fmt: skip

NOTE_TEXTS: Mapping[str, str] = {
    "nothing_to_run": 'Role "{role}" names no image and no command: its tasks will have nothing to run.',
    "name_generated": 'The job is called "{name}".',
    "name_assumed": 'The container has no name; "{name}" is used.',
    "containers_not_a_list": "One container is described where a list belongs; it is read as a list of one.",
    "amount_read_as_limit": "{resource} stands directly under resources; it is read as request and limit.",
    "unknown_field": 'The field "{field}" is not known and has no effect.',
    "field_without_effect": '"{field}" has no effect in this place.',
    "pending_without_timeout": "A policy on PodPending acts only with a timeout.",
    "no_target": "{action} needs a task, but the event Unknown is about the whole job: nothing will happen.",
    "no_partitions": "{action} has no effect: no role is split into groups.",
    "gang_waits_for_itself": "The gang needs {min_available} tasks, but only {tasks} can start before others are ready: the job would wait for ever. Lower min_available to {tasks}.",
}  # fmt: skip
