"""Formulas of Word and Hangul are LaTeX that the pages draw, however they were written."""

import pytest
from lxml import etree

from documents.parsers.formulas import (
    MAX_FORMULA_CHARACTERS,
    format_hangul_equation,
    format_word_equation,
)

M = "http://schemas.openxmlformats.org/officeDocument/2006/math"


def write_document(content):
    return format_word_equation(etree.fromstring(f'<m:oMath xmlns:m="{M}">{content}</m:oMath>'))


def run(text, properties=""):
    return f"<m:r>{properties}<m:t>{text}</m:t></m:r>"


@pytest.mark.parametrize(
    ("script", "latex"),
    [
        ("E=mr ^{2}", "E=mr^{2}"),
        ("{nc ^{2}} over {d}", "\\frac{nc^{2}}{d}"),
        ("2x over 3 + 1", "\\frac{2x}{3}+1"),
        ("x ^2 over y", "\\frac{x^{2}}{y}"),
        ("sqrt {x+1} TIMES 3", "\\sqrt{x+1}\\times 3"),
        ("root {3} of {x}", "\\sqrt[3]{x}"),
        ("sum _{k=1} ^{n} alpha _{k}", "\\sum _{k=1}^{n}\\alpha _{k}"),
        ("lim _{x -> 0} {sin x} over x", "\\lim _{x\\to 0}\\frac{\\sin x}{x}"),
        ("left ( {a} over {b} right )", "\\left( \\frac{a}{b} \\right)"),
        ("LEFT { x RIGHT .", "\\left\\{ x \\right."),
        ("pmatrix {a & b # c & d}", "\\begin{pmatrix}a & b \\\\ c & d\\end{pmatrix}"),
        ("cases {1 & x>0 # 0 & x<=0}", "\\begin{cases}1 & x>0 \\\\ 0 & x\\leq 0\\end{cases}"),
        (
            "LEFT | a RIGHT | = {cases{a&b#c&d}}",
            "\\left| a \\right|={\\begin{cases}a & b \\\\ c & d\\end{cases}}",
        ),
        ("bar {x} +- vec a", "\\bar{x}\\pm \\vec{a}"),
        ("GAMMA gamma UPSILON omicron", "\\Gamma \\gamma \\Upsilon \\omicron "),
        ('매출 over "총 비용" `%', "\\frac{\\text{매출}}{\\text{총 비용}}\\,\\%"),
        ("a=1 # b=2", "\\begin{aligned}a=1 \\\\ b=2\\end{aligned}"),
    ],
)
def test_an_equation_of_hangul_is_latex(script, latex):
    assert format_hangul_equation(script) == f"${latex.strip()}$"


@pytest.mark.parametrize(
    "script",
    [
        "{" * 500,
        "}" * 9,
        "left ( x",
        "bar " * 400 + "x",
        "left ( " * 90 + "right ) " * 90,
        "x" * 5000,
    ],
)
def test_an_equation_that_does_not_add_up_stays_as_it_was_written(script):
    assert format_hangul_equation(script) == " ".join(script.split())


def test_every_greek_letter_of_word_is_one_of_latex():
    small = map(chr, range(ord("α"), ord("ω") + 1))
    for sign in (*"ΓΔΘΛΞΠΣΥΦΨΩ", *small):  # other capitals look as Latin ones do
        assert write_document(run(sign)).startswith("$\\"), sign


def test_an_equation_of_nothing_is_nothing():
    assert format_hangul_equation(" ") == write_document("") == ""


def test_functions_words_and_signs_of_word_are_written_for_latex():
    name = f"<m:func><m:fName>{run('sin')}</m:fName><m:e>{run('x')}</m:e></m:func>"
    assert write_document(name) == "$\\sin x$"
    assert write_document(run("이익률 ") + run("=5%")) == "$\\text{이익률 }=5\\%$"
    assert write_document(run("if x", "<m:rPr><m:nor/></m:rPr>")) == "$\\text{if x}$"
    assert write_document(run("{a}_$")) == "$\\{a\\}\\_\\$$"


def test_brackets_of_word_are_as_high_as_what_they_hold():
    fraction = f"<m:f><m:num>{run('a')}</m:num><m:den>{run('b')}</m:den></m:f>"
    assert write_document(f"<m:d><m:e>{fraction}</m:e></m:d>") == "$\\left(\\frac{a}{b}\\right)$"
    one_sided = '<m:dPr><m:begChr m:val="{"/><m:endChr m:val=""/></m:dPr>'
    rows = f"<m:eqArr><m:e>{run('x')}</m:e><m:e>{run('y')}</m:e></m:eqArr>"
    found = write_document(
        f"<m:d>{one_sided}<m:e>{rows}</m:e></m:d>".replace("m:val", f"xmlns:m='{M}' m:val")
    )
    assert found == "$\\left\\{\\begin{aligned}x \\\\ y\\end{aligned}\\right.$"


def test_an_equation_of_word_nested_without_end_keeps_its_words():
    deep = "<m:sSup><m:e>" * 90 + run("x") + "</m:e></m:sSup>" * 90
    assert write_document(deep) == "x"


def test_an_equation_of_word_too_long_to_draw_keeps_its_words():
    text = "x" * (MAX_FORMULA_CHARACTERS + 1)
    assert write_document(run(text)) == text
