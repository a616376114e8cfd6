"""Settings for every installation. Deployments override them in the environment or `.env`."""

import os
from functools import partial
from pathlib import Path
from typing import Any

import django_stubs_ext
from celery.schedules import crontab
from csp.constants import NONCE, NONE, SELF
from django.templatetags.static import static
from django.urls import reverse_lazy
from django.utils.text import format_lazy
from django.utils.translation import gettext_lazy as _
from kombu import Exchange, Queue

from documents.parsers.base import Confinement, Limits
from documents.parsers.formats import PDF_READERS, PDFIUM
from nura import __version__, logs
from nura.embedded import locations
from nura.settings import env, rag, reference

django_stubs_ext.monkeypatch()  # lets Django's generic classes be written with their types

BASE_DIR = Path(__file__).resolve().parents[2]
env.load_dotenv(Path(env.read_text("NURA_DOTENV", str(BASE_DIR / ".env"))))
env.adopt_renamed(reference.RENAMED, reference.RENAMED_VALUES)

os.umask(0o077)  # files this process writes are readable by its user only
DATA_DIR = env.read_folder("NURA_DATA_DIR", BASE_DIR / "var")
HOST = env.read_text("NURA_HOST", "127.0.0.1")
URL_HOST = f"[{HOST}]" if ":" in HOST else HOST
PORT = env.read_integer("NURA_PORT", 8000, minimum=1, maximum=65535)
SECRET_KEY = env.read_secret_key(DATA_DIR)
SECRET_KEY_FALLBACKS = [*env.read_words("SECRET_KEY_FALLBACKS")]
SERVICE_PASSWORD = locations.derive_password(SECRET_KEY)  # of the embedded Postgres and Redis
DATABASE_URL = env.read_url("DATABASE_URL", ("postgres", "postgresql"))
DATABASE_REPLICA_URL = env.read_url("DATABASE_REPLICA_URL", ("postgres", "postgresql"))
REDIS_URL = env.read_url("REDIS_URL", ("redis", "rediss", "unix", "redis+sentinel"))
REDIS_URL = REDIS_URL or locations.build_redis_url(DATA_DIR, SERVICE_PASSWORD)
EMBEDDED_POSTGRES = not DATABASE_URL
EMBEDDED_REDIS = not env.read_text("REDIS_URL")

RUN_AS = env.read_text("NURA_RUN_AS")

WEB_WORKERS = env.read_integer("NURA_WEB_WORKERS", 1, minimum=1, maximum=64)
ANSWER_WORKERS = env.read_integer("NURA_ANSWER_WORKERS", 1, minimum=1, maximum=64)
DOCUMENT_WORKERS = env.read_integer("NURA_DOCUMENT_WORKERS", 1, minimum=1, maximum=256)
SHUTDOWN_SECONDS = env.read_decimal("NURA_SHUTDOWN_SECONDS", 8.0, minimum=0.0, maximum=3600.0)

ACCESS_LOG = env.read_flag("NURA_ACCESS_LOG", default=True)
LOG_FORMAT = env.read_choice("NURA_LOG_FORMAT", "text", ("text", "json"))
LOGGING = logs.build_logging_config(
    LOG_FORMAT, env.read_choice("NURA_LOG_LEVEL", "INFO", logs.LEVELS)
)
logs.configure_structlog()

URL_PREFIX = env.read_prefix("NURA_URL_PREFIX")
FORCE_SCRIPT_NAME = URL_PREFIX or None

DEBUG = False
ALLOWED_HOSTS = list(env.read_words("ALLOWED_HOSTS", ("localhost", "127.0.0.1", "[::1]", URL_HOST)))
CSRF_TRUSTED_ORIGINS = list(env.read_origins("CSRF_TRUSTED_ORIGINS"))

INSTALLED_APPS = [
    "unfold",
    "django.contrib.admin",
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.sessions",
    "django.contrib.messages",
    "django.contrib.staticfiles",
    "django.contrib.postgres",
    "pgvector.django",
    "rest_framework",
    "knox",
    "drf_spectacular",
    "drf_spectacular_sidecar",
    "allauth",
    "allauth.account",
    "allauth.mfa",
    "allauth.socialaccount",
    "allauth.usersessions",
    "documents",
    "chats",
    "nura",
]

