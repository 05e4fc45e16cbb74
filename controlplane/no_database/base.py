"""PostgreSQL's backend, except that connecting explains what is missing.

Settings load without a database so that linters, `makemigrations` and `manage.py up` itself work;
whatever needs a row learns here why there is none.
"""

from typing import NoReturn

from django.db.backends.postgresql import base
from django.db.utils import OperationalError


class DatabaseWrapper(base.DatabaseWrapper):
    """The backend that settings choose when they know no server."""

    def get_connection_params(self) -> NoReturn:
        """Refuse, and name the two ways to a database."""
        message = (
            "No database: DATABASE_URL is not set and no embedded server runs in "
            f"{self.settings_dict['HOST']}. Start Terrace with `make up`, or set DATABASE_URL."
        )
        raise OperationalError(message)
