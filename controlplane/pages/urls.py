"""The addresses of the pages; controlplane/urls.py includes them at the root."""

from django.urls import path
from django.views.i18n import set_language

from controlplane.pages import (
    activity,
    admin_area,
    cluster,
    home,
    job_actions,
    job_detail,
    job_form,
    jobs,
    palette,
    preferences,
    queues,
)

app_name = "pages"
urlpatterns = [
    path("", home.my_work, name="home"),
    path("preferences/theme/", preferences.theme, name="theme"),
    path("preferences/language/", set_language, name="language"),
    path("palette/", palette.found, name="palette"),
    path("jobs/", jobs.listing, name="job_list"),
    path("jobs/bulk/", job_actions.bulk, name="job_bulk"),
    path("jobs/new/", job_form.new, name="job_new"),
    path("jobs/new/fit/", job_form.fit, name="job_fit"),
    path("jobs/<uuid:job_id>/", job_detail.overview, name="job"),
    path("jobs/<uuid:job_id>/act/", job_actions.act, name="job_act"),
    path("jobs/<uuid:job_id>/clone/", job_form.clone, name="job_clone"),
    path("jobs/<uuid:job_id>/tasks/", job_detail.tasks, name="job_tasks"),
    path("jobs/<uuid:job_id>/tasks/<str:role>/<int:index>/", job_detail.task, name="job_task"),
    path("jobs/<uuid:job_id>/timeline/", job_detail.timeline, name="job_timeline"),
    path("jobs/<uuid:job_id>/logs/", job_detail.logs, name="job_logs"),
    path("jobs/<uuid:job_id>/logs/download/", job_detail.log_download, name="job_log_download"),
    path("jobs/<uuid:job_id>/metrics/", job_detail.metrics, name="job_metrics"),
    path("jobs/<uuid:job_id>/why/", job_detail.why, name="job_why"),
    path("jobs/<uuid:job_id>/spec/", job_detail.spec, name="job_spec"),
    path("jobs/<uuid:job_id>/events/", job_detail.events, name="job_events"),
    path("jobs/<uuid:job_id>/files/", job_detail.files, name="job_files"),
    path("jobs/<uuid:job_id>/files/<uuid:file_id>/", job_detail.file_download, name="job_file"),
    path("queues/", queues.tree, name="queue_tree"),
    path("queues/edit/", queues.edit, name="queue_edit"),
    path("queues/new/", queues.new, name="queue_new"),
    path("queues/<path:name>/act/", queues.act, name="queue_act"),
    path("queues/<path:name>/", queues.detail, name="queue"),
    path("cluster/", cluster.overview, name="cluster"),
    path("cluster/join/", cluster.join, name="cluster_join"),
    path("cluster/nodes/<str:name>/", cluster.node, name="node"),
    path("cluster/nodes/<str:name>/act/", cluster.node_act, name="node_act"),
    path("activity/", activity.feed, name="activity"),
    path("admin/health/", admin_area.health, name="health"),
    path("admin/images/", admin_area.images, name="images"),
]
