"""Questions on the documents themselves.

"이 문서 요약해줘", "무슨 내용이야?", "summarize this document".
"""

import re

from rag import stems, tokenize
from rag.types import Scope, ScopeReason
from rag.words import words

_DOCUMENT = re.compile(
    r"문서|파일|자료|첨부|업로드|올린|보고서|논문|\bdocuments?\b|\bfiles?\b|\bpdf\b|\battach\w*|\buploaded\b|\bpaper\b",
    re.IGNORECASE,
)
_WHOLE = re.compile(
    r"요약|정리|내용|개요|핵심|요지|주제|결론|줄거리|목차|뭐에\s?대한|무엇에\s?(?:대한|관한)|무슨\s?(?:문서|파일|자료|글|이야기|얘기)|"
    r"\bsummar\w+|\boverview\b|\bkey\s?points?\b|\bmain\s?points?\b|\bgist\b|\boutline\b|\btl;?dr\b|"
    r"\bwhat(?:'s| is| does| are)\b.*\b(?:about|say|in it|contain)\b",
    re.IGNORECASE,
)
_PLACE = words("place") | {stems.stem(word) for word in words("place")}
_NAMING_NOTHING = words("whole_document.ko") | {
    stems.stem(word) for word in words("whole_document.en")
}


def is_about_documents(text: str, scope: Scope) -> bool:
    """True when the question asks for the documents as a whole and names nothing to search for.

    Where the scope is merely everything the user has, the question must also mention documents;
    where documents were named by their place ("방금 2번"), nothing else needs to be said.
    """
    if scope.reason is ScopeReason.SLOT and scope.document_ids:
        return all(_names_nothing(term) for term in tokenize.subject_terms(text))
    if not scope.document_ids or not (_WHOLE.search(text) or _DOCUMENT.search(text)):
        return False
    if not _WHOLE.search(text) and len(text.split()) == 1:
        return False  # "자료" alone is a word to look for
    if scope.reason is ScopeReason.ALL and not _DOCUMENT.search(text):
        return False
    return tokenize.subject_terms(text) <= _NAMING_NOTHING


def _names_nothing(term: str) -> bool:
    """Whether a term only says which document is meant, or what to do with it."""
    return term in _NAMING_NOTHING or term in _PLACE or term[0].isdigit()
