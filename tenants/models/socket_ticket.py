"""One-use tickets with which programs that have an API token open a live socket."""

from django.db import models

from tenants.models.token import ApiToken


class SocketTicket(models.Model):
    """Stands for a token in a socket's address, where the token itself would end up in logs."""

    token = models.ForeignKey(ApiToken, on_delete=models.CASCADE, related_name="+")
    secret_hash = models.CharField(max_length=64, unique=True)
    expires_at = models.DateTimeField(db_index=True)

    def __str__(self) -> str:
        return f"ticket of {self.token_id}"
