"""What the environment says about a start of the embedded installation."""

import os
from pathlib import Path

from django.conf import settings

from controlplane import env
from controlplane.supervisor.start import Given, Options


def options(*, with_agent: bool) -> Options:
    """Read the variables of `manage.py up`, checked."""
    return Options(
        checkout=Path(settings.BASE_DIR),
        data=settings.TERRACE_DATA,
        bind=env.text("TERRACE_BIND", "127.0.0.1"),
        web_port=env.integer("TERRACE_PORT", 8000, least=1, most=65535),
        gateway_port=env.integer("TERRACE_GATEWAY_PORT", 8001, least=1, most=65535),
        run_as=env.text("TERRACE_RUN_AS"),
        given=Given(
            database_url=env.secret("DATABASE_URL"),
            redis_url=env.secret("REDIS_URL"),
            secret_key=env.secret("SECRET_KEY"),
            public_url=env.origin("PUBLIC_URL"),
            gateway_url=env.origin("TERRACE_GATEWAY_URL"),
        ),
        environment=dict(os.environ),
        with_agent=with_agent,
    )
