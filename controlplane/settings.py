"""Terrace's settings: read once from the environment, checked, the same for every process.

With nothing set, Terrace runs on the embedded PostgreSQL and Redis that `make up` starts, whose
addresses stand in the data folder. With DATABASE_URL set, it is a production: REDIS_URL,
SECRET_KEY and PUBLIC_URL are then required. `docs/settings.md` lists every variable.
"""

import secrets
import warnings
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import psycopg
import structlog
from csp.constants import NONCE, NONE, SELF
from django.core.exceptions import ImproperlyConfigured
from django.utils.translation import gettext_lazy as _
from psycopg.conninfo import conninfo_to_dict

from controlplane import env
from controlplane.supervisor import services
from tenants.domain import sealing

BASE_DIR = Path(__file__).resolve().parent.parent

# --- Where things are -----------------------------------------------------------------------------

TERRACE_DATA = env.folder("TERRACE_DATA", BASE_DIR / ".terrace")
IS_EMBEDDED = not env.is_set("DATABASE_URL")
try:
    _services = services.read(TERRACE_DATA) if IS_EMBEDDED else None
except services.UnreadableServicesError as error:
    raise ImproperlyConfigured(str(error)) from error


# As Django's check of deployments has it, which nobody need run: a guessable key signs anything.
SHORTEST_KEY = 50
FEWEST_LETTERS = 5


def _required(name: str, value: str | None) -> str:
    """Insist on a value in production; the embedded mode brings its own."""
    if value:
        return value
    message = f"{name} is not set; with DATABASE_URL set it is required. See docs/settings.md."
    raise ImproperlyConfigured(message)


if _services is not None:
    _database_url: str | None = _services.database_url
    REDIS_URL = env.secret("REDIS_URL", _services.redis_url)
    SECRET_KEY = env.secret("SECRET_KEY", _services.secret_key)
    PUBLIC_URL = env.origin("PUBLIC_URL", _services.public_url)
    TERRACE_GATEWAY_URL = env.origin("TERRACE_GATEWAY_URL", _services.gateway_url)
elif IS_EMBEDDED:
    # Nothing runs yet: linters, `makemigrations` and `up` itself. The key lives as long as the
    # process, so nothing can be signed with a known one by mistake.
    _database_url = None
    REDIS_URL = env.secret("REDIS_URL", "redis://terrace-is-not-running.invalid:6379/0")
    SECRET_KEY = env.secret("SECRET_KEY", secrets.token_urlsafe(48))
    PUBLIC_URL = env.origin("PUBLIC_URL", "http://127.0.0.1:8000")
    TERRACE_GATEWAY_URL = env.origin("TERRACE_GATEWAY_URL", "http://127.0.0.1:8001")
else:
    _database_url = env.secret("DATABASE_URL")
    REDIS_URL = _required("REDIS_URL", env.secret("REDIS_URL"))
    SECRET_KEY = _required("SECRET_KEY", env.secret("SECRET_KEY"))
    if len(SECRET_KEY) < SHORTEST_KEY or len(set(SECRET_KEY)) < FEWEST_LETTERS:
        raise ImproperlyConfigured(
            f"SECRET_KEY is not at least {SHORTEST_KEY} random characters; take the output of: "
            "python3 -c 'import secrets; print(secrets.token_urlsafe(48))'"
        )
    PUBLIC_URL = _required("PUBLIC_URL", env.origin("PUBLIC_URL"))
    TERRACE_GATEWAY_URL = _required("TERRACE_GATEWAY_URL", env.origin("TERRACE_GATEWAY_URL"))

# Seals the secrets of units. Only web and the gateway need it; without it there are no secrets.
_secrets_key = env.secret("TERRACE_SECRETS_KEY", _services.secrets_key if _services else "")
try:
    TERRACE_SECRETS_KEYRING = sealing.Keyring(sealing.read_keys(_secrets_key))
except sealing.UnusableKeyError as error:
    raise ImproperlyConfigured(f"TERRACE_SECRETS_KEY: {error}") from error

DEBUG = False  # never: stack traces are for the log, and check_all refuses True

# --- Django ---------------------------------------------------------------------------------------

INSTALLED_APPS = [
    "controlplane",
    "scheduling",
    "tenants",
    "worker",
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.humanize",
    "django.contrib.messages",
    "django.contrib.postgres",
    "django.contrib.sessions",
    "django.contrib.staticfiles",
    "allauth",
    "allauth.account",
    "allauth.mfa",
    "allauth.socialaccount",
    "allauth.socialaccount.providers.openid_connect",
    "channels",
    "csp",
    "django_cotton",
    "django_filters",
    "django_htmx",
    "drf_spectacular",
    "rest_framework",
]

