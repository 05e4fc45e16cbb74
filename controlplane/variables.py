"""What each environment variable means; the code that reads it says the rest.

`manage.py document_settings` makes `docs/settings.md` of this table and of the reads themselves; a
test fails when a variable is read and not described here, or the page is out of date.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Variable:
    """One variable: what it is for, an example, and its default where the code computes it."""

    name: str
    meaning: str
    example: str
    default: str = ""


@dataclass(frozen=True, slots=True)
class Section:
    """Variables that belong together."""

    title: str
    variables: tuple[Variable, ...]


REQUIRED = "the embedded mode's own; required with `DATABASE_URL`"

SECTIONS = (
    Section(
        "Production",
        (
            Variable(
                "DATABASE_URL",
                "The PostgreSQL database. With it set, Terrace is in production, and `REDIS_URL`, "
                "`SECRET_KEY`, `PUBLIC_URL` and `TERRACE_GATEWAY_URL` are required.",
                "postgresql://terrace:password@db.example:5432/terrace?sslmode=verify-full",
                default="the embedded server's",
            ),
            Variable(
                "REDIS_URL",
                "Redis: broker and live updates; `rediss://` for TLS.",
                "rediss://:password@redis.example:6379/0",
                default=REQUIRED,
            ),
            Variable(
                "SECRET_KEY",
                "Signs sessions and links: at least 50 random characters, the same for all "
                "processes. A known or short one stops the start.",
                "the output of `python3 -c 'import secrets; print(secrets.token_urlsafe(48))'`",
                default=REQUIRED,
            ),
            Variable(
                "TERRACE_SECRETS_KEY",
                "Seals the secrets of units; without one there are none. Several, with commas: the "
                "first one seals, all open. Lost with it: every secret.",
                "the output of `python3 -c 'import base64, os; "
                "print(base64.urlsafe_b64encode(os.urandom(32)).decode())'`",
                default="the embedded mode's own, else none",
            ),
            Variable(
                "PUBLIC_URL",
                "How browsers reach web. `https://` turns on secure cookies, redirects and HSTS.",
                "https://terrace.example",
                default=REQUIRED,
            ),
            Variable(
                "TERRACE_GATEWAY_URL",
                "How agents and tools reach the gateway: on another host name than web's, so that "
                "no page of a tool shares its origin.",
                "https://gateway.terrace.example",
                default=REQUIRED,
            ),
        ),
    ),
    Section(
        "HTTP",
        (
            Variable(
                "TERRACE_ALLOWED_HOSTS",
                "Host names that web answers to.",
                "terrace.example,terrace.internal",
                default="the host of `PUBLIC_URL`",
            ),
            Variable(
                "TERRACE_BEHIND_PROXY",
                "Believe `X-Forwarded-Proto`: only behind a proxy that always sets it.",
                "yes",
            ),
        ),
    ),
    Section(
        "Database",
        (
            Variable(
                "TERRACE_DATABASE_POOL",
                "Connections that a process keeps at most; 0: none is kept.",
                "16",
            ),
            Variable(
                "TERRACE_DATABASE_PREPARE",
                "Let the database plan what is asked most often once a connection. Off where "
                "a pooler of transactions stands between that knows no prepared statements.",
                "no",
            ),
            Variable(
                "TERRACE_STATEMENT_TIMEOUT_SECONDS",
                "The longest that a database statement may take.",
                "30",
            ),
            Variable(
                "TERRACE_PROCESS",
                "How the process calls itself to PostgreSQL (`application_name`).",
                "terrace-web",
            ),
        ),
    ),
    Section(
        "Files and pages",
        (
            Variable(
                "TERRACE_DATA",
                "The folder for all that Terrace writes on this machine.",
                "/var/lib/terrace",
                default="`.terrace` in the checkout",
            ),
            Variable(
                "TERRACE_FILES",
                "The folder for uploaded code, outputs and finished logs.",
                "/srv/terrace-files",
                default="`files` in `TERRACE_DATA`",
            ),
            Variable(
                "TERRACE_S3_BUCKET",
                "A bucket of an S3-compatible store instead of that folder; needed where web runs "
                "on several machines.",
                "terrace",
            ),
            Variable(
                "TERRACE_S3_ENDPOINT",
                "The store's address, unless it is AWS.",
                "https://s3.example",
            ),
            Variable("TERRACE_S3_REGION", "The store's region.", "eu-central-1"),
            Variable("TERRACE_S3_ACCESS_KEY", "The name of the key to the store.", "AKIA…"),
            Variable("TERRACE_S3_SECRET_KEY", "The key to the store.", "…"),
            Variable(
                "TERRACE_STATIC",
                "Where `collectstatic` puts scripts and styles, and web reads them.",
                "/var/lib/terrace/static",
                default="`staticfiles` in the checkout",
            ),
            Variable(
                "TERRACE_COLLECT", "Set while `collectstatic` runs: names get their hash.", "yes"
            ),
        ),
    ),
    Section(
        "Loops and nodes",
        (
            Variable(
                "TERRACE_LEASE_SECONDS",
                "How long the lease of a loop lasts: a standby takes over at most so long after "
                "the holder has died. The same for all workers.",
                "3",
            ),
            Variable(
                "TERRACE_NODE_LEASE_SECONDS",
                "How long a task goes on while its node has no contact; after a tenth more it is "
                "tried elsewhere.",
                "60",
            ),
            Variable(
                "TERRACE_NODE_RESERVED_CPU_MILLI",
                "Kept free on each node for its own system, but never more than a tenth of it.",
                "500",
            ),
            Variable(
                "TERRACE_HAND_OVER_SECONDS",
                "After so long a loop lets another worker take it over, if there is one.",
                "600",
            ),
        ),
    ),
    Section(
        "Change sets of queues",
        (
            Variable(
                "TERRACE_CHANGE_REVIEW_GPUS",
                "A change of queues that takes more GPUs than this from those who run now needs a "
                "second person; -1: never.",
                "64",
            ),
            Variable(
                "TERRACE_CHANGE_CONFIRM_GPUS",
                "Above this the title of the change has to be typed again; -1: never.",
                "16",
            ),
        ),
    ),
    Section(
        "Sign-in by OpenID Connect",
        (
            Variable(
                "OIDC_ISSUER",
                "The provider's address; with it set, the next two are required.",
                "https://login.example/realms/lab",
            ),
            Variable("OIDC_CLIENT_ID", "How Terrace is called there.", "terrace"),
            Variable("OIDC_CLIENT_SECRET", "Its secret there.", "…"),
            Variable("OIDC_NAME", "What the button says.", "Sign in with the lab's account"),
        ),
    ),
    Section(
        "Events for other services",
        (
            Variable(
                "TERRACE_WEBHOOK_ALLOWED",
                "Host names and networks that webhooks may reach although they are not public.",
                "chat.lab.example,10.20.0.0/16",
            ),
        ),
    ),
    Section(
        "Mail",
        (
            Variable(
                "TERRACE_MAIL_HOST",
                "The server that takes mail; without one mails go to the log.",
                "mail.example",
            ),
            Variable("TERRACE_MAIL_PORT", "Its port.", "25"),
            Variable("TERRACE_MAIL_USER", "Who signs in there.", "terrace"),
            Variable("TERRACE_MAIL_PASSWORD", "The password for it.", "…"),
            Variable("TERRACE_MAIL_TLS", "Use STARTTLS.", "no"),
            Variable(
                "TERRACE_MAIL_FROM",
                "Who the mails are from.",
                "terrace@lab.example",
                default="terrace@ the host of `PUBLIC_URL`",
            ),
        ),
    ),
    Section(
        "Logs",
        (
            Variable(
                "TERRACE_LOG_LEVEL",
                "What is logged, as one JSON object a line on standard error.",
                "WARNING",
            ),
        ),
    ),
    Section(
        "Only for `make up`",
        (
            Variable("TERRACE_BIND", "The address that it listens on.", "10.0.0.5"),
            Variable("TERRACE_PORT", "The port of web, or the next free one.", "8080"),
            Variable("TERRACE_GATEWAY_PORT", "The port of the gateway, likewise.", "8081"),
            Variable(
                "TERRACE_RUN_AS",
                "Whom the servers run as when root starts them.",
                "terrace",
                default="the owner of the checkout, else `nobody`",
            ),
        ),
    ),
)
