"""A noun with a particle finds the bare noun, and the other way round, always."""

from collections.abc import Iterator
from itertools import chain

import pytest

from rag import tokenize
from tests.rag.analysers import without_kiwi

ONE_SYLLABLE = """
법 돈 물 값 책 집 땅 길 밥 옷 꿈 병 강 산 차 배 눈 코 입 손 발 몸 피 표 군 읍 동 구 과
실 팀 술 쌀
"""
LIKE_PARTICLES = """
고양이 나이 회의 도로 사과 가가 기은 부가가치세 신의 미로 이순신 호랑이 어린이 종이
길이 차이 강의 정의 동의 협의 예의 경로 진로 통로 효과 결과 학과 부과 평가 국가 물가
단가 휴가 허가 원가 작가 제도 정도 속도 지도 한도 연도 밀도 대만 불만 비만 자만 나라
소라 신라 바나나 부모 와이파이 은나 은은 을을 가을 마을 조은 하은 김은 이은 정은 박가
이나 이란 사랑 자랑 노랑 이다해 고은이 정가은 조조 이이 도도 에이다 보다폰 처럼회
까지마 마다가스카르 조차지 이라크 강남대로 세종대로 개인 법인 각도 누라 무신사 논의
문의 위로 피로
"""
COMMON = """
서울 부산 대구 경기도 제주도 숙박비 출장 예산 세출예산 계약서 입찰공고 전자조달시스템
국가계약법 지방자치단체 과업지시서 제안요청서 개인정보 시행령 부칙 별표 서식 가로등
이사회 은행 학교 문서 하늘 바람 사람 마음 구름
"""
FOREIGN = """
서버 데이터베이스 클라우드 컴퓨터 인터넷 프로그램 스마트폰 알고리즘 커피 초콜릿
텔레비전 버스 아파트 갓생 혼코노 꾸안꾸 점메추 알잘딱깔센 뉴진스 쿠팡 당근마켓
리트리버 쿠버네티스 랭체인 벡터디비 블록체인 메타버스 챗봇 손흥민
"""
MIXED = """
API Python E-1234 GPT-4o RFC9110 C++ vLLM v2.1.0 R&D IT COVID-19 B-52 hong@nura.kr
www.nura.kr K-컬처 5G망 AI반도체 제2024-15호 2세대 3분기 제3조 30일 90,000원
1,234,567원 3.5% 歲入 세입(歲入)
"""
NOUNS = f"{ONE_SYLLABLE} {LIKE_PARTICLES} {COMMON} {FOREIGN} {MIXED}".split()

EITHER = """
의 에 에서 에게 에게서 에게서는 한테 께서 도 만 까지 까지는 까지도 까지의 부터 부터는
보다 보다는 처럼 마다 조차 조차도 마저 밖에 밖에는 에서의 에서는 에서도 에서부터 에는
에도 에의 에게는 이나마 이라도 이라는 이라고 이란 이며 이고 이다 입니다 인가요 하고
대로 만큼 만큼은 뿐만 커녕 같이 만은 만을 만으로는
"""
AFTER_CONSONANT = """
은 이 을 과 으로 으로는 으로도 으로서 으로써 으로의 으로부터 으로부터의 으로까지 과의
과는 이나 이랑 이에요 은커녕
"""
AFTER_VOWEL = """
는 가 를 와 로 로는 로도 로서 로써 로의 로부터 로부터의 로까지 와의 와는 나 랑 라는
라고 라도 란 예요 는커녕
"""
PLACES = ("2024년 보고서에서 {} 관한 사항을 정한다.", "오늘 {} 어떻게 되었는지 알려 주세요")
FINALS = 28
RIEUL = 8


def list_forms(noun: str) -> list[str]:
    """The noun with each particle that fits it."""
    final = (ord(noun[-1]) - ord("가")) % FINALS if "가" <= noun[-1] <= "힣" else 0
    special = AFTER_CONSONANT if final else AFTER_VOWEL
    if final == RIEUL:
        special = special.replace("으로", "로")
    return [noun + particle for particle in (*EITHER.split(), *special.split())]


def list_nouns_with_forms(step: int) -> Iterator[tuple[str, str]]:
    """A noun and a form of it: each noun with every so many-th particle, starting at its own."""
    for at, noun in enumerate(NOUNS):
        yield from ((noun, form) for form in list_forms(noun)[at % step :: step])


def find_missed(asked: list[tuple[str, str, str]]) -> list[tuple[str, str]]:
    """The question and text of the pairs (noun, question, text) that share no term of the noun.

    A single syllable counts only where the noun is no longer.
    """
    texts = list(dict.fromkeys(chain.from_iterable((noun, text) for noun, _, text in asked)))
    found = dict(zip(texts, tokenize.count_terms_per_text(texts), strict=True))
    questions = {question: set(tokenize.weigh_query_terms(question)) for _, question, _ in asked}
    return [
        (question, text)
        for noun, question, text in asked
        if not any(
            term in found[noun] and (len(term) > 1 or len(noun) == 1)
            for term in questions[question] & found[text].keys()
        )
    ]


def test_there_are_hundreds_of_nouns_and_thousands_of_pairs():
    assert len(set(NOUNS)) == len(NOUNS) > 200
    assert len(list(list_nouns_with_forms(1))) > 10_000


@pytest.mark.usefixtures("analyser")
def test_a_bare_noun_finds_every_form_of_it(whole):
    assert (
        find_missed([(noun, noun, form) for noun, form in list_nouns_with_forms(1 if whole else 3)])
        == []
    )


@pytest.mark.usefixtures("analyser")
def test_a_noun_with_a_particle_finds_the_bare_noun():
    assert find_missed([(noun, form, noun) for noun, form in list_nouns_with_forms(4)]) == []


@pytest.mark.usefixtures("analyser")
@pytest.mark.parametrize("place", PLACES)
def test_within_a_sentence_nouns_are_found_too(place):
    pairs = list(list_nouns_with_forms(8))
    assert find_missed([(noun, noun, place.format(form)) for noun, form in pairs]) == []
    assert find_missed([(noun, place.format(form), noun) for noun, form in pairs]) == []


def test_what_was_indexed_with_the_analyser_is_found_without_it_and_the_other_way_round():
    pairs = list(list_nouns_with_forms(8))
    forms_of = [form for _, form in pairs]
    analysed = list(tokenize.count_terms_per_text(forms_of))
    asked = [set(tokenize.weigh_query_terms(form)) for form in forms_of]
    with without_kiwi():
        for (noun, form), with_it, question in zip(pairs, analysed, asked, strict=True):
            own = {term for term in tokenize.count_terms(noun) if len(term) > 1 or len(noun) == 1}
            assert own & with_it.keys() & tokenize.weigh_query_terms(noun).keys(), form
            assert own & question, form
