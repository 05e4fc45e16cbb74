"""Reason and problem codes -> sentences: what happened, why, and what would help, with numbers.

Codes and parameters travel everywhere (plan, rows, replies); the words are made here, for pages,
API and mails alike. Amounts are written in units that people use. A code without a sentence is
shown as it is, so that nothing is hidden; a test keeps that from happening.
"""

from collections.abc import Callable, Mapping
from typing import Any

from django.utils.functional import Promise
from django.utils.translation import gettext, ngettext
from django.utils.translation import gettext_lazy as _

from scheduling.domain import config_wording
from scheduling.engine.reasons import ReasonCode
from scheduling.spec import problem_texts
from scheduling.spec.job_spec import GPU_RESOURCE

GIB = 1024**3
MIB = 1024**2

AMOUNT_PARAMS = frozenset(
    {
        "requested",
        "allocated",
        "max",
        "deserved",
        "available",
        "kept",
        "used",
        "hard",
        "amount",
        "bound",
    }
)
"""Parameters that are amounts of the resource named by the parameter `resource`."""

SENTENCES: dict[str, str | Promise] = {
    # Why something waits.
    ReasonCode.QUEUE_MISSING: _(
        "There is no queue “{queue}” that you may use; choose another one."
    ),
    ReasonCode.QUEUE_NOT_LEAF: _(
        "Queue “{queue}” is a group of {children} queues; choose one of the queues below it."
    ),
    ReasonCode.QUEUE_CLOSED: _(
        "Queue “{queue}” is {state} and takes no new jobs; choose another one or ask its manager."
    ),
    ReasonCode.NOT_ENOUGH_TASKS: _(
        "{min_available} tasks must start together and only {tasks} exist; lower min_available."
    ),
    ReasonCode.NOT_RUNNABLE: _(
        "It is held back: suspended, set aside, or waiting for another role."
    ),
    ReasonCode.BACK_OFF: _("{tasks} tasks wait after a failure before they are tried again."),
    ReasonCode.QUOTA_EXCEEDED: _(
        "Quota {quota} is used up: {requested} {resource} wanted, {used} of {hard} used."
    ),
    ReasonCode.QUOTA_OF_UNIT: _(
        "The quota of “{unit}” is used up: {requested} {resource} wanted, {used} of {hard} used. It"
        " starts when jobs there end; an administrator above “{unit}” can raise the quota."
    ),
    ReasonCode.QUOTA_OF_USER: _(
        "The quota of its owner in “{unit}” is used up: {requested} {resource} wanted, {used} of"
        " {hard} used. It starts when other jobs of the owner end; an administrator of “{unit}” can"
        " raise the quota."
    ),
    ReasonCode.ADMISSION_REFUSED: _(
        "Not admitted yet: it needs {requested} {resource}, {available} are left to admit."
    ),
    ReasonCode.QUEUE_MAX: _(
        "Queue “{queue}” is at its max: {requested} {resource} wanted, {allocated} of {max} in use."
    ),
    ReasonCode.MIN_KEPT_FREE: _(
        "{kept} {resource} are kept free for the min of other queues: {requested} wanted in"
        " “{queue}”, {available} available."
    ),
    ReasonCode.GANG_INCOMPLETE: _(
        "{min_available} tasks must start together; {placeable} would fit now (nodes looked at:"
        " {nodes}; {histogram})."
    ),
    ReasonCode.QUEUE_SHARE: _(
        "Queue “{queue}” has its share: {allocated} {resource} in use of {deserved} deserved,"
        " {requested} more wanted."
    ),
    ReasonCode.BEHIND_HEAD: _("Job “{job}” is before it in queue “{queue}”."),
    ReasonCode.ROOM_RESERVED: _(
        "The free room is reserved for jobs that waited too long ({jobs})."
    ),
    ReasonCode.NODES_UNFIT: _("“{role}” fits no node (of {nodes}): {histogram}."),
    ReasonCode.TOPOLOGY: _("No place within network tier {tier} for “{role}”."),
    ReasonCode.WAITING_FOR_ROOM: _(
        "Its place is being freed: {tasks} tasks wait for {evictions} evictions to end."
    ),
    ReasonCode.RESERVED: _("Room is being kept for it on {nodes}."),
    ReasonCode.NOT_CONSIDERED: _("The last cycle did not come to it."),
    "change_other_queue": _("In queue “{queue}” it would start now."),
    "change_drop_constraint_node_selector": _(
        "Without the node selector “{key}” of “{role}” it would start now."
    ),
    "change_drop_constraint_node_affinity": _(
        "Without the node affinity of “{role}” it would start now."
    ),
    "change_drop_constraint_neighbours": _(
        "Without the rules of “{role}” about its neighbours it would start now."
    ),
    "change_drop_constraint_spread": _(
        "Without the spreading rules of “{role}” it would start now."
    ),
    "change_drop_constraint_numa": _("Without the NUMA policy of “{role}” it would start now."),
    "change_drop_constraint_topology": _("Without its network topology rule it would start now."),
    ReasonCode.BEST_SCORE: _("The best place by score ({score}); the next was {next_node}."),
    ReasonCode.EVICTED_FOR: _("Its place was given to job “{job}”."),
    "no_cycle_yet": _("The scheduler has not looked at it yet."),
    "quarantined": _(
        "Planning failed because of it ({error}), {strikes} of {most} times; then it is set aside"
        " until it is changed or cancelled."
    ),
    "image_unserved": _(
        "No node offers a runtime for image “{image}”; map the image to a runtime or add a node."
    ),
    # What quotas refuse.
    "quota_queued_of_unit": _(
        "{jobs} jobs wait or are suspended in “{unit}”, and its quota lets {most} wait: submit"
        " again when some have started, cancel some, or ask an administrator above “{unit}” for"
        " more."
    ),
    "quota_queued_of_user": _(
        "{jobs} of your jobs wait or are suspended in “{unit}”, and your quota there lets {most}"
        " wait: submit again when some have started, cancel some, or ask an administrator of"
        " “{unit}” for more."
    ),
    "quota_too_small_of_unit": _(
        "The job needs {requested} {resource} at once, and the quota of “{unit}” is {hard} in all:"
        " lower min_available or what a task asks for, or ask an administrator above “{unit}”."
    ),
    "quota_too_small_of_user": _(
        "The job needs {requested} {resource} at once, and your quota in “{unit}” is {hard} in all:"
        " lower min_available or what a task asks for, or ask an administrator of “{unit}”."
    ),
    "quota_storage_of_unit": _(
        "{requested} do not fit any more: {used} of {hard} of the storage of “{unit}” are used."
        " Delete jobs with large files, or ask an administrator above “{unit}” for more."
    ),
    "quota_storage_of_user": _(
        "{requested} do not fit any more: you use {used} of your {hard} of storage in “{unit}”."
        " Delete jobs with large files, or ask an administrator of “{unit}” for more."
    ),
    "not_a_count": _("“{value}” is no whole number, such as 10."),
    "secret_line": _("A line has no “=”; write NAME=value on each."),
    "quota_empty": _("Limit at least one thing; delete the quota to limit nothing."),
    "not_a_time": _("“{value}” is no time, such as 2026-11-21 or 2026-11-21T14:30:00Z."),
    # Secrets.
    "secret_missing": _(
        "There is no secret “{secret}” that you may use in this unit; make it under Secrets, or ask"
        " its owner to share it."
    ),
    "secret_key_missing": _("Secret “{secret}” has no “{key}”; it has {keys}."),
    "secret_name": _(
        "“{name}” cannot name a secret: letters a-z, digits, “-” and “.” are possible, 63 at most."
    ),
    "secret_key": _(
        "“{key}” cannot be a name here: letters, digits and “_” are possible, for files “-” and “.”"
        " too, and no digit first for variables."
    ),
    "secret_not_text": _("The value of “{key}” is no text; make a secret of files of it."),
    "secret_registry": _("The login of a registry has exactly these: {keys}."),
    "secret_empty": _("A secret holds at least one value."),
    "secret_is_revoked": _("Secret “{secret}” was revoked; make a new one."),
    "secret_in_file": _("“{key}” is neither text nor base64; send one of them."),
    "secrets_key_missing": _(
        "This installation has no key to seal secrets with: its operator sets TERRACE_SECRETS_KEY"
        " for web and gateway and starts them again."
    ),
    "quota_without_user": _("A quota of everybody names no user."),
    "user_missing": _("There is no such user in your units; check the name."),
    # How jobs and attempts end.
    "tasks_failed": _(
        "Failed: {succeeded} tasks succeeded, {failed} failed, {min_available} needed."
    ),
    "retries_used_up": _("Failed: all {max_retry} runs are used up; {failed} tasks failed."),
    "late_report": _("A result arrived after the attempt had been given up; it was not used."),
    "NodeLost": _("The node was not heard of for too long; the attempt was given up."),
    "LaunchFailed": _("The node could not start it; its message says what was missing."),
    "OutOfMemory": _("It reached its memory limit and was ended; ask for more memory."),
    "TimeLimit": _("It ran for its time limit and was ended; ask for more time."),
    "Stopped": _("The node was told to stop it."),
    "StaleEpoch": _("Another scheduler had taken over before it was started; nothing was started."),
    "BadCommand": _("The node did not understand the command; nothing was started."),
    "NotStored": _("The node could not write to its disk; nothing was started."),
    "LeaseLapsed": _("The node lost contact for too long and ended it."),
    "AgentLost": _("The node does not know the attempt any more."),
    "NodeRebooted": _("The machine was started anew; nothing of before runs on it."),
    "NodeShutdown": _("The machine was shut down in order; it is tried elsewhere."),
    "ShimLost": _("What watched over it on the node was lost, so it was ended."),
    "RecordsLost": _("The node lost its records of it, so it counts as ended."),
    "SecretsLost": _(
        "The node's agent ended before the task had its secrets, which are never written to its"
        " disk; it is tried again."
    ),
    "StoppedBeforeStart": _("It was stopped while the node was still preparing it."),
    "NotWanted": _("The node held it although it was given up; it was ended there."),
    "NeverStarted": _("It was stopped before it started."),
    # Refusals.
    "action_ignored": _("{action} changes nothing while job “{job}” is {phase}."),
    "job_finished": _("Job “{job}” is {phase}; clone it to run it again."),
    "batch_not_whole": _(
        "Nothing of the batch was submitted, since {refused} of its jobs were refused."
    ),
    "job_name_taken": _("A job named “{name}” is already live in {unit}; choose another name."),
    "version": _("Somebody changed it meanwhile (you saw version {expected}, it is {version})."),
    "code_missing": _("The uploaded code {file} is not there any more; upload it again."),
    "owner_missing": _("A job needs an owner: submit it as a user."),
    "replicas_out_of_range": _("{replicas} replicas; from {min} to {max} are possible."),
    "task_not_pending": _("The task is {state} and cannot be placed."),
    "role_lacks_verb": _("Your role does not allow this ({verb}); it needs one of: {roles}."),
    "token_lacks_verb": _("Your token does not allow this ({verb}); make one that does."),
    "node_removed": _("Node “{node}” was removed; join it again with a new token."),
    "node_name_taken": _("A node named “{name}” is already in the cluster; give it another name."),
    "webhook_url": _(
        "The address is not one that events are sent to: {why}. Public addresses are; others the "
        "operator allows by TERRACE_WEBHOOK_ALLOWED."
    ),
    "too_many_webhooks": _("A unit has at most {max} webhooks; remove one first."),
    "event_cursor": _("“{value}” is no cursor; give the id of the last event that you have."),
    "ticket_without_token": _(
        "A ticket is for programs with an API token; a browser opens the socket by its session."
    ),
    "join_token_too_few": _(
        "The join token is good for {left} more nodes, and {nodes} were to join; make a new one."
    ),
    "join_token_unknown": _("The join token is unknown, used up or expired; make a new one."),
    "node_busy": _("Node “{node}” still runs {attempts} tasks; drain it first."),
    "too_long": _("{length} characters; {max} are possible."),
    "rule_repeated": _(
        "Rule {number} has the pattern of rule {first}, which decides first; remove one of them."
    ),
    "unit_missing": _("There is no such org unit; choose one from the tree, or none for all."),
    "file_too_big": _("{size} bytes; up to {max} are possible."),
    "stored_bytes_gone": _(
        "“{path}” is on record, but its bytes are no longer in the store. Ask whoever runs Terrace"
        " to bring them back from a backup, or run the job again."
    ),
    "path_unsafe": _("“{path}” leaves its folder; use a relative path without “..”."),
    "attention_assignee": _(
        "Nobody called “{user}” may look after this; name somebody who may act on it."
    ),
    # Pages.
    "unknown_action": _(
        "There is no action “{action}”; reload the page and choose one of those shown."
    ),
    "out_of_range": _("“{value}” is no whole number from {min} to {max}."),
    "bad_uuid": _("“{value}” is no id, such as 0b0e7c1e-5a4f-4c0b-9d53-2f6f1c0b7a11."),
    "bad_etag": _(
        "If-Match is the ETag of the reply that you read, not “{value}”; read it again and send its"
        " ETag."
    ),
    "bad_cursor": _("The page address “{cursor}” was damaged; start again from the first page."),
    "view_name_missing": _("Give the view a name, by which its tab is found again."),
    "view_name_too_long": _("The name of a view has at most {limit} characters; shorten it."),
    "view_filters_too_long": _(
        "The filters of a view have at most {limit} characters; leave some out."
    ),
    "too_many_templates": _("You have {limit} templates, the most; delete one of them first."),
    "too_many_views": _("You have {limit} views, which is the most; delete one of them first."),
    "form_damaged": _("A part of the form did not arrive; reload the page and try again."),
    # Queues.
    "queue_name_taken": _(
        "A queue named “{queue}” is already in the cluster; choose another name."
    ),
    "queue_policy": _("“{queue}”: there is no policy “{policy}”; choose one of {allowed}."),
    "queue_min_above_total": _(
        "The queues are guaranteed {amount} {resource} together, the cluster has {bound} now; what"
        " is missing is cut from every guarantee."
    ),
    "queue_no_open_leaf": _("No queue that takes jobs would be open."),
    "queue_root_protected": _("“{queue}” mirrors the cluster; edit the queues below it."),
    "queue_protected": _("“{queue}” is a built-in queue and cannot be deleted."),
    "queue_edited_twice": _("“{queue}” is changed twice in one go; put both into one change."),
    "queue_of_unit_exists": _("“{unit}” already has a queue in this cluster, “{queue}”."),
    "queue_parent_not_nearest": _(
        "The queue of “{unit}” belongs below “{nearest}”, not below “{queue}”: the tree of queues"
        " follows the organisation."
    ),
    "queue_below_exists": _(
        "“{queue}” of a unit below “{unit}” is there already; make queues from the top down."
    ),
    "queue_has_jobs": _(
        "“{queue}” has {jobs} jobs; let them end or move them before it gets queues below it."
    ),
    "queue_not_empty": _(
        "“{queue}” has {children} queues below it and {jobs} jobs in its history; leave it closed"
        " instead."
    ),
    "queue_not_closed": _("“{queue}” is {state}; close it and wait until its jobs have ended."),
    "queue_parent_not_open": _("“{queue}” opens with its parent; open “{parent}” first."),
    "not_one_of": _("“{value}” is none of these: {allowed}."),
    "queue_no_target": _(
        "Choose an open queue of the same tenant, outside “{queue}”, to move its waiting jobs to."
    ),
    "job_stays_in_tenant": _("A job can be moved inside its tenant and cluster; “{queue}” is not."),
    "job_not_waiting": _("Job “{job}” is {phase}; only one that has not started can be moved."),
    "node_name_to_confirm": _("Type the node's name, {node}, to confirm."),
    # Change sets.
    "change_set_empty": _("“{title}” changes nothing yet; add a queue and a new number."),
    "change_set_too_many": _("A change set holds up to {max} queues; make several of it."),
    "change_set_state": _(
        "“{title}” is {state}; {action} is not possible now. Reload it to see what is."
    ),
    "change_set_time": _("Choose a time in the future, {days} days from now at most."),
    "change_set_own_review": _(
        "“{title}” holds your own numbers; a second person who manages these queues has to look."
    ),
    "change_set_needed": _(
        "It takes {gpus} GPUs from those who run now; above {limit} a second person has to look:"
        " make it a change set and ask for a review."
    ),
    "change_set_needs_review": _(
        "“{title}” takes {gpus} GPUs from those who run now; above {limit} a second person has to"
        " approve it first."
    ),
    "change_set_needs_confirmation": _(
        "“{title}” takes {gpus} GPUs from those who run now, more than {limit}; type its title to"
        " confirm."
    ),
    "change_set_grew": _(
        "{approved} GPUs were approved, and it would take {gpus} now; ask for a review again."
    ),
    "change_set_queue_gone": _("A queue of it is gone, or was taken out of sight."),
    # Organisation, grants, accounts, tokens.
    "length": _("From {min} to {max} characters are possible."),
    "not_printable": _("Use printable characters, without spaces at the ends."),
    "taken": _("“{name}” exists here already; choose another name."),
    "tenant_is_top_level": _("A tenant has no parent, every other unit has one."),
    "unit_archived": _("“{unit}” is archived; restore it first."),
    "unit_queue_in_use": _(
        "Queue “{queue}” of “{unit}” is {state}; close it and let its jobs end."
    ),
    "unit_has_children": _("{children} units below “{unit}” are in use; archive them first."),
    "merge_into_itself": _("“{into}” is “{unit}” or lies inside it; choose another unit."),
    "merge_needs_queue": _(
        "“{unit}” has no queue in cluster {cluster} and units below it have; give it one first, to"
        " take over from “{queue}”."
    ),
    "merge_queue_has_jobs": _(
        "Queue “{queue}” still has {jobs} jobs; close it and let them end, or move them, first."
    ),
    "merge_job_names": _(
        "A job of “{queue}” has the name of a live job of “{unit}”; let one of them end first."
    ),
    "unit_stays_in_tenant": _("“{unit}” can be moved inside its tenant only."),
    "unit_too_deep": _("“{unit}” would be too deep; {max} levels are possible."),
    "inside_itself": _("“{parent}” lies inside “{unit}”; choose another parent."),
    "name_taken_there": _("There is a “{name}” already; rename one of them first."),
    "role_needs_unit": _("The role {role} is given on a unit; choose one."),
    "role_has_no_unit": _("The role {role} is given on the whole installation, without a unit."),
    "role_above_own": _("Your own role here does not let you give or take the role {role}."),
    "grant_exists": _("{user} already has the role {role} there."),
    "grant_under_own_feet": _(
        "This grant is what lets you change grants here; ask another administrator to take it."
    ),
    "last_admin": _("It is the last {role} of {unit}; give the role to somebody else first."),
    "own_account": _("You cannot disable your own account; ask another administrator."),
    "account_of_others_too": _(
        "{user} also works in units that you do not administer; ask a platform administrator."
    ),
    "no_such_person": _("There is nobody “{user}” that you may see; invite them first."),
    "passwords_differ": _("The two are not the same."),
    "invited_chooses": _("Who is invited chooses the password; leave it out."),
    "password_wrong": _("This is not your password."),
    "sign_in_for_this": _("A token cannot do this; sign in as a person."),
    "own_password_reset": _("Change your own password on your profile."),
    "account_removed": _("{user} was removed; take the account back first."),
    "account_disabled": _("{user} is disabled; enable the account first."),
    "already_joined": _("{user} has a password already; reset it instead."),
    "service_has_no_password": _("{user} is a service account and signs in by token only."),
    "service_signs_in_by_token": _("A service account has no password; make a token for it."),
    "service_needs_unit": _("A service account belongs to a unit; choose one."),
    "service_outside_home": _("{user} belongs to “{unit}” and gets roles there and below only."),
    "unknown_zone": _("“{zone}” is no time zone, such as Europe/Berlin."),
    "unknown_language": _("There is no language “{language}”; choose one of {languages}."),
    "username_taken": _("The name “{username}” is taken; choose another one."),
    "token_by_token": _("A token cannot make tokens; sign in to make one."),
    "token_of_others": _("People make their own tokens; {user} has to make this one."),
    "unknown_verb": _("There is no verb “{verb}”; docs/permissions.md lists them."),
    "expiry": _("Choose an end in the future, {max_days} days from now at most."),
    "too_many_tokens": _("{max} tokens are in force; revoke one that is no longer used."),
    "idempotency_key_length": _("An Idempotency-Key has 1 to {max} characters."),
    "idempotency_key_reused": _(
        "The Idempotency-Key “{key}” was used for another request; use a new one."
    ),
    # Django's own checks of accounts.
    "invalid": _("This is not possible here."),
    "blank": _("This is needed."),
    "max_length": _("{show_value} characters; {limit_value} are possible."),
    "password_too_short": _("The password is too short; {min_length} characters are needed."),
    "password_too_common": _("The password is on lists of common passwords; choose another one."),
    "password_entirely_numeric": _("The password has digits only; add letters."),
    "password_too_similar": _("The password is too much like your name or address."),
    # Why an attempt is stopped.
    "stop_user": _("Stopped because somebody asked for it."),
    "stop_policy": _("Stopped by a policy of the job."),
    "stop_restart": _("Stopped to be started again."),
    "stop_job_ended": _("Stopped because the job is over."),
    "stop_scale_down": _("Stopped because the role has fewer replicas now."),
    "stop_time_limit": _("Stopped because its time limit is reached."),
    "stop_preempted": _("Its place was given to a more important job of the queue."),
    "stop_reclaimed": _("Its place was taken back by a queue that deserves it."),
    "stop_drained": _("Its node is being emptied."),
}

