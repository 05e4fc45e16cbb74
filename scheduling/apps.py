"""Django's registration of the scheduling app."""

from django.apps import AppConfig


class SchedulingConfig(AppConfig):
    """Jobs, queues, nodes and the rules over them."""

    name = "scheduling"
    default_auto_field = "django.db.models.BigAutoField"
