"""The page of settings: its sections, and preferences that follow the account."""

import re

import pytest
from django.contrib.auth.models import User
from django.test import Client
from django.utils.html import strip_tags

from nura.accounts.preferences import SECTIONS, get_preferences
from tests.nura.accounts.conftest import PASSWORD

pytestmark = pytest.mark.django_db

KNOWN_LATIN = {
    "API",
    "Claude",
    "English",
    "Enter",
    "Ctrl",
    "Mac",
    "minsu",
    "example",
    "com",
    "PIN",
    "USB",
    "JSON",
    "json",
    "ChatGPT",
    "Nura",
    "ZIP",
    "conversations",
}
"""What Korean pages write in Latin letters, and the reader's own name and address."""
APPEARANCE = {
    "language": "en",
    "theme": "dark",
    "send_key": "mod-enter",
    "voice": "Yuna",
    "speech_rate": "1.3",
}


def sign_in(name="minsu"):
    browser = Client()
    browser.post("/accounts/login/", {"login": name, "password": PASSWORD})
    return browser


def test_the_settings_open_with_the_profile(minsus_client):
    page = minsus_client.get("/settings/", follow=True)
    assert page.redirect_chain == [("/settings/profile", 302)]
    assert page.status_code == 200


def test_every_section_has_an_address_and_shows_all_others(minsus_client):
    first = minsus_client.get("/settings/profile").content.decode()
    addresses = re.findall(r'class="settings-link"\s+href="([^"]+)"', first)
    assert len(addresses) == len(SECTIONS)
    for address in addresses:
        page = minsus_client.get(address)
        assert page.status_code == 200
        shown = re.findall(r'href="([^"]+)"\s+aria-current="page"', page.content.decode())
        assert address in shown


def test_the_sections_are_korean(minsus_client, minsu):
    for address in re.findall(
        r'class="settings-link"\s+href="([^"]+)"',
        minsus_client.get("/settings/profile").content.decode(),
    ):
        page = minsus_client.get(address).content.decode()
        part = page.split('class="settings-section">')[1].split('<div class="toasts"')[0]
        shown = strip_tags(re.sub(r"<input.*?>", "", part, flags=re.DOTALL))
        words = re.findall(r"[A-Za-z]{3,}", shown.replace("Open WebUI", ""))
        assert set(words) <= KNOWN_LATIN, address


@pytest.mark.parametrize("path", ["/settings/profile", "/settings/appearance"])
def test_the_settings_are_for_those_who_are_signed_in(client, path):
    assert client.get(path).url == f"/accounts/login/?next={path}"
    assert client.post(path, APPEARANCE).status_code == 302
    assert not User.objects.exists()


def test_a_display_name_is_what_the_sidebar_calls_one(minsus_client, minsu):
    answer = minsus_client.post("/settings/profile", {"first_name": "김민수"}, follow=True)
    assert "김민수" in answer.content.decode()
    minsu.refresh_from_db()
    assert (minsu.first_name, minsu.username) == ("김민수", "minsu")


def test_what_is_no_part_of_the_form_is_not_taken(minsus_client, minsu):
    form = {"first_name": "a", "username": "root", "is_staff": "on", "email": "x@example.com"}
    minsus_client.post("/settings/profile", form)
    minsu.refresh_from_db()
    assert (minsu.username, minsu.email, minsu.is_staff) == ("minsu", "minsu@example.com", False)


def test_preferences_are_there_on_another_device(minsu):
    answer = sign_in().post("/settings/appearance", APPEARANCE, follow=True)
    assert "Saved." in answer.content.decode()
    page = sign_in().get("/settings/appearance").content.decode()
    assert '<html lang="en"' in page
    assert 'data-theme="dark"' in page
    assert '"send_key": "mod-enter"' in page
    assert '"speech_rate": 1.3' in page


def test_preferences_of_one_account_are_not_those_of_another(minsu, stranger):
    sign_in().post("/settings/appearance", APPEARANCE)
    assert '<html lang="ko"' in sign_in("stranger").get("/settings/appearance").content.decode()
    assert get_preferences(user=stranger).theme == "system"


@pytest.mark.parametrize(
    "wrong",
    [{"theme": "pink"}, {"language": "xx"}, {"speech_rate": "9"}, {"send_key": ""}],
)
def test_what_cannot_be_chosen_is_refused_with_a_sentence(minsus_client, minsu, wrong):
    answer = minsus_client.post("/settings/appearance", APPEARANCE | wrong)
    assert answer.status_code == 200
    assert "errorlist" in answer.content.decode()
    assert get_preferences(user=minsu).send_key == "enter"


def test_the_language_of_the_menu_is_kept_with_the_account(minsus_client, minsu):
    minsus_client.post("/i18n/setlang/", {"language": "en", "next": "/"})
    assert get_preferences(user=minsu).language == "en"


def test_a_program_changes_one_preference_and_keeps_the_others(minsus_client):
    kind = {"content_type": "application/json"}
    minsus_client.patch("/api/v1/me/preferences", {"voice": "Yuna"}, **kind)
    answer = minsus_client.patch("/api/v1/me/preferences", {"theme": "dark"}, **kind).json()
    assert answer == minsus_client.get("/api/v1/me/preferences").json()
    assert (answer["voice"], answer["theme"], answer["speech_rate"]) == ("Yuna", "dark", 1.0)


def test_the_layout_of_documents_is_kept_with_the_account(minsus_client, minsu, stranger):
    kind = {"content_type": "application/json"}
    wrong = {"document_layout": "tiles"}
    assert minsus_client.patch("/api/v1/me/preferences", wrong, **kind).status_code == 400
    assert 'data-layout="table"' in minsus_client.get("/documents").content.decode()
    minsus_client.patch("/api/v1/me/preferences", {"document_layout": "cards"}, **kind)
    elsewhere = sign_in().get("/documents").content.decode()
    assert re.search(r'id="document-table"\s+data-layout="cards"', elsewhere)
    assert re.search(r'data-layout="cards"\s+aria-pressed="true"', elsewhere)
    others = sign_in("stranger").get("/documents").content.decode()
    assert re.search(r'id="document-table"\s+data-layout="table"', others)


def test_a_program_cannot_choose_what_is_not_there(minsus_client):
    kind = {"content_type": "application/json"}
    for wrong in ({"theme": "pink"}, {"speech_rate": 99}, {"language": "xx"}):
        assert minsus_client.patch("/api/v1/me/preferences", wrong, **kind).status_code == 400