OF_OTHERS: dict[str, Promise] = {
    ReasonCode.BEHIND_HEAD: _("Another job is before it in queue “{queue}”."),
    ReasonCode.EVICTED_FOR: _("Its place was given to another job."),
}
"""What is said instead where the reader may not know the job (`queries.redaction` names it)."""


def _lower_min(params: Mapping[str, Any]) -> str:
    """Say with which minimum a job would start."""
    return ngettext(
        "With a minimum of {min_available} task instead of {was} it would start now.",
        "With a minimum of {min_available} tasks instead of {was} it would start now.",
        params["min_available"],
    ).format_map(_Shown(params))


def _wait_for(params: Mapping[str, Any]) -> str:
    """Say whose end a job would have to wait for: tasks and jobs are counted each by itself."""
    jobs = params.get("jobs_total", len(params["jobs"]))
    running = ngettext("{n} running job", "{n} running jobs", jobs).format(n=jobs)
    return ngettext(
        "It would start as soon as {tasks} task of {running_jobs} has ended.",
        "It would start as soon as {tasks} tasks of {running_jobs} have ended.",
        params["tasks"],
    ).format(tasks=params["tasks"], running_jobs=running)


COUNTED: dict[str, Callable[[Mapping[str, Any]], str]] = {
    "change_lower_min": _lower_min,
    "change_wait_for": _wait_for,
}
"""Codes whose sentence takes the form of a number."""