MIDDLEWARE = [
    "nura.middleware.release_connection",
    "nura.middleware.note_own_writes",
    "nura.middleware.request_id",
    "nura.metrics.MetricsMiddleware",
    "nura.middleware.SecurityHeaders",
    "nura.middleware.HtmlGZipMiddleware",
    "nura.middleware.ContentPolicy",
    "nura.middleware.relax_admin_policy",
    "nura.static_files.StaticFilesMiddleware",
    "nura.middleware.Sessions",
    "nura.middleware.LocaleMiddleware",
    "nura.middleware.CommonHeaders",
    "nura.middleware.CsrfProtection",
    "nura.middleware.LazyUser",
    "nura.middleware.SeenSessions",
    "nura.middleware.SignedOutParts",
    "nura.middleware.FlashMessages",
    "nura.middleware.FrameOptions",
    "allauth.account.middleware.AccountMiddleware",
]

ROOT_URLCONF = "nura.urls"
ASGI_APPLICATION = "nura.asgi.application"
TEMPLATES = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "DIRS": [BASE_DIR / "templates"],
        "APP_DIRS": True,
        "OPTIONS": {
            "context_processors": [
                "django.template.context_processors.request",
                "django.contrib.auth.context_processors.auth",
                "django.contrib.messages.context_processors.messages",
                "django.template.context_processors.i18n",
                "csp.context_processors.nonce",
                "nura.accounts.preferences.describe_preferences",
                "nura.administration.record.describe_banners",
                "nura.app_shell.describe_release",
            ]
        },
    }
]

DATABASES = {"default": locations.build_database_settings(DATA_DIR, DATABASE_URL, SERVICE_PASSWORD)}
DATABASE_ROUTERS = ["jobs.replica.PrimaryRouter"]
if DATABASE_REPLICA_URL:
    DATABASES["replica"] = locations.build_replica_settings(DATA_DIR, DATABASE_REPLICA_URL)
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"

CACHES = {
    "default": {
        "BACKEND": "jobs.connections.Cache",
        "LOCATION": REDIS_URL,
    }
}

