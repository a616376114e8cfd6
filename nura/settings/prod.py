"""Settings that `make run` and every installation use."""

from nura.settings import env
from nura.settings.base import *  # noqa: F403

HTTPS = env.read_flag("NURA_HTTPS", default=False)
SESSION_COOKIE_SECURE = HTTPS
CSRF_COOKIE_SECURE = HTTPS
SECURE_SSL_REDIRECT = HTTPS
SECURE_REDIRECT_EXEMPT = [r"(^|/)(healthz|readyz)$"]  # probed from inside, without TLS
SECURE_HSTS_SECONDS = 31_536_000 if HTTPS else 0
if HTTPS:
    SECURE_PROXY_SSL_HEADER = ("HTTP_X_FORWARDED_PROTO", "https")