REFUSED_WITHOUT_NUMBERS = _("Not admitted yet: the scheduler's plugin “{plugin}” holds it back.")


def sentence(code: str, params: Mapping[str, Any] | None = None) -> str:
    """Return the sentence for a code, in the reader's language; the bare code if it has none."""
    params = params or {}
    if code in COUNTED:
        return COUNTED[code](params)
    text = _text(code)
    if code in OF_OTHERS and not params.get("job_name"):
        text = OF_OTHERS[code]
    if code == ReasonCode.ADMISSION_REFUSED and not params.get("resource"):
        text = REFUSED_WITHOUT_NUMBERS
    if text is None:
        return code
    words = str(text) if isinstance(text, Promise) else gettext(text)
    return words.format_map(_Shown(params))


def has_sentence(code: str) -> bool:
    """Tell whether there are words for a code."""
    return code in COUNTED or _text(code) is not None


def _text(code: str) -> str | Promise | None:
    """Return a code's text; a stopped attempt ends with the bare name of the reason to stop it."""
    # "NotStored: No space left": what stands after the code is the node's own words.
    known = code.partition(":")[0]
    return (
        SENTENCES.get(known)
        or problem_texts.TEXTS.get(known)
        or config_wording.TEXTS.get(known)
        or SENTENCES.get(f"stop_{known}")
    )


