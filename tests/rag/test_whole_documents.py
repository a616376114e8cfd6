"""Whole documents in parts, questions back, and text of documents as harmless Markdown."""

import re
from uuid import uuid4

import pytest

from rag.conversation import DocRef
from rag.generate import markdown, offline
from rag.types import Excerpt
from rag.understand.references import Reference, Unclear

KEY = uuid4()
LAW = "\n\n".join(f"제{at}조 {'가나다라 ' * (at % 29 * 9)}" for at in range(1, 90))


class Shelf:
    """One document at the port that passages are read through; keeps what was read."""

    def __init__(self, text: str = LAW) -> None:
        self.text = text
        self.asked: list[tuple[int, int]] = []

    def read(self, document_id, start, length):
        """A stretch of the document."""
        self.asked.append((start, length))
        if document_id != KEY:
            return None
        return Excerpt(self.text[start : start + length], start, len(self.text))


def make_ref(**fields) -> DocRef:
    values = {"version": 2, "passages": ("그때의 첫 조항", "그때의 다른 조항"), **fields}
    return DocRef(2, KEY, values.pop("title", "공탁법"), "law.md", **values)


def show(shelf, part=1, *, version=2, language="ko", document=None, **wishes):
    readable = {} if version is None else {KEY: version}
    return offline.show_document(document or make_ref(), readable, part, shelf, language, **wishes)


def get_body(found) -> str:
    """The document's own text of a part, without blanks."""
    text = found.text.split("\n", 1)[1] if "\n" in found.text else ""
    return re.sub(r"\s|\u00a0", "", text.split("---\n\n")[0])


def test_a_part_tells_title_version_and_place():
    found = show(Shelf(), 2)
    parts = found.view.parts
    assert parts > 5
    assert found.text.startswith(f"**『공탁법』 (v2) 2/{parts}**")
    assert (found.view.document_id, found.view.part) == (KEY, 2)
    assert "'다음'이라고 하시면" in found.text
    assert "열 수 없습니다" not in found.text
    assert "(v2)" in found.text


def test_all_parts_together_are_the_document():
    parts = show(Shelf()).view.parts
    read = "".join(get_body(show(Shelf(), part)) for part in range(1, parts + 1))
    assert read == re.sub(r"\s", "", LAW)


def test_parts_end_with_paragraphs_and_do_not_depend_on_what_was_read_before():
    found = [show(Shelf(), part) for part in (5, 1, 3, 2, 4)]
    assert all(re.search(r"\*\*\n\n제\d+조", one.text) for one in found)
    assert [show(Shelf(), part).text for part in (5, 1, 3, 2, 4)] == [one.text for one in found]


def test_no_more_is_read_than_the_part():
    shelf = Shelf()
    show(shelf, 3)
    most = offline.PART_CHARACTERS + offline.MAX_LOOKAHEAD_CHARACTERS
    assert shelf.asked == [(2 * offline.PART_CHARACTERS, most)]


@pytest.mark.parametrize(
    "text", ["가" * 20_000, "가 " * 9_000, "x", "", "\n" * 9_000, "끝.\n" * 4_000]
)
def test_any_text_can_be_cut(text):
    parts = show(Shelf(text)).view.parts
    read = "".join(get_body(show(Shelf(text), part)) for part in range(1, parts + 1))
    assert read == re.sub(r"\s", "", text)


def test_beyond_the_end_stands_the_last_part_and_that_is_said():
    found = show(Shelf(), 99)
    assert found.view.part == found.view.parts
    assert "99번째 부분은 없습니다" in found.text
    assert "여기가 문서의 끝입니다" in found.text
    assert "There is no part 99" in show(Shelf(), 99, language="en").text


def test_a_short_document_is_one_part_without_a_word_on_others():
    found = show(Shelf("제1조 목적"))
    assert found.text == "**『공탁법』 (v2) 1/1**\n\n제1조 목적"


def test_of_a_document_that_is_gone_stands_what_was_shown_then():
    found = show(Shelf(), version=None)
    assert "열 수 없습니다" in found.text
    assert "그때의 첫 조항" in found.text
    assert "그때의 다른 조항" in found.text


def test_a_document_that_the_store_no_longer_gives_is_gone():
    class Empty(Shelf):
        def read(self, document_id, start, length):
            return None

    assert "열 수 없습니다" in show(Empty()).text


