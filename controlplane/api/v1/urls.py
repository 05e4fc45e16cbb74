"""The addresses of version 1: nouns in the plural, actions below the thing they act on."""

from django.urls import path

from controlplane.api.v1 import (
    attention,
    audit,
    change_sets,
    events,
    forecasts,
    image_rules,
    job_parts,
    jobs,
    live,
    me,
    mine,
    nodes,
    people,
    queues,
    quotas,
    scheduler_configs,
    secrets,
    units,
    webhooks,
)
from scheduling.domain import nodes as node_acts
from scheduling.domain.jobs import JobAction
from tenants.domain import users as user_acts

JOB = "jobs/<uuid:job_id>"
QUEUE = "queues/<uuid:queue_id>"
CHANGE_SET = "change-sets/<uuid:change_set_id>"
NODE = "nodes/<uuid:node_id>"
NODE_ACTIONS = {
    "cordon": node_acts.cordon,
    "uncordon": node_acts.uncordon,
    "drain": node_acts.drain,
    "remove": node_acts.remove,
}
CLUSTER = "clusters/<uuid:cluster_id>"
UNIT = "units/<uuid:unit_id>"
USER = "users/<uuid:user_id>"
WEBHOOK = "webhooks/<uuid:webhook_id>"
USER_ACTIONS = {
    "end-sessions": user_acts.end_sessions,
    "remove-second-factor": user_acts.remove_second_factor,
}

urlpatterns = [
    path("me", me.MeView.as_view()),
    path("me/password", me.MyPasswordView.as_view()),
    path("me/sessions", me.MySessionsView.as_view()),
    path("me/sessions/<str:session_id>", me.MySessionView.as_view()),
    path("me/views", mine.SavedViewsView.as_view()),
    path("me/views/<uuid:view_id>", mine.SavedViewView.as_view()),
    path("me/notifications", mine.NotificationsView.as_view()),
    path("me/notifications/choice", mine.NotificationChoiceView.as_view()),
    path("me/notifications/read", mine.NotificationsReadView.as_view()),
    path("templates", mine.TemplatesView.as_view()),
    path("templates/<uuid:template_id>", mine.TemplateView.as_view()),
    path("jobs", jobs.JobsView.as_view()),
    path("jobs:batch", jobs.JobBatchView.as_view()),
    path(JOB, jobs.JobDetailView.as_view()),
    *(path(f"{JOB}/{one}", jobs.JobActionView.as_view(action=one)) for one in JobAction),
    path(f"{JOB}/explain", jobs.JobExplainView.as_view()),
    path(f"{JOB}/manifest", jobs.JobManifestView.as_view()),
    path(f"{JOB}/tasks", job_parts.TasksView.as_view()),
    path(f"{JOB}/attempts", job_parts.AttemptsView.as_view()),
    path(f"{JOB}/history", job_parts.HistoryView.as_view()),
    path(f"{JOB}/waits", job_parts.WaitsView.as_view()),
    path(f"{JOB}/logs", job_parts.LogsView.as_view()),
    path(f"{JOB}/metrics", job_parts.MetricsView.as_view()),
    path(f"{JOB}/usage", job_parts.UsageView.as_view()),
    path(f"{JOB}/files", job_parts.JobFilesView.as_view()),
    path(f"{JOB}/files/<uuid:file_id>", job_parts.JobFileView.as_view()),
    path("files", job_parts.UploadsView.as_view()),
    path("queues", queues.QueuesView.as_view()),
    path("queues:tree", queues.QueueTreeView.as_view()),
    path("queues:preview", queues.QueuePreviewView.as_view()),
    path(QUEUE, queues.QueueDetailView.as_view()),
    path(f"{QUEUE}/open", queues.QueueStateView.as_view(is_open=True)),
    path(f"{QUEUE}/close", queues.QueueStateView.as_view(is_open=False)),
    path(f"{QUEUE}/placement", queues.QueuePlacementView.as_view()),
    path(f"{QUEUE}/drain", queues.QueueDrainView.as_view()),
    path("change-sets", change_sets.ChangeSetsView.as_view()),
    path(CHANGE_SET, change_sets.ChangeSetDetailView.as_view()),
    path(f"{CHANGE_SET}/simulate", change_sets.ChangeSetSimulateView.as_view()),
    *(path(f"{CHANGE_SET}/{name}", view) for name, view in change_sets.STEPS.items()),
    path("nodes", nodes.NodesView.as_view()),
    path("nodes/join-tokens", nodes.JoinTokensView.as_view()),
    path(NODE, nodes.NodeDetailView.as_view()),
    *(
        path(f"{NODE}/{name}", nodes.NodeActionView.as_view(act=act))
        for name, act in NODE_ACTIONS.items()
    ),
    path("clusters", nodes.ClustersView.as_view()),
    path(f"{CLUSTER}/cycles", nodes.CyclesView.as_view()),
    path(f"{CLUSTER}/forecasts", forecasts.CalibrationView.as_view()),
    path(f"{CLUSTER}/scheduler-config", scheduler_configs.SchedulerConfigView.as_view()),
    path(
        f"{CLUSTER}/scheduler-config/versions",
        scheduler_configs.SchedulerConfigVersionsView.as_view(),
    ),
    path(f"{CLUSTER}/network-tiers", scheduler_configs.NetworkTiersView.as_view()),
    path(f"{CLUSTER}/image-rules", image_rules.ImageRulesView.as_view()),
    path("units", units.UnitsView.as_view()),
    path(UNIT, units.UnitDetailView.as_view()),
    path(f"{UNIT}/preview", units.UnitPreviewView.as_view()),
    path(f"{UNIT}/merge", units.UnitMergeView.as_view()),
    path("users", people.UsersView.as_view()),
    path(USER, people.UserDetailView.as_view()),
    path(f"{USER}/preview", people.UserPreviewView.as_view()),
    path(f"{USER}/invite", people.UserLinkView.as_view()),
    path(f"{USER}/reset-password", people.UserLinkView.as_view(is_reset=True)),
    *(
        path(f"{USER}/{name}", people.UserActionView.as_view(act=act))
        for name, act in USER_ACTIONS.items()
    ),
    path("grants", people.GrantsView.as_view()),
    path("grants:preview", people.GrantPreviewView.as_view()),
    path("grants/<uuid:grant_id>", people.GrantDetailView.as_view()),
    path("tokens", people.TokensView.as_view()),
    path("tokens/<uuid:token_id>", people.TokenDetailView.as_view()),
    path("events", events.EventsView.as_view()),
    path("webhooks", webhooks.WebhooksView.as_view()),
    path(WEBHOOK, webhooks.WebhookDetailView.as_view()),
    path(f"{WEBHOOK}/secret", webhooks.WebhookSecretView.as_view()),
    path(f"{WEBHOOK}/retry", webhooks.WebhookRetryView.as_view()),
    path("live/tickets", live.LiveTicketsView.as_view()),
    path("attention", attention.AttentionView.as_view()),
    path("attention/assign", attention.AttentionAssignView.as_view()),
    path("attention/give-back", attention.AttentionGiveBackView.as_view()),
    path("audit", audit.AuditView.as_view()),
    path("audit:export", audit.AuditExportView.as_view()),
    path("quotas", quotas.QuotasView.as_view()),
    path("quotas/<uuid:quota_id>", quotas.QuotaDetailView.as_view()),
    path("secrets", secrets.SecretsView.as_view()),
    path("secrets/<uuid:secret_id>", secrets.SecretDetailView.as_view()),
]
