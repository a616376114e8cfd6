"""The part of a file that a request asks for (RFC 9110, section 14)."""

import re

from django.http import HttpRequest
from django.utils.http import quote_etag

_ONE = re.compile(r"bytes=\s*(\d*)-(\d*)\s*", re.ASCII | re.IGNORECASE)
DIGITS = 18
"""More of them name no byte of any file."""


class OutOfRange(Exception):
    """No byte of the file is in the range."""


def asked(request: HttpRequest, *, size: int, tag: str) -> range | None:
    """The bytes asked for, by their offsets; None stands for the whole file.

    That is what is answered to no range, to several, to one that cannot be read, and to one of
    another version than `tag`. Raises `OutOfRange`.
    """
    match = _ONE.fullmatch(request.headers.get("Range", ""))
    condition = request.headers.get("If-Range")
    if request.method != "GET" or match is None or not any(match.groups()):
        return None
    if condition is not None and condition.strip() != quote_etag(tag):
        return None
    return _within(match[1], match[2], size)


def _within(first: str, last: str, size: int) -> range | None:
    start, end = (int(digits[:DIGITS]) if digits else None for digits in (first, last))
    if start is None:
        found = range(max(0, size - (end or 0)), size)
    elif end is not None and end < start:
        return None
    else:
        found = range(start, size if end is None else min(end + 1, size))
    if not found:
        raise OutOfRange
    return found
