"""Secrets at rest: keys of model servers, of storage, of sign-on, sealed with the secret key.

Tables, backups and exports hold what `seal_secret` gives. What was sealed under an older secret key
opens as long as that one is among Django's SECRET_KEY_FALLBACKS.
"""

import base64
import functools

from cryptography.fernet import Fernet, InvalidToken, MultiFernet
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from django.conf import settings

LABEL = b"nura: secrets at rest"
"""Other things are derived from the secret key, too: each under a label of its own."""


class SecretUnreadable(Exception):
    """It was sealed under another secret key, or changed since."""


def seal_secret(text: str) -> str:
    """The text as it may be stored; "" stays empty."""
    return _make_box(_list_keys()).encrypt(text.encode()).decode() if text else ""


def open_secret(sealed: str) -> str:
    """What was sealed. Raises `SecretUnreadable`."""
    if not sealed:
        return ""
    try:
        return _make_box(_list_keys()).decrypt(sealed.encode()).decode()
    except InvalidToken:
        raise SecretUnreadable from None


def can_open(sealed: str) -> bool:
    """Whether the secret key that is set opens it."""
    try:
        open_secret(sealed)
    except SecretUnreadable:
        return False
    return True


def _list_keys() -> tuple[str, ...]:
    return (settings.SECRET_KEY, *map(str, settings.SECRET_KEY_FALLBACKS))


@functools.lru_cache(maxsize=4)
def _make_box(secret_keys: tuple[str, ...]) -> MultiFernet:
    derived = [
        HKDF(algorithm=SHA256(), length=32, salt=None, info=LABEL).derive(key.encode())
        for key in secret_keys
    ]
    return MultiFernet([Fernet(base64.urlsafe_b64encode(key)) for key in derived])