MIDDLEWARE = [
    "controlplane.middleware.request_id.RequestIdMiddleware",
    "django.middleware.security.SecurityMiddleware",
    "csp.middleware.CSPMiddleware",
    "whitenoise.middleware.WhiteNoiseMiddleware",
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.locale.LocaleMiddleware",
    "django.middleware.common.CommonMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "allauth.account.middleware.AccountMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
    "django.middleware.clickjacking.XFrameOptionsMiddleware",
    "django_htmx.middleware.HtmxMiddleware",
    "controlplane.middleware.actor.ActorMiddleware",
    "controlplane.middleware.viewer.ViewerMiddleware",
    "controlplane.middleware.refusals.RefusalMiddleware",
    "controlplane.middleware.second_factor.SecondFactorMiddleware",
]

ROOT_URLCONF = "controlplane.urls"
ASGI_APPLICATION = "controlplane.asgi.application"
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
APPEND_SLASH = False  # one address for one thing

TEMPLATES = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "DIRS": [BASE_DIR / "templates"],
        # django-cotton wraps the loaders and adds its tags when its app starts.
        "APP_DIRS": True,
        "OPTIONS": {
            "context_processors": [
                "django.template.context_processors.request",
                "django.contrib.auth.context_processors.auth",
                "django.contrib.messages.context_processors.messages",
                "django.template.context_processors.i18n",
                "csp.context_processors.nonce",
            ],
        },
    },
]

# --- PostgreSQL: the only truth -------------------------------------------------------------------


def _database(url: str | None) -> dict[str, Any]:
    """Return Django's description of the database at `url`."""
    if url is None:
        return {"ENGINE": "controlplane.no_database", "NAME": "terrace", "HOST": str(TERRACE_DATA)}
    try:
        parts = {key: str(value) for key, value in conninfo_to_dict(url).items()}
    except psycopg.ProgrammingError as error:
        message = (
            f"DATABASE_URL is not a PostgreSQL address ({error}); for example "
            "DATABASE_URL=postgresql://terrace:password@db.example:5432/terrace"
        )
        raise ImproperlyConfigured(message) from error
    statement_timeout = env.integer("TERRACE_STATEMENT_TIMEOUT_SECONDS", 10, least=1, most=86_400)
    limits = {
        "lock_timeout": "2s",
        "statement_timeout": f"{statement_timeout}s",
        "idle_in_transaction_session_timeout": "15s",
    }
    pool_size = env.integer("TERRACE_DATABASE_POOL", 8, least=0, most=1000)
    return {
        "ENGINE": "django.db.backends.postgresql",
        "NAME": parts.pop("dbname", "terrace"),
        "USER": parts.pop("user", ""),
        "PASSWORD": parts.pop("password", ""),
        "HOST": parts.pop("host", ""),
        "PORT": parts.pop("port", ""),
        # Under ASGI a connection kept by a thread is never given back; the pool is what keeps them.
        "CONN_MAX_AGE": 0,
        "CONN_HEALTH_CHECKS": True,
        "OPTIONS": {
            "options": " ".join(f"-c {name}={value}" for name, value in limits.items()),
            "application_name": env.text("TERRACE_PROCESS", "terrace"),
            "connect_timeout": "5",
            **({"pool": {"min_size": 0, "max_size": pool_size, "timeout": 5}} if pool_size else {}),
            **parts,
        },
    }


DATABASES = {"default": _database(_database_url)}
TERRACE_DATABASE_PREPARE = env.flag("TERRACE_DATABASE_PREPARE", default=True)

# --- Redis: broker, wake-ups, live fan-out; may vanish at any moment ------------------------------

CHANNEL_LAYERS = {
    "default": {
        "BACKEND": "channels_redis.pubsub.RedisPubSubChannelLayer",
        "CONFIG": {"hosts": [REDIS_URL], "symmetric_encryption_keys": [SECRET_KEY]},
    },
}

# The cache holds login counters only. It lies in the database, so that losing Redis neither locks
# anybody out nor opens the door to guessing.
CACHES = {
    "default": {
        "BACKEND": "django.core.cache.backends.db.DatabaseCache",
        "LOCATION": "controlplane_cache",
        # Beyond it rows are thrown out at random: with the usual 300, guessing at other names
        # would forget how often one was tried. Rows that have expired go first.
        "OPTIONS": {"MAX_ENTRIES": 1_000_000},
    },
}

# --- Who is who -----------------------------------------------------------------------------------

