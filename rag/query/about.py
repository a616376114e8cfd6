"""Questions on the documents themselves: "이 문서 요약해줘", "무슨 내용이야?", "summarize this document"."""

import re

from rag import stems, tokenize
from rag.types import Scope, ScopeReason

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
_EMPTY_KOREAN = frozenset(
    "문서 파일 자료 첨부 업로드 올리 보고서 논문 요약 정리 내용 개요 핵심 요지 주제 결론 줄거리 목차 전체 주요 간단 간략 "
    "간단히 간략히 자세히 짧 길 한국어 영어 문장 줄 읽 보이 이야기 얘기 글 제목 부분 중요 세 두 네 다섯 위 아래 번역 대한 관한 무슨".split()
)
_EMPTY_ENGLISH = frozenset(
    stems.stem(word)
    for word in "document file pdf attach upload paper summarize summarise summary overview key main point gist "
    "outline tl dr content say contain everything whole short brief briefly quick sentence line text korean english "
    "please just".split()
)


def is_about_documents(text: str, scope: Scope) -> bool:
    """True when the question asks for the documents as a whole and names nothing to search for.

    Where the scope is merely everything the user has, the question must also mention documents.
    """
    if not scope.document_ids or not (_WHOLE.search(text) or _DOCUMENT.search(text)):
        return False
    if scope.reason is ScopeReason.ALL and not _DOCUMENT.search(text):
        return False
    left = {
        term for term in tokenize.subject_terms(text) if term not in _EMPTY_KOREAN | _EMPTY_ENGLISH
    }
    return not left