# Accounts
# Roles come first: they settle most checks without a query. Only allauth's backend takes
# passwords: with Django's as well, a known name would take a second hash and be recognisable.
AUTHENTICATION_BACKENDS = [
    "nura.accounts.roles.RolePermissions",
    "allauth.account.auth_backends.AuthenticationBackend",
]
PASSWORD_HASHERS = [
    "django.contrib.auth.hashers.Argon2PasswordHasher",
    "django.contrib.auth.hashers.PBKDF2PasswordHasher",
]
AUTH_PASSWORD_VALIDATORS = [
    {"NAME": f"django.contrib.auth.password_validation.{name}"}
    for name in (
        "UserAttributeSimilarityValidator",
        "MinimumLengthValidator",
        "CommonPasswordValidator",
        "NumericPasswordValidator",
    )
]
LOGIN_URL = "account_login"
LOGIN_REDIRECT_URL = ACCOUNT_LOGOUT_REDIRECT_URL = "chats:new"
ACCOUNT_LOGIN_METHODS = {"username", "email"}
ACCOUNT_SIGNUP_FIELDS = ["username*", "email*", "password1*", "password2*"]
ACCOUNT_EMAIL_NOTIFICATIONS = True
ACCOUNT_CHANGE_EMAIL = True  # one address; a new one takes its place once it is confirmed
ACCOUNT_REAUTHENTICATION_REQUIRED = True
ACCOUNT_EMAIL_SUBJECT_PREFIX = "[Nura] "
ACCOUNT_FORMS = {
    "login": "nura.accounts.adapter.LoginForm",
    "signup": "nura.accounts.signup.SignupForm",
    "change_password": "nura.accounts.profile.NewPasswordForm",
    "reauthenticate": "nura.accounts.profile.ConfirmPasswordForm",
    "reset_password": "nura.accounts.profile.AskForPasswordForm",
    "reset_password_from_key": "nura.accounts.profile.ForgottenPasswordForm",
}
ACCOUNT_ADAPTER = "nura.accounts.adapter.AccountAdapter"
# "login" would lock a whole address, which an office may share: see nura.accounts.adapter.
ACCOUNT_RATE_LIMITS = {"login": None, "login_failed": "5/5m/key,10/h/key,20/d/key"}
ACCOUNT_RATE_LIMITS |= {"login_flood": "100/5m/ip", "login_name": "100/h/key"}
ACCOUNT_RATE_LIMITS |= {"login_done": "120/m/user", "signup": "60/m/ip"}
MFA_ADAPTER = "nura.accounts.profile.MFAAdapter"
MFA_FORMS = {
    "authenticate": "nura.accounts.profile.SecondStepForm",
    "reauthenticate": "nura.accounts.profile.ConfirmCodeForm",
    "activate_totp": "nura.accounts.profile.AppForm",
    "add_webauthn": "nura.accounts.profile.PasskeyForm",
    "edit_webauthn": "nura.accounts.profile.PasskeyNameForm",
}
MFA_SUPPORTED_TYPES = ["totp", "webauthn", "recovery_codes"]
MFA_PASSKEY_LOGIN_ENABLED = True
MFA_ALLOW_UNVERIFIED_EMAIL = True  # installations without mail should have it too
MFA_TOTP_TOLERANCE = 1  # phone clocks can be half a minute off
STAFF_TWO_STEP = env.read_flag("NURA_STAFF_TWO_STEP", default=False)
TRUSTED_PROXIES = env.read_integer("NURA_TRUSTED_PROXIES", 0, maximum=10)
ALLAUTH_TRUSTED_PROXY_COUNT = TRUSTED_PROXIES
SOCIALACCOUNT_ADAPTER = "nura.accounts.sign_on.SignOnAccounts"
SOCIALACCOUNT_LOGIN_ON_GET = (
    True  # our form-action policy blocks a POST that redirects to another server
)
SOCIALACCOUNT_EMAIL_VERIFICATION = "none"  # only verified addresses are accepted
SOCIALACCOUNT_EMAIL_REQUIRED = False
SOCIALACCOUNT_EMAIL_AUTHENTICATION_AUTO_CONNECT = True
LOCAL_SIGN_IN = env.read_choice("NURA_LOCAL_SIGN_IN", "everybody", ("everybody", "administrators"))
SCIM_TOKEN = env.read_text("NURA_SCIM_TOKEN")
LDAP_URL = env.read_url("NURA_LDAP_URL", ("ldap", "ldaps"))
LDAP_START_TLS = env.read_flag("NURA_LDAP_START_TLS", default=LDAP_URL.startswith("ldap:"))
LDAP_CA_FILE = env.read_text("NURA_LDAP_CA_FILE")
LDAP_BIND_DN = env.read_text("NURA_LDAP_BIND_DN")
LDAP_BIND_PASSWORD = env.read_text("NURA_LDAP_BIND_PASSWORD")
LDAP_USERS = env.read_text("NURA_LDAP_USERS")
LDAP_FILTER = env.read_text(
    "NURA_LDAP_FILTER",
    "(|(uid=%(user)s)(sAMAccountName=%(user)s)(userPrincipalName=%(user)s))",
)
LDAP_GROUPS = env.read_text("NURA_LDAP_GROUPS")
LDAP_ADMINISTRATORS = env.read_text("NURA_LDAP_ADMINISTRATORS")
LDAP_AUDITORS = env.read_text("NURA_LDAP_AUDITORS")
if LDAP_URL:
    AUTHENTICATION_BACKENDS.append("nura.accounts.directory.DirectoryBackend")
SIGNUP = env.read_choice("NURA_SIGNUP", "invited", ("closed", "invited", "open"))
EMAIL_HOST = env.read_text("EMAIL_HOST")
# Without a mail server nothing is sent or printed: mails contain secrets.
EMAIL_BACKEND = env.read_text(
    "EMAIL_BACKEND", f"django.core.mail.backends.{'smtp' if EMAIL_HOST else 'dummy'}.EmailBackend"
)
EMAIL_HOST = EMAIL_HOST or "localhost"
MAIL_WORKS = not EMAIL_BACKEND.endswith(("dummy.EmailBackend", "console.EmailBackend"))
ACCOUNT_EMAIL_VERIFICATION = "mandatory" if MAIL_WORKS else "none"
EMAIL_PORT = env.read_integer("EMAIL_PORT", 25, maximum=65535)
EMAIL_HOST_USER = env.read_text("EMAIL_HOST_USER")
EMAIL_HOST_PASSWORD = env.read_text("EMAIL_HOST_PASSWORD")
EMAIL_USE_TLS = env.read_flag("EMAIL_USE_TLS", default=False)
DEFAULT_FROM_EMAIL = env.read_text("DEFAULT_FROM_EMAIL", "nura@localhost")
REST_KNOX = {"TOKEN_TTL": None, "AUTH_HEADER_PREFIX": "Token"}