AUTH_USER_MODEL = "tenants.User"
AUTHENTICATION_BACKENDS = ["allauth.account.auth_backends.AuthenticationBackend"]
PASSWORD_HASHERS = ["django.contrib.auth.hashers.Argon2PasswordHasher"]
AUTH_PASSWORD_VALIDATORS = [
    {"NAME": f"django.contrib.auth.password_validation.{name}", "OPTIONS": options}
    for name, options in (
        ("UserAttributeSimilarityValidator", {}),
        ("MinimumLengthValidator", {"min_length": 12}),
        ("CommonPasswordValidator", {}),
    )
]
LOGIN_URL = "account_login"
LOGIN_REDIRECT_URL = "/"

ACCOUNT_ADAPTER = "controlplane.accounts.AccountAdapter"
ACCOUNT_LOGIN_METHODS = {"username", "email"}
ACCOUNT_SIGNUP_FIELDS = ["username*", "email", "password1*", "password2*"]
ACCOUNT_EMAIL_VERIFICATION = "none"  # accounts are made by administrators, not by strangers
# A new password ends all other sessions (their hash is of the old one), not the one that set it.
ACCOUNT_SESSION_REMEMBER = True
ACCOUNT_PREVENT_ENUMERATION = True
MFA_SUPPORTED_TYPES = ["totp", "recovery_codes", "webauthn"]
# Addresses are given by administrators and not proven; a factor must not wait for that.
MFA_ALLOW_UNVERIFIED_EMAIL = True
MFA_ADAPTER = "controlplane.accounts.MfaAdapter"
MFA_TOTP_ISSUER = "Terrace"
MFA_TOTP_TOLERANCE = 1  # periods of 30 s by which a phone's clock may differ
SOCIALACCOUNT_ADAPTER = "controlplane.accounts.SocialAccountAdapter"
SOCIALACCOUNT_PROVIDERS: dict[str, Any] = {"openid_connect": {"APPS": []}}
if env.is_set("OIDC_ISSUER"):
    SOCIALACCOUNT_PROVIDERS["openid_connect"]["APPS"].append(
        {
            "provider_id": "sso",
            "name": env.text("OIDC_NAME", "Single sign-on"),
            "client_id": _required("OIDC_CLIENT_ID", env.text("OIDC_CLIENT_ID")),
            "secret": _required("OIDC_CLIENT_SECRET", env.secret("OIDC_CLIENT_SECRET")),
            "settings": {"server_url": env.text("OIDC_ISSUER")},
        },
    )

# --- HTTP, cookies and what a page may do ---------------------------------------------------------

_public = urlsplit(PUBLIC_URL)
IS_HTTPS = _public.scheme == "https"
_LOOPBACK = ["127.0.0.1", "localhost", "[::1]"]
ALLOWED_HOSTS = env.words(
    "TERRACE_ALLOWED_HOSTS", [_public.hostname or "", *(_LOOPBACK if IS_EMBEDDED else [])]
)
# The embedded mode is reached by any name of the loopback interface.
_ORIGINS = [PUBLIC_URL]
if IS_EMBEDDED and _public.port is not None:
    _ORIGINS += [f"{_public.scheme}://{host}:{_public.port}" for host in _LOOPBACK]
CSRF_TRUSTED_ORIGINS = sorted(set(_ORIGINS))
if env.flag("TERRACE_BEHIND_PROXY", default=False):
    SECURE_PROXY_SSL_HEADER = ("HTTP_X_FORWARDED_PROTO", "https")

# Browsers accept the __Host- prefix over https only.
_prefix = "__Host-" if IS_HTTPS else "terrace_"
SESSION_COOKIE_NAME = f"{_prefix}session"
CSRF_COOKIE_NAME = f"{_prefix}csrf"
LANGUAGE_COOKIE_NAME = f"{_prefix}language"
SESSION_COOKIE_SECURE = CSRF_COOKIE_SECURE = LANGUAGE_COOKIE_SECURE = IS_HTTPS
SESSION_COOKIE_HTTPONLY = LANGUAGE_COOKIE_HTTPONLY = True
CSRF_COOKIE_HTTPONLY = True  # pages carry the token in their markup
SESSION_COOKIE_SAMESITE = CSRF_COOKIE_SAMESITE = LANGUAGE_COOKIE_SAMESITE = "Lax"
SESSION_ENGINE = "controlplane.sessions"
SESSION_COOKIE_AGE = 14 * 24 * 3600
SECURE_SSL_REDIRECT = IS_HTTPS
SECURE_HSTS_SECONDS = 365 * 24 * 3600 if IS_HTTPS else 0
SECURE_HSTS_INCLUDE_SUBDOMAINS = SECURE_HSTS_PRELOAD = IS_HTTPS
SECURE_REDIRECT_EXEMPT = [r"^(healthz|readyz|metrics)$"]
SECURE_REFERRER_POLICY = "same-origin"
SECURE_CROSS_ORIGIN_OPENER_POLICY = "same-origin"
X_FRAME_OPTIONS = "DENY"
DATA_UPLOAD_MAX_MEMORY_SIZE = 1024 * 1024
DATA_UPLOAD_MAX_NUMBER_FIELDS = 10_000

