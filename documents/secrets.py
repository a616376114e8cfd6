"""Secrets at rest: keys of model servers, storage and sign-on, encrypted with the secret key.

Tables, backups and exports hold only the output of `seal_secret`. Secrets sealed with an older
secret key can be opened as long as it is listed in Django's SECRET_KEY_FALLBACKS.
"""

import base64
import functools

from cryptography.fernet import Fernet, InvalidToken, MultiFernet
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from django.conf import settings

LABEL = b"nura: secrets at rest"
"""Other keys are derived from the secret key as well, each with its own label."""


class SecretUnreadable(Exception):
    """It was sealed with another secret key, or changed since."""


def seal_secret(text: str) -> str:
    """The text as it may be stored; "" stays empty."""
    return _make_cipher(_list_keys()).encrypt(text.encode()).decode() if text else ""


def open_secret(sealed: str) -> str:
    """What was sealed. Raises `SecretUnreadable`."""
    if not sealed:
        return ""
    try:
        return _make_cipher(_list_keys()).decrypt(sealed.encode()).decode()
    except InvalidToken:
        raise SecretUnreadable from None


def can_open(sealed: str) -> bool:
    """Whether the current secret keys open it."""
    try:
        open_secret(sealed)
    except SecretUnreadable:
        return False
    return True


def _list_keys() -> tuple[str, ...]:
    return (settings.SECRET_KEY, *map(str, settings.SECRET_KEY_FALLBACKS))


@functools.lru_cache(maxsize=4)
def _make_cipher(secret_keys: tuple[str, ...]) -> MultiFernet:
    keys = [
        HKDF(algorithm=SHA256(), length=32, salt=None, info=LABEL).derive(key.encode())
        for key in secret_keys
    ]
    return MultiFernet([Fernet(base64.urlsafe_b64encode(key)) for key in keys])
