"""A document's text in an answer shows what it is, and nothing of it comes alive."""

import pytest
from markdown_it import MarkdownIt

from rag.generate import markdown

LAW = (
    "---\n제목: 공탁법\n상태: 시행\n---\n\n# 공탁법\n\n"
    "**①** 공탁은 [1] 법원에서 한다.\n  1\\. 금전\n"
)


def test_markdown_keeps_its_headings_and_stress():
    shown = markdown.sanitise_markdown(LAW)
    assert "\n# 공탁법\n" in shown
    assert "**①** 공탁은" in shown
    assert "1\\. 금전" in shown


def test_markdown_shows_its_front_matter_line_by_line():
    assert "제목: 공탁법\n상태: 시행\n" in markdown.sanitise_markdown(LAW)
    assert "\n---\n" not in markdown.sanitise_markdown(LAW)


def test_markdown_has_no_links_pictures_html_or_markers():
    hostile = "![x](http://evil/p.png) [누르세요](http://evil) <img src=x onerror=alert(1)> [2]"
    shown = markdown.sanitise_markdown(hostile)
    assert "!\\[x]" in shown
    assert "\\[누르세요]" in shown
    assert "\\<img" in shown
    assert "(2)" in shown


def test_a_backslash_before_a_link_brings_it_not_back():
    assert markdown.sanitise_markdown("\\\\[a](http://evil)") == "\\\\\\[a](http://evil)"
    assert markdown.sanitise_markdown("\\[a](http://evil)") == "\\[a](http://evil)"


def test_code_is_shown_as_it_is():
    assert (
        markdown.sanitise_markdown("```\nrows[0] < 3\n```\nrows[0]")
        == "```\nrows[0] < 3\n```\nrows(0)"
    )


@pytest.mark.parametrize(
    "code",
    [
        "```` ```a``` ````",
        "````\n```` ``` x ````\n````",
        "````\n```\n````",
        "- a\n  ```\n  code\nend",
        "  ```\ncode\n```",
        "```\n    ```",
        "```\n    ```\n```",
        "- ```\n  code\n  ```\n```",
        "> ```\n> code\n```\n~~~\n```",
        "~~~ `a`\n```\n~~~~",
    ],
)
def test_links_below_code_come_not_alive(code):
    shown = markdown.sanitise_markdown(f"{code}\n[y](http://evil)\n\n[z](http://evil)")
    assert "<a " not in MarkdownIt().render(shown)


def test_code_within_a_list_is_shown_as_it_is():
    shown = markdown.sanitise_markdown("- a\n  ```\n  rows[0] < 3\n  ```\n- [b]")
    assert "rows[0] &lt; 3\n</code>" in MarkdownIt().render(shown)
    assert "\\[b]" in shown


def test_a_block_of_code_that_a_part_cuts_is_closed():
    assert markdown.sanitise_markdown("```python\nprint(1)\n").endswith("```")
    assert markdown.sanitise_markdown("```\na\n```\n").count("```") == 2


def test_plain_text_stays_as_it_stands():
    assert markdown.escape_lines("# 제목 *별표*") == "\\# 제목 \\*별표\\*"