HISTOGRAM: dict[str, Promise] = {
    "not_schedulable": _("{nodes} not schedulable"),
    "taint": _("{nodes} with a taint that it does not tolerate"),
    "selector": _("{nodes} without the labels of its selector"),
    "affinity": _("{nodes} outside its node affinity"),
    "runtime": _("{nodes} without a runtime for its image"),
    "devices": _("{nodes} whose free GPUs lie apart"),
}
"""What keeps a task off nodes, by the engine's name for it."""
LACKING: dict[str, Promise] = {
    "Insufficient ": _("{nodes} short of {resource}"),
    "Exceeds ": _("{nodes} too small even when idle ({resource})"),
}
"""What a resource's name stands behind, and how it is said."""
SHORT_NAMES: dict[str, Promise] = {
    GPU_RESOURCE: _("GPUs"),
    "cpu": _("CPUs"),
    "memory": _("memory"),
    "pods": _("task slots"),
    "ephemeral-storage": _("disk"),
}


def histogram_words(histogram: Mapping[str, int]) -> str:
    """Say what keeps a task off how many nodes: "1 not schedulable, 7 short of GPUs"."""
    return ", ".join(_cause_words(cause, nodes) for cause, nodes in histogram.items())


def _cause_words(cause: str, nodes: int) -> str:
    text = HISTOGRAM.get(cause)
    if text is not None:
        return str(text).format(nodes=nodes)
    for prefix, said in LACKING.items():
        if cause.startswith(prefix):
            resource = cause.removeprefix(prefix)
            return str(said).format(nodes=nodes, resource=SHORT_NAMES.get(resource, resource))
    return gettext("{nodes} refused by “{cause}”").format(nodes=nodes, cause=cause)