# REST
REST_FRAMEWORK = {
    "DEFAULT_AUTHENTICATION_CLASSES": (
        "nura.accounts.authentication.KeyAuthentication",
        "rest_framework.authentication.SessionAuthentication",
    ),
    "DEFAULT_PERMISSION_CLASSES": ("nura.accounts.authentication.ScopePermission",),
    "DEFAULT_RENDERER_CLASSES": ("rest_framework.renderers.JSONRenderer",),
    "DEFAULT_PARSER_CLASSES": ("documents.api.requests.JSONParser",),
    "DEFAULT_PAGINATION_CLASS": "documents.api.requests.PageNumberPagination",
    "DEFAULT_SCHEMA_CLASS": "drf_spectacular.openapi.AutoSchema",
    "NUM_PROXIES": TRUSTED_PROXIES,
    "EXCEPTION_HANDLER": "nura.errors.exception_handler",
}
SPECTACULAR_SETTINGS = {
    "TITLE": "Nura",
    "DESCRIPTION": "Chat with your own documents.",
    "VERSION": "1",
    "SERVE_INCLUDE_SCHEMA": False,
    "SERVE_PERMISSIONS": ["nura.accounts.authentication.ScopePermission"],
    "SWAGGER_UI_DIST": "SIDECAR",
    "SWAGGER_UI_FAVICON_HREF": "SIDECAR",
    "SCHEMA_PATH_PREFIX": "/api/v1",
}

# Administration
UNFOLD: dict[str, Any] = {
    "SITE_TITLE": _("Nura administration"),
    "SITE_HEADER": "Nura",
    "SITE_SUBHEADER": format_lazy("{} · {}", _("Administration"), __version__),
    "SITE_URL": reverse_lazy("chats:new"),
    "SITE_ICON": lambda _request: static("nura/img/mark.svg"),
    "SITE_FAVICONS": [
        {
            "rel": "icon",
            "type": "image/svg+xml",
            "href": lambda _request: static("nura/img/mark.svg"),
        }
    ],
    "SHOW_LANGUAGES": True,
    "SHOW_BACK_BUTTON": True,
    "BORDER_RADIUS": "8px",
    "COLORS": {
        "base": {  # the greys of all other pages: front/css/base.css
            "50": "#f7f7f5",
            "100": "#f1f1ee",
            "200": "#e4e5e0",
            "300": "#d1d3cd",
            "400": "#9fa4a9",
            "500": "#686e75",
            "600": "#4c5258",
            "700": "#383d43",
            "800": "#25292d",
            "900": "#16181b",
            "950": "#0d0f10",
        },
        "primary": {
            "50": "#eff8f5",
            "100": "#d8efe8",
            "200": "#b3dfd3",
            "300": "#84c9b7",
            "400": "#4fae97",
            "500": "#2b917b",
            "600": "#0b6b5d",
            "700": "#0a5a4e",
            "800": "#0b483f",
            "900": "#0b3c35",
            "950": "#042420",
        },
    },
    "SIDEBAR": {
        "show_search": False,
        "show_all_applications": False,
        "navigation": "documents.administration.list_navigation",
    },
    "STYLES": [lambda _request: static("nura/built/administration.css")],
}

# Language and time
LANGUAGE_CODE = env.read_choice("NURA_LANGUAGE", "ko", ("ko", "en"))
LANGUAGES = [("ko", _("Korean")), ("en", _("English"))]
LOCALE_PATHS = [BASE_DIR / "locale", BASE_DIR / "locale" / "libraries"]
FORMAT_MODULE_PATH = "nura.formats"
LANGUAGE_COOKIE_AGE = 365 * 24 * 3600
LANGUAGE_COOKIE_SAMESITE = "Lax"
SESSION_COOKIE_PATH = CSRF_COOKIE_PATH = LANGUAGE_COOKIE_PATH = f"{URL_PREFIX}/"
TIME_ZONE = env.read_zone("TZ", "Asia/Seoul")
USE_TZ = True