CONTENT_SECURITY_POLICY = {
    "DIRECTIVES": {
        "default-src": [NONE],
        "script-src": [SELF, NONCE],
        "style-src": [SELF, NONCE],
        "img-src": [SELF, "data:", "blob:"],
        "font-src": [SELF],
        # Older browsers do not count a socket to the same place as 'self'.
        # The policy's grammar has no IPv6 addresses.
        "connect-src": [
            SELF,
            *(url.replace("http", "ws", 1) for url in CSRF_TRUSTED_ORIGINS if "[" not in url),
        ],
        "manifest-src": [SELF],
        "worker-src": [SELF],
        "base-uri": [NONE],
        "form-action": [SELF],
        "frame-ancestors": [NONE],
        "object-src": [NONE],
    },
}

# --- Loops and nodes ------------------------------------------------------------------------------

# How long a loop's lease lasts: a standby acts at most so long after the holder has died.
TERRACE_LEASE_SECONDS = env.integer("TERRACE_LEASE_SECONDS", 5, least=2, most=600)
# How long a task goes on without contact between its node and the control plane.
TERRACE_NODE_LEASE_SECONDS = env.integer("TERRACE_NODE_LEASE_SECONDS", 10, least=3, most=3600)
# Kept for the node's own system, but never more than a tenth of its CPUs.
TERRACE_NODE_RESERVED_CPU_MILLI = env.integer(
    "TERRACE_NODE_RESERVED_CPU_MILLI", 200, least=0, most=64_000
)
# After so many seconds a loop lets another worker take it over, if the broker answers.
TERRACE_HAND_OVER_SECONDS = env.integer("TERRACE_HAND_OVER_SECONDS", 300, least=5, most=86_400)

# --- Change sets of queues ------------------------------------------------------------------------

# A change that takes more GPUs than this from those who run now needs a second person; -1: never.
TERRACE_CHANGE_REVIEW_GPUS = env.integer("TERRACE_CHANGE_REVIEW_GPUS", -1, least=-1, most=1_000_000)
# Above this its title has to be typed again before it is applied; -1: never.
TERRACE_CHANGE_CONFIRM_GPUS = env.integer(
    "TERRACE_CHANGE_CONFIRM_GPUS", 8, least=-1, most=1_000_000
)

# Addresses that are not public and may be told of events all the same: host names and networks.
TERRACE_WEBHOOK_ALLOWED = env.words("TERRACE_WEBHOOK_ALLOWED")

# --- Files: pages' own, uploaded code, outputs, log chunks ----------------------------------------

STATIC_URL = "/static/"
STATIC_ROOT = env.folder("TERRACE_STATIC", BASE_DIR / "staticfiles")
STATICFILES_DIRS = [BASE_DIR / "static"]
# A checkout serves static/ as it lies; a deployment runs collectstatic and serves hashed names.
IS_COLLECTED = (STATIC_ROOT / "staticfiles.json").exists() and not IS_EMBEDDED
WHITENOISE_USE_FINDERS = not IS_COLLECTED
if not IS_COLLECTED:
    warnings.filterwarnings("ignore", message="No directory at", module="django.core.handlers")


def _file_storage() -> dict[str, Any]:
    """Return Django's description of the store for uploaded and produced files."""
    bucket = env.text("TERRACE_S3_BUCKET")
    if bucket is None:
        location = env.folder("TERRACE_FILES", TERRACE_DATA / "files")
        return {
            "BACKEND": "django.core.files.storage.FileSystemStorage",
            "OPTIONS": {
                "location": str(location),
                "file_permissions_mode": 0o600,
                "directory_permissions_mode": 0o700,
            },
        }
    return {
        "BACKEND": "storages.backends.s3.S3Storage",
        "OPTIONS": {
            "bucket_name": bucket,
            "endpoint_url": env.text("TERRACE_S3_ENDPOINT"),
            "region_name": env.text("TERRACE_S3_REGION"),
            "access_key": env.secret("TERRACE_S3_ACCESS_KEY"),
            "secret_key": env.secret("TERRACE_S3_SECRET_KEY"),
            "default_acl": "private",
            "querystring_auth": True,
            "file_overwrite": True,
        },
    }


