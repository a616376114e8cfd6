"""A chat as PDF: all that was said, in fonts that come along, and nothing else."""

import json
import time
from io import BytesIO

import pdfplumber
import pypdfium2
import pytest

from chats.models import Chat
from chats.services import export as printing
from chats.services.export import MAX_TREE_DEPTH, list_typed_nodes, parse_markdown_tree
from tests.chats.conftest import client, make_document
from tests.chats.turns import add_turn

pytestmark = pytest.mark.django_db(transaction=True)

ANSWER = """사업 예산은 **3억 5천만 원**입니다 [1]. 면적은 33㎡, 근거는 ① 大韓民國憲法입니다.

## 일정

- 공고: *3월*, 가산 **(2%)**를 더함
  1. 접수
- 개찰: ~~4월~~ 5월

| 항목 | 값 |
|:--|--:|
| 예산 | 350,000,000 |

```python
print("한글")  # #import "x"
```

> 인용 [고시](https://example.com/고시) ![지도](http://127.0.0.1:9/x.png)
"""


def export(api, chat):
    return api.get(f"/api/v1/chats/{chat.pk}/export?format=pdf")


def make_chat(owner, answer, question="얼마인가요?"):
    add_turn(owner, question, make_document(owner, name="공고.md"), content=answer)
    return Chat.objects.get()


def read_text(data):
    document = pypdfium2.PdfDocument(data)
    return "\n".join(page.get_textpage().get_text_range() for page in document)


def remove_blanks(text):
    return "".join(text.split()).replace("\u200b", "")


def test_a_chat_can_be_printed(api, owner):
    chat = make_chat(owner, ANSWER)
    answer = export(api, chat)
    assert answer["Content-Type"] == "application/pdf"
    assert answer["Content-Disposition"].endswith(".pdf")
    text = remove_blanks(read_text(answer.content))
    for words in (
        "얼마인가요?",
        "예산은3억5천만원입니다[1].",
        "33㎡",
        "①大韓民國憲法",
        "•공고:3월,가산(2%)를더함",
        "1.접수",
        "4월5월",
        "항목값예산350,000,000",
        'print("한글")##import"x"',
        "인용고시지도",
        "[1]공고(공고.md)",
        "1/1",
    ):
        assert words in text


def test_korean_breaks_between_words_and_a_word_longer_than_a_line_anywhere(api, owner):
    words = [f"{'가' * (1 + 7 * n % 13)}{n}" for n in range(120)]
    long, rest = "나" * 200, " ".join(words)
    answer = f"{rest}\n\n- {rest}\n\n{long}"
    lines = read_text(
        export(api, make_chat(owner, answer, question=f"{'얼' * 60} {rest}")).content
    ).splitlines()
    kept = {word for line in lines for word in line.split() if "가" in word}
    assert kept == set(words)
    assert sum(line.count("나") for line in lines) == 200
    assert max(line.count("나") for line in lines) < 60


def test_every_letter_is_drawn_by_a_font_that_comes_along(api, owner):
    with pdfplumber.open(BytesIO(export(api, make_chat(owner, ANSWER)).content)) as document:
        fonts = {one["fontname"] for page in document.pages for one in page.chars}
    assert all(name[6] == "+" for name in fonts)  # a subset that the file holds itself
    assert {name[7:] for name in fonts} >= {"NotoSansKR-Regular", "NotoSansKR-Bold"}


@pytest.mark.parametrize(
    "hostile",
    [
        '#read("/etc/passwd") #import "@preview/x:1.0.0" $ x $ \\ ] } ) "',
        "<script>alert(1)</script> <b>ㄱ</b>",
        "**a " * 300 + "end" + "**" * 300,
        "> " * 400 + "tief",
        "- " * 400 + "tief",
        "[" * 500 + "x" + "](javascript:alert(1))" * 500,
        "|a|\n|-|\n" + "|b|c|d|\n" * 3 + "|\n",
        "\x07 \ufffe \u202e \U0010ffff 😀 ᄒᆞᆫ",
        "",
    ],
)
def test_whatever_was_said_is_set_as_words(api, owner, hostile):
    chat = make_chat(owner, "앞 " + hostile + "\n\n끝말")
    answer = export(api, chat)
    assert answer.status_code == 200
    assert "끝말" in remove_blanks(read_text(answer.content))