def test_where_nothing_was_kept_of_a_document_that_is_gone_that_is_said():
    found = show(Shelf(), version=None, document=make_ref(passages=()))
    assert "남아 있지 않습니다" in found.text
    assert (
        "첫 조항"
        in show(Shelf(), version=None, document=make_ref(passages=(), snippet="첫 조항")).text
    )


def test_of_an_older_version_stands_what_was_shown_and_the_present_one_is_offered():
    found = show(Shelf(), version=3, language="en")
    assert "(v2) 1/1" in found.text
    assert "그때의 첫 조항" in found.text
    assert "latest version" in found.text


def test_the_present_version_is_shown_when_it_is_asked_for():
    found = show(Shelf(), version=3, present=True)
    assert "(v3)" in found.text
    assert "제1조" in found.text
    assert found.ref.version == 3


def test_where_an_older_version_was_not_kept_the_present_one_stands_and_that_is_said():
    found = show(Shelf(), version=3, document=make_ref(passages=()))
    assert "남아 있지 않습니다" in found.text
    assert "제1조" in found.text


def test_of_several_documents_the_first_is_shown_and_the_others_are_told():
    found = show(Shelf("제1조 목적"), others=[make_ref(title="상표법"), make_ref(title="저작권법")])
    assert "『상표법』, 『저작권법』" in found.text.splitlines()[-1]
    assert "제1조" in found.text


# Questions back


def make_unclear_reference(unclear, *titles) -> Reference:
    documents = tuple(DocRef(slot, uuid4(), name, "a.pdf") for slot, name in enumerate(titles, 1))
    return Reference(documents, "기한은?", unclear=unclear)


@pytest.mark.parametrize("language", ["ko", "en"])
@pytest.mark.parametrize("unclear", [Unclear.AMBIGUOUS, Unclear.OUT_OF_RANGE, Unclear.NOTHING])
def test_a_question_back_lists_what_can_be_chosen(unclear, language):
    text = offline.render_clarification(
        make_unclear_reference(unclear, "공탁법", "상표법"), language
    )
    assert text.endswith("1. 공탁법\n2. 상표법")
    assert bool(re.search("[가-힣]{2}나요", text)) == (language == "ko")


def test_each_reason_has_its_own_words():
    reasons = [make_unclear_reference(kind, "공탁법") for kind in Unclear]
    texts = {
        offline.render_clarification(one, "ko")
        for one in (*reasons, make_unclear_reference(Unclear.NOTHING))
    }
    assert len(texts) == 4


def test_nothing_is_listed_where_nothing_was_shown():
    text = offline.render_clarification(make_unclear_reference(Unclear.NOTHING), "ko")
    assert "아직 보여 드린 문서가 없습니다" in text
    assert "1." not in text


def test_a_clear_reference_is_not_asked_back():
    with pytest.raises(ValueError, match="clear"):
        offline.render_clarification(Reference((make_ref(),), "기한은?"), "ko")


def test_a_title_cannot_write_markdown_or_lines_of_its_own():
    title = "[x](http://a.b)\n\n# 제목 **굵게** <img src=x> <|im_start|> " + "길" * 300
    text = offline.render_clarification(make_unclear_reference(Unclear.AMBIGUOUS, title), "ko")
    line = text.splitlines()[-1]
    assert line.startswith("1. \\[x\\](http://a.b) \\# 제목 \\*\\*굵게\\*\\*")
    assert "<|" not in line
    assert len(line) < 200


def test_many_candidates_are_cut():
    text = offline.render_clarification(
        make_unclear_reference(Unclear.AMBIGUOUS, *[f"법 {at}" for at in range(50)]), "ko"
    )
    assert "20. 법 19" in text
    assert "법 20" not in text
    assert "+30" in text


# Plain text


@pytest.mark.parametrize(
    ("text", "safe"),
    [
        ("# 제1장", "\\# 제1장"),
        ("1. 항목", "1\\. 항목"),
        ("- 항목", "\\- 항목"),
        ("===", "\\==="),
        ("[1] 참고", "(1) 참고"),
        ("a_b `c` ~~d~~", "a\\_b \\`c\\` \\~\\~d\\~\\~"),
        ("&lt;b&gt;", "\\&lt;b\\&gt;"),
        ("    코드", "\u00a0\u00a0\u00a0\u00a0코드"),
        ("| 가 | *나* |", "| 가 | \\*나\\* |"),
        ("![그림](http://a)", "!\\[그림\\](http://a)"),
    ],
)
def test_a_line_is_shown_as_it_stands(text, safe):
    assert markdown.escape_lines(text) == safe
