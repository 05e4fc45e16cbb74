"""Django's registration of the tenants app."""

from django.apps import AppConfig


class TenantsConfig(AppConfig):
    """Who may do what, and the record of it."""

    name = "tenants"
    default_auto_field = "django.db.models.BigAutoField"