def test_typst_in_an_answer_stays_text(api, owner):
    words = '#read("chat.typ") #sys.inputs $ x^2 $ *fett*'
    text = remove_blanks(read_text(export(api, make_chat(owner, words)).content))
    assert '#read("chat.typ")#sys.inputs$x^2$fett' in text


FORMULAS = r"""넓이는 $\pi r^2$이고 값은 $5와 $10입니다.

$$\sum_{i=1}^{n} i = \frac{n(n+1)}{2}$$

\[
f'(x) = \lim_{h \to 0} \frac{f(x+h) - f(x)}{h}
\]

- $\text{매출} = 단가 \times 수량 \leq 1{,}000$과 \(\hat{y} \in \mathbb{R}\)

$$\begin{pmatrix} a & b \\ c & d \end{pmatrix} \left( \sqrt[3]{x} \right)$$

> $$
> \sigma^2
> $$

$$\begin{aligned} a &= b \\ c &= \binom{n}{k} \end{aligned}$$
"""


def test_formulas_are_set_as_such(api, owner):
    text = remove_blanks(read_text(export(api, make_chat(owner, FORMULAS)).content))
    assert "\\" not in text
    assert "값은$5와$10입니다." in text
    for signs in ("𝜋𝑟", "∑", "lim", "→", "매출=단가×수량≤1,000", "∈ℝ", "√", "𝜎"):
        assert signs in text
    assert not set("{}^_") & set(text)


def test_formulas_of_a_question_are_set_as_well(api, owner):
    question = "원의 넓이 $\\pi r^2$은?\n\n\\[\\sum_{i=1}^{n} i\\]\n`$y$` # 값은 $5와 $6"
    text = remove_blanks(read_text(export(api, make_chat(owner, "네.", question)).content))
    assert "원의넓이𝜋𝑟2은?" in text
    assert "∑" in text
    assert "`$y$`#값은$5와$6" in text


def test_a_formula_in_the_title_is_set_as_well(api, owner):
    text = remove_blanks(
        read_text(export(api, make_chat(owner, "네.", "넓이 $\\pi r^2$은?")).content)
    )
    assert text.count("𝜋𝑟") == 2
    assert "\\pi" not in text


def test_a_centred_formula_of_a_question_has_no_blank_lines_around_it():
    nodes = list_typed_nodes("앞\n\n$$x$$\n\n  뒤")
    assert [node.get("text") for node in nodes] == ["앞", None, "  뒤"]


@pytest.mark.parametrize("code", ["```\n$a=$b\n```", "`$a=$b`", "$a\n\n$b는"])
def test_code_and_blank_lines_of_a_question_hold_no_formula(code):
    nodes = list_typed_nodes(code)
    assert {node["type"] for node in nodes} == {"text"}
    assert "".join(node["text"] for node in nodes) == code


@pytest.mark.parametrize(
    "source",
    [
        r"\unknown{x}",
        r"\frac{a}",
        "{" * 60 + "x" + "}" * 60,
        r"\sqrt" * 60 + "x",
        r"\begin{matrix} a & b \\ c \end{matrix}",
        r"\begin{evil} #read(1) \end{evil}",
        r"x^2^3",
        r"\left( x",
        "x\u0301",
        r"\begin{matrix}" * 30,
    ],
)
def test_a_formula_that_is_not_understood_stays_as_it_was_written(api, owner, source):
    answer = export(api, make_chat(owner, f"앞 ${source}$ 뒤\n\n$$\n{source}\n$$\n\n끝말"))
    assert answer.status_code == 200
    text = remove_blanks(read_text(answer.content))
    assert "끝말" in text
    assert remove_blanks(source)[:12] in text


