"""What a completed document lacks is told with how often, where that was counted."""

import pytest
from django.test import Client
from django.utils import translation

from documents import representation
from tests.documents.conftest import make_row, upload
from tests.documents.test_ingest import run

pytestmark = pytest.mark.django_db
OLD, COUNTED = "characters_replaced", {"code": "characters_replaced", "count": 3}


def read_page(owner, document):
    browser = Client()
    browser.force_login(owner)
    return browser.get(f"/documents/{document.pk}").content.decode()


def test_lost_characters_are_counted_from_the_file_to_the_page(owner, api, sent, tiny_engine):
    text = "연차 휴가는 열닷새이고 출장비는 하루 오만 원이다. " * 80
    content = text.encode("cp949") + b"\xff\n\xff\n\xff"
    document = run(upload(owner, name="규정.txt", content=content))
    assert document.warnings == [COUNTED]
    (told,) = api.get(f"/api/v1/documents/{document.pk}").json()["warnings"]
    assert (told["code"], told["count"]) == ("characters_replaced", 3)
    assert "3" in told["detail"]
    inspected = api.get(f"/api/v1/documents/{document.pk}/inspection").json()
    assert inspected["warnings"] == [told]
    with translation.override("ko"):
        assert representation.to_warning_sentence(COUNTED) in read_page(owner, document)


def test_a_warning_of_before_is_told_without_a_number(owner, api):
    document = make_row(owner, status="COMPLETED", warnings=[OLD, "page_unreadable"])
    first, second = api.get(f"/api/v1/documents/{document.pk}").json()["warnings"]
    assert (first["code"], first["count"]) == ("characters_replaced", None)
    assert (second["code"], second["count"]) == ("page_unreadable", None)
    assert "?" not in first["detail"]
    with translation.override("ko"):
        assert representation.to_warning_sentence(OLD) in read_page(owner, document)