# Files
STATIC_URL = f"{URL_PREFIX}/static/"
STATIC_ROOT = DATA_DIR / "static"
STATICFILES_DIRS = [BASE_DIR / "static"]
MEDIA_ROOT = DATA_DIR / "files"
FILES_URL = env.read_url("NURA_FILES_URL", ("s3",))
STORAGES: dict[str, dict[str, Any]] = {
    "default": {"BACKEND": "documents.bucket.BucketStorage", "OPTIONS": {"url": FILES_URL}}
    if FILES_URL
    else {"BACKEND": "django.core.files.storage.FileSystemStorage"},
    "staticfiles": {"BACKEND": "nura.static_files.HashedStaticFiles"},
}
MAX_UPLOAD_MB = env.read_integer("NURA_MAX_UPLOAD_MB", 200, minimum=1)
QUOTA_DOCUMENTS = env.read_integer("NURA_QUOTA_DOCUMENTS", 0)  # per user; 0: no limit
QUOTA_MB = env.read_integer("NURA_QUOTA_MB", 0)
QUOTA_PAGES = env.read_integer("NURA_QUOTA_PAGES", 0)
QUOTA_MESSAGES_PER_DAY = env.read_integer("NURA_QUOTA_MESSAGES_PER_DAY", 0)
QUOTA_TOKENS_PER_MONTH = env.read_integer("NURA_QUOTA_TOKENS_PER_MONTH", 0)
QUOTA_SOFT_PERCENT = env.read_integer("NURA_QUOTA_SOFT_PERCENT", 80, maximum=100)
LIMITS = {  # per account and minute unless stated otherwise; 0: no limit (nura.limits)
    "ask": env.read_integer("NURA_LIMIT_QUESTIONS", 160),
    "search": env.read_integer("NURA_LIMIT_SEARCHES", 160),
    "upload": env.read_integer("NURA_LIMIT_UPLOADS", 160),
    "export": env.read_integer("NURA_LIMIT_EXPORTS", 60),
    "embedding-tokens": env.read_integer("NURA_LIMIT_EMBEDDING_TOKENS", 100_000),
    "visitor": env.read_integer("NURA_LIMIT_VISITORS", 600),
    "sockets": env.read_integer("NURA_LIMIT_SOCKETS", 200),
    "at_once": env.read_integer("NURA_LIMIT_AT_ONCE", 8),
    "answers": env.read_integer("NURA_LIMIT_ANSWERS", 20),
}
SOURCE_FOLDERS = env.read_words("NURA_SOURCE_FOLDERS")
INTERNAL_HOSTS = tuple(host.lower() for host in env.read_words("NURA_INTERNAL_HOSTS"))
SOURCE_IN_FLIGHT = env.read_integer("NURA_SOURCE_IN_FLIGHT", 20, minimum=1)
SOURCES_AT_ONCE = env.read_integer("NURA_SOURCES_AT_ONCE", 1, minimum=1)
DISK_RESERVE_MB = env.read_integer("NURA_DISK_RESERVE_MB", 500)
DATA_UPLOAD_MAX_MEMORY_SIZE = 2 * 1024 * 1024
FILE_UPLOAD_MAX_MEMORY_SIZE = 1024 * 1024
FILE_UPLOAD_PERMISSIONS = 0o600
FILE_UPLOAD_DIRECTORY_PERMISSIONS = 0o700
PICTURES = rag.build_picture_rules()
READING_LIMITS = Limits(
    recognised_pages=env.read_integer("NURA_OCR_PAGES", 200, maximum=5000),
    confinement=Confinement(
        env.read_choice("NURA_SANDBOX", Confinement.REQUIRED.value, tuple(Confinement))
    ),
)
PDF_READER = env.read_choice("NURA_PDF_READER", PDFIUM, PDF_READERS)

