"""What a browser installs, and what it shows without a connection."""

import re

import pytest
from django.contrib.staticfiles import finders


@pytest.mark.parametrize(("language", "name"), [("ko", "새 대화"), ("en", "New chat")])
def test_the_manifest_names_icons_that_are_there(client, language, name):
    client.cookies["django_language"] = language
    response = client.get("/manifest.webmanifest")
    assert response["Content-Type"] == "application/manifest+json"
    described = response.json()
    assert (described["start_url"], described["display"]) == ("/", "standalone")
    assert described["shortcuts"][0]["name"] == name
    assert {icon["sizes"] for icon in described["icons"]} == {"192x192", "512x512"}
    for icon in described["icons"]:
        assert finders.find(icon["src"].removeprefix("/static/"))


def test_the_worker_keeps_the_offline_page_and_its_files_and_nothing_else(client):
    response = client.get("/sw.js")
    assert response["Content-Type"].startswith("text/javascript")
    assert "no-store" in response["Cache-Control"]
    text = response.content.decode()
    kept = re.search(r"const FILES = \[(.*)\]", text)[1]
    assert set(re.findall(r'"([^"]+)"', kept)) == {
        "/static/nura/built/narrow.css",
        "/static/nura/img/mark.svg",
    }
    assert "/offline" in text


@pytest.mark.django_db
def test_the_offline_page_holds_nothing_of_a_person(client, django_user_model):
    open_to_all = client.get("/offline").content
    client.force_login(django_user_model.objects.create_user("남몰래"))
    signed_in = client.get("/offline").content
    assert "Nura에 연결할 수 없습니다" in open_to_all.decode()
    assert b"csrfmiddlewaretoken" not in open_to_all
    assert signed_in == open_to_all


def test_the_frame_of_a_diagram_has_no_origin_and_reaches_nothing(client):
    response = client.get("/diagram")
    policy = dict(
        one.strip().split(" ", 1) for one in response["Content-Security-Policy"].split(";")
    )
    assert policy["default-src"] == "'none'"
    assert policy["script-src"] == "'self'"
    assert policy["sandbox"] == "allow-scripts"
    assert policy["frame-ancestors"] == "'self'"
    assert response["X-Frame-Options"] == "SAMEORIGIN"
    assert client.get("/offline")["X-Frame-Options"] == "DENY"


@pytest.mark.parametrize("path", ["/panels/chats", "/documents"])
def test_a_part_of_a_page_is_refused_to_who_is_signed_out(client, path):
    assert client.get(path, headers={"HX-Request": "true"}).status_code == 401
    assert client.get(path).headers["Location"].startswith("/accounts/login/")
