"""Names as they are compared: what an issuer, a project or a document is called."""

import re
import unicodedata

_MARKS = re.compile(r"[\W_]+")


def normalised(name: str) -> str:
    """A name without spaces, marks and case: "전자 조달 (2세대)" and "전자조달2세대" are one."""
    return _MARKS.sub("", unicodedata.normalize("NFKC", name)).casefold()