# Celery (read with the prefix CELERY_)
BROKERS = ("redis", "rediss", "redis+socket", "sentinel", "amqp", "amqps", "pyamqp")
CELERY_BROKER_URL = env.read_url("CELERY_BROKER_URL", BROKERS) or locations.to_celery_url(REDIS_URL)
CELERY_TASK_IGNORE_RESULT = True
CELERY_TASK_SERIALIZER = "json"
CELERY_ACCEPT_CONTENT = ["json"]
CELERY_TASK_ACKS_LATE = True
CELERY_TASK_REJECT_ON_WORKER_LOST = False  # the sweeper recovers tasks, by their leases in Postgres
CELERY_WORKER_PREFETCH_MULTIPLIER = 1
CELERY_BROKER_TRANSPORT_OPTIONS = {
    "visibility_timeout": 6 * 3600,
    # a request does not wait for a broker that is down: the sweeper sends the task again
    "max_retries": 1,
    "interval_start": 0,
    "interval_step": 0.1,
    "interval_max": 0.2,
    "socket_connect_timeout": 2.0,
    "socket_timeout": 8.0,  # a hanging Redis must not block a request or a worker for good
    **locations.build_celery_options(REDIS_URL),
}
CELERY_BROKER_CONNECTION_RETRY_ON_STARTUP = True
# The default exchange needs no binding in Redis, so tasks are routed even after Redis was emptied.
CELERY_TASK_QUEUES = [Queue("documents", Exchange(""), routing_key="documents")]
CELERY_TASK_DEFAULT_QUEUE = "documents"
CELERY_BEAT_SCHEDULE = {
    "ingests": {
        "task": "documents.tasks.sweep_ingests",
        "schedule": 15.0,
        "options": {"expires": 15.0},
    },
    "sources": {
        "task": "documents.tasks.sweep_sources",
        "schedule": 15.0,
        "options": {"expires": 15.0},
    },
    "segments": {
        "task": "documents.tasks.write_segments",
        "schedule": 60.0,
        "options": {"expires": 60.0},
    },
    "deletions": {
        "task": "nura.tasks.settle_deletions",
        "schedule": 60.0,
        "options": {"expires": 60.0},
    },
    "account-files": {
        "task": "nura.tasks.sweep_account_files",
        "schedule": 60.0,
        "options": {"expires": 60.0},
    },
    "purge": {
        "task": "nura.tasks.purge_expired",
        "schedule": crontab(hour="3", minute="40"),
        "options": {"expires": 12 * 3600.0},
    },
}
if LDAP_URL:
    CELERY_BEAT_SCHEDULE["directory"] = {
        "task": "nura.tasks.end_removed_accounts",
        "schedule": 300.0,
        "options": {"expires": 300.0},
    }
CELERY_BEAT_SCHEDULER = "nura.celery.BeatScheduler"
CELERY_BEAT_SCHEDULE_FILENAME = str(DATA_DIR / "beat-schedule")

# Days for which deleted data is kept; 0: not at all
RETENTION_EVIDENCE_DAYS = env.read_integer("NURA_RETENTION_EVIDENCE_DAYS", 30, maximum=36_500)
RETENTION_DELETED_DAYS = env.read_integer("NURA_RETENTION_DELETED_DAYS", 30, maximum=36_500)
ANSWER_CACHE_HOURS = env.read_integer("NURA_ANSWER_CACHE_HOURS", 0, maximum=8_760)
CACHE_MB = env.read_integer("NURA_CACHE_MB", 1024, minimum=1)

# Browser security
SECURE_CONTENT_TYPE_NOSNIFF = True
SECURE_REFERRER_POLICY = "same-origin"
SECURE_CROSS_ORIGIN_OPENER_POLICY = "same-origin"
X_FRAME_OPTIONS = "DENY"
SESSION_COOKIE_HTTPONLY = True
SESSION_COOKIE_SAMESITE = "Lax"
CSRF_COOKIE_SAMESITE = "Lax"
CSRF_FAILURE_VIEW = "nura.errors.csrf_failure"
# `check --deploy` looks for Django's own middleware; ours wraps it (nura.middleware).
SILENCED_SYSTEM_CHECKS = ["security.W001", "security.W002", "security.W003"]
CONTENT_SECURITY_POLICY = {
    "DIRECTIVES": {
        "default-src": [SELF],
        "script-src": [SELF, NONCE],
        "style-src": [SELF, NONCE],
        "img-src": [SELF, "data:"],
        "font-src": [SELF],
        "media-src": [SELF, "blob:"],  # an answer that the server reads aloud
        "connect-src": [SELF],
        "object-src": [NONE],
        "base-uri": [NONE],
        "form-action": [SELF],
        "frame-ancestors": [NONE],
    }
}

# Speech of `manage.py ask --tts`
TTS_BASE_URL = env.read_url("NURA_TTS_BASE_URL", ("http", "https"))
TTS_MODEL = env.read_text("NURA_TTS_MODEL")
TTS_VOICE = env.read_text("NURA_TTS_VOICE", "alloy")
TTS_API_KEY = env.read_text("NURA_TTS_API_KEY")

# Memory of conversations
MODELS_SOCKET = locations.build_models_socket(DATA_DIR)
RAG = rag.build_rag_config(SECRET_KEY, MODELS_SOCKET)
BUILD_RAG = partial(
    rag.build_rag_config, SECRET_KEY, MODELS_SOCKET
)  # rebuilds it from the current environment, for comparisons
EMBEDDING_OTHER_API_KEY = env.read_text("NURA_EMBEDDING_OTHER_API_KEY")