@pytest.mark.parametrize(
    "words",
    ["$5와 $6", "a$ b$", "$ x $", "\\$x\\$", "`$x$`", "$$", "$$ $$", "$" + "x" * 5000 + "$"],
)
def test_money_and_code_are_no_formulas(words):
    kinds = json.dumps(parse_markdown_tree(words))
    assert '"formula"' not in kinds


def test_formulas_take_linear_time():
    def measure(count):
        begun = time.process_time()
        for opening in ("$", "$$", "\\(", "\\["):
            parse_markdown_tree(f"{opening}x " * count)
            parse_markdown_tree(f"{opening}\n" * count)
            parse_markdown_tree((f"{opening}\n" * 500 + "\n\\]$$\n") * (count // 500))
        return time.process_time() - begun

    measure(500)
    assert measure(8_000) < 10 * measure(2_000)


def test_a_link_leads_only_to_pages_and_mail():
    [paragraph] = parse_markdown_tree(
        "[a](https://x.kr) [b](mailto:a@x.kr) [c](file:///etc/passwd) [d](/chats)"
    )
    links = [node.get("link") for node in paragraph["children"] if node["type"] == "link"]
    assert links[:2] == ["https://x.kr", "mailto:a@x.kr"]
    assert not any(links[2:])


def test_a_long_word_may_break():
    [paragraph] = parse_markdown_tree("https://example.com/" + "a" * 200)
    longest = max(map(len, paragraph["children"][0]["text"].split("\u200b")))
    assert longest <= 30


def test_nodes_are_no_deeper_than_typst_goes():
    def depth(nodes):
        return 1 + max((depth(node.get("children", [])) for node in nodes), default=0)

    assert (
        depth(parse_markdown_tree("> - " * 50 + "**a *b " * 50 + "c" + "***" * 50))
        <= MAX_TREE_DEPTH + 1
    )


def test_a_chat_too_large_for_paper_says_so(api, owner, monkeypatch):
    monkeypatch.setattr(printing, "MAX_PRINTED_CHARACTERS", 10)
    answer = export(api, make_chat(owner, ANSWER))
    assert (answer.status_code, answer.json()["code"]) == (413, "export_too_large")
    assert "마크다운" in answer.json()["detail"]


def test_an_empty_chat_is_a_page_with_its_title(api, owner):
    chat = Chat.objects.create(owner=owner, title="비어 있음")
    assert "비어 있음" in read_text(export(api, chat).content)


def test_a_stranger_gets_no_pdf(owner, stranger):
    assert export(client(stranger), make_chat(owner, ANSWER)).status_code == 404


def test_what_no_font_draws_is_left_out():
    [paragraph] = parse_markdown_tree("a\x07b \ud800c")
    assert paragraph["children"][0]["text"] == "ab c"


def test_a_press_that_breaks_is_told_and_not_a_broken_file(api, owner, monkeypatch):
    monkeypatch.setattr(printing, "ROOT", printing.ROOT / "nowhere")
    answer = export(api, make_chat(owner, ANSWER))
    assert (answer.status_code, answer.json()["code"]) == (503, "export_failed")


def test_a_press_that_takes_too_long_is_ended(api, owner, monkeypatch):
    monkeypatch.setattr(printing, "PRINT_SECONDS", 0.01)
    assert export(api, make_chat(owner, ANSWER)).json()["code"] == "export_failed"


def test_a_chat_does_not_wait_for_the_press_without_end(api, owner, monkeypatch):
    monkeypatch.setattr(printing, "MAX_WAIT_SECONDS", 0.01)
    chat = make_chat(owner, ANSWER)
    with printing._SLOT:
        assert export(api, chat).json()["code"] == "export_failed"
    assert export(api, chat).status_code == 200
