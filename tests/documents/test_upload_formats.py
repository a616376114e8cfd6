"""The pages offer what can be read, from the one list of formats."""

from django.template import Context, Template
from django.utils import translation

from documents.parsers import formats


def render(source):
    return Template("{% load uploads %}" + source).render(Context())


def test_a_file_input_takes_every_extension_that_can_be_read():
    offered = render("{% list_upload_extensions %}").split(",")
    assert offered == [f".{extension}" for extension in formats.EXTENSIONS]


def test_a_new_format_is_named_to_people(monkeypatch):
    monkeypatch.setitem(formats.LABELS, "text/csv", "CSV")
    assert render("{% list_upload_formats %}").endswith(", CSV")


def test_formats_are_named_in_the_language_of_the_page():
    with translation.override("ko"):
        assert "마크다운, 텍스트" in render("{% list_upload_formats %}")