NAMED = {"job": "job_name", "jobs": "jobs_total"}
"""Parameters that hold ids, and those that say the same to people."""


class _Shown(dict[str, Any]):
    """Parameters as people read them; one that is missing shows as a question mark."""

    def __init__(self, params: Mapping[str, Any]) -> None:
        resource = str(params.get("resource", ""))
        if params.get("queue", "") is None:
            params = {**params, "queue": gettext("another queue")}
        params = {**params, **{name: params[key] for name, key in NAMED.items() if key in params}}
        super().__init__({name: _shown(name, value, resource) for name, value in params.items()})

    def __missing__(self, key: str) -> str:
        return "?"


def _shown(name: str, value: Any, resource: str) -> Any:
    if name == "resource":
        return {GPU_RESOURCE: "GPU"}.get(resource, resource)
    if resource and name in AMOUNT_PARAMS and isinstance(value, int):
        return amount(resource, value)
    if isinstance(value, Mapping):
        return _histogram(value) if name == "histogram" else _counts(value) or "-"
    if isinstance(value, (list, tuple)):
        return ", ".join(str(one) for one in value)
    if isinstance(value, float):
        return f"{value:g}"
    return value


def _histogram(value: Mapping[str, Any]) -> str:
    return histogram_words(value) or gettext("none refuses a task alone, they fill up")


def _counts(value: Mapping[str, Any]) -> str:
    return ", ".join(f"{what}: {count}" for what, count in value.items())


def amount(resource: str, value: int) -> str:
    """Write an amount in the unit that people use for the resource."""
    if resource in ("memory", "ephemeral-storage", "storage"):
        if value >= GIB:
            return f"{value / GIB:.4g} GiB"
        return f"{value / MIB:.4g} MiB"
    return f"{value / 1000:g}"