_STATIC_BACKEND = (
    "whitenoise.storage.CompressedManifestStaticFilesStorage"
    if IS_COLLECTED or env.flag("TERRACE_COLLECT", default=False)
    else "django.contrib.staticfiles.storage.StaticFilesStorage"
)
STORAGES = {"default": _file_storage(), "staticfiles": {"BACKEND": _STATIC_BACKEND}}

# --- Words and times ------------------------------------------------------------------------------

LANGUAGE_CODE = "en"
LANGUAGES = [("en", _("English")), ("zh-hans", _("Simplified Chinese"))]
LOCALE_PATHS = [BASE_DIR / "controlplane" / "locale"]
USE_I18N = True
USE_TZ = True
TIME_ZONE = "UTC"

# --- Mail -----------------------------------------------------------------------------------------

EMAIL_HOST = env.text("TERRACE_MAIL_HOST", "")
EMAIL_PORT = env.integer("TERRACE_MAIL_PORT", 587, least=1, most=65535)
EMAIL_HOST_USER = env.text("TERRACE_MAIL_USER", "")
EMAIL_HOST_PASSWORD = env.secret("TERRACE_MAIL_PASSWORD", "")
EMAIL_USE_TLS = env.flag("TERRACE_MAIL_TLS", default=True)
EMAIL_TIMEOUT = 10
DEFAULT_FROM_EMAIL = env.text("TERRACE_MAIL_FROM", f"terrace@{_public.hostname}")
EMAIL_BACKEND = (
    "django.core.mail.backends.smtp.EmailBackend"
    if EMAIL_HOST
    else "django.core.mail.backends.console.EmailBackend"
)

# --- API ------------------------------------------------------------------------------------------

REST_FRAMEWORK: dict[str, Any] = {
    "DEFAULT_PERMISSION_CLASSES": ["rest_framework.permissions.IsAuthenticated"],
    "DEFAULT_SCHEMA_CLASS": "controlplane.api.schema.ApiSchema",
    "DEFAULT_RENDERER_CLASSES": ["rest_framework.renderers.JSONRenderer"],
    "TEST_REQUEST_DEFAULT_FORMAT": "json",
}
SPECTACULAR_SETTINGS: dict[str, Any] = {
    "TITLE": "Terrace",
    "DESCRIPTION": "Batch and AI jobs on shared clusters: queues, jobs, nodes, people.",
    "VERSION": "1",
    "SERVE_INCLUDE_SCHEMA": False,
    "ENUM_NAME_OVERRIDES": {"SecretKindEnum": "tenants.models.SecretKind"},
}

# --- Logging: one JSON object a line --------------------------------------------------------------

LOG_LEVEL = env.choice(
    "TERRACE_LOG_LEVEL", "INFO", among=("DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL")
)
_shared_processors: list[structlog.typing.Processor] = [
    structlog.contextvars.merge_contextvars,
    structlog.stdlib.add_logger_name,
    structlog.stdlib.add_log_level,
    structlog.processors.TimeStamper(fmt="iso", utc=True),
    structlog.processors.StackInfoRenderer(),
    structlog.processors.format_exc_info,
]
structlog.configure(
    processors=[
        structlog.stdlib.filter_by_level,
        *_shared_processors,
        structlog.stdlib.ProcessorFormatter.wrap_for_formatter,
    ],
    logger_factory=structlog.stdlib.LoggerFactory(),
    cache_logger_on_first_use=True,
)
LOGGING = {
    "version": 1,
    "disable_existing_loggers": False,
    "formatters": {
        "json": {
            "()": structlog.stdlib.ProcessorFormatter,
            "foreign_pre_chain": _shared_processors,
            "processors": [
                structlog.stdlib.ProcessorFormatter.remove_processors_meta,
                structlog.processors.JSONRenderer(),
            ],
        },
    },
    "handlers": {"stderr": {"class": "logging.StreamHandler", "formatter": "json"}},
    "root": {"handlers": ["stderr"], "level": LOG_LEVEL},
    "loggers": {
        "django.server": {"handlers": [], "propagate": True},
        "django.request": {"level": "ERROR"},
        "uvicorn": {"handlers": [], "propagate": True},
        "uvicorn.access": {"level": "WARNING"},
        "redis": {"level": "WARNING"},
        "psycopg.pool": {"level": "ERROR"},
    },
}
