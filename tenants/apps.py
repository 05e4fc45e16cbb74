"""Django's registration of the tenants app."""

from django.apps import AppConfig


class TenantsConfig(AppConfig):
    """Who may do what, and the record of it."""

    name = "tenants"
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        """Listen for what people change of their second factors."""
        from tenants.domain import second_factors  # models are there only now

        second_factors.connect()
