"""The change of the embedding model in the admin and in the workers."""

from datetime import timedelta
from uuid import uuid4

import pytest
from celery import current_app
from django.contrib.auth.models import User
from django.test import Client
from django.utils import timezone

from documents import queue, reindex, renewal, spaces
from documents.models import Chunk, Reindexing, ReindexState
from documents.tasks import reindex as reindex_task
from jobs.lease import renew_lease
from nura.accounts.roles import AccountRole, set_role
from tests.documents.changing import TOPICS, add, configure, list_embedded_keys, run_reindex_command
from tests.support import wait_until

pytestmark = pytest.mark.django_db(transaction=True)
LIST = "/admin/documents/embeddingspace/"
BUTTONS = (f"{LIST}reindex/", f"{LIST}rollback/")


@pytest.fixture(autouse=True)
def library(owner, settings, embedding_server, monkeypatch):
    with monkeypatch.context() as patched:
        patched.setattr(current_app, "send_task", lambda *_args, **_options: None)
        configure(settings, embedding_server, "words-16")
        made = [add(owner, f"규정 {number}.md", TOPICS[number : number + 2]) for number in range(3)]
    configure(settings, embedding_server, "words-32")
    return made


@pytest.fixture
def page():
    return sign_in(User.objects.create_superuser("root", password="x"))


def sign_in(user):
    client = Client()
    client.cookies["django_language"] = "en"
    client.force_login(user)
    return client


def sign_in_with_role(role):
    user = User.objects.create_user("clerk", password="x")
    set_role(user=user, role=role)
    return sign_in(user)


def read_text(response):
    return response.content.decode()


def test_the_workers_change_over_when_the_button_is_pressed(page, ingest_worker):
    answer = page.post(BUTTONS[0], follow=True)
    assert "Re-embedding has started" in read_text(answer)
    wait_until(lambda: Reindexing.objects.filter(state="swapped").exists(), 60)
    assert spaces.get_active_space().model == "words-32"
    assert list_embedded_keys(spaces.get_active_space()) == set(
        Chunk.objects.values_list("pk", flat=True)
    )


def test_the_page_shows_what_is_stored_and_what_the_settings_want(page):
    text = read_text(page.get(LIST))
    count = Chunk.objects.count()
    assert f"{count} / {count}" in text
    assert "The settings name the model words-32" in text
    assert "Re-embed with words-32" in text


def test_the_page_shows_progress_and_loads_itself_again(page):
    run = reindex.begin_change(reindex.get_configured_target(), background=True)
    claim = reindex.claim_change(run.pk)
    renew_lease(claim, done=7, total=30, state="filling")
    answer = page.get(LIST)
    assert answer.headers["Refresh"]
    assert "7 / 30" in read_text(answer)
    assert "23 %" in read_text(answer)
    reindex.end_change(claim, ReindexState.SWAPPED)
    assert "Refresh" not in page.get(LIST).headers


def test_a_refusal_is_shown_with_the_next_step(page):
    claim = reindex.claim_change(
        reindex.begin_change(reindex.get_configured_target(), background=True).pk
    )
    report = {
        "questions": 12,
        "old": {"at_5": 0.9, "at_10": 0.95},
        "new": {"at_5": 0.5, "at_10": 0.6},
    }
    reindex.end_change(claim, ReindexState.REFUSED, report=report)
    text = read_text(page.get(LIST))
    assert "manage.py reindex --model words-32 --force" in text
    assert "0.9 and 0.95 before, 0.5 and 0.6" in text


def test_two_presses_are_one_change(page, sent):
    page.post(BUTTONS[0])
    reindex.claim_change(Reindexing.objects.get().pk)
    assert "already being re-embedded" in read_text(page.post(BUTTONS[0], follow=True))
    assert Reindexing.objects.count() == 1
    assert "already being re-embedded" in read_text(page.post(BUTTONS[1], follow=True))


def test_rolling_back_is_a_button_too(page, sent, owner):
    assert "no earlier embedding space" in read_text(page.post(BUTTONS[1], follow=True))
    run_reindex_command()
    add(owner, "나중.md", TOPICS[5:6])
    assert "Back to words-16" in read_text(page.get(LIST))
    assert "is in use again" in read_text(page.post(BUTTONS[1], follow=True))
    assert spaces.get_active_space().model == "words-16"
    assert sent[-1] == (queue.REINDEX, Reindexing.objects.get(open=True).pk)


@pytest.mark.parametrize("button", BUTTONS)
def test_an_auditor_is_refused(button):
    assert sign_in_with_role(AccountRole.AUDITOR).post(button).status_code == 403
    assert not Reindexing.objects.exists()


@pytest.mark.parametrize("button", BUTTONS)
def test_other_users_and_strangers_are_sent_to_the_sign_in(button, owner):
    for client in (sign_in(owner), Client()):
        assert client.post(button).status_code == 302
    assert spaces.get_active_space().model == "words-16"
    assert not Reindexing.objects.exists()


def test_an_administrator_who_is_no_superuser_may_change_over(sent):
    client = sign_in_with_role(AccountRole.ADMINISTRATOR)
    assert client.post(BUTTONS[0]).status_code == 302
    assert Reindexing.objects.get().background


@pytest.mark.parametrize("button", BUTTONS)
def test_looking_at_an_address_changes_nothing(page, button):
    assert page.get(button).status_code == 405


def test_a_change_goes_on_in_slices_so_that_uploads_come_in_between(sent, monkeypatch):
    monkeypatch.setattr(reindex, "SLICE_SECONDS", 0.0)
    monkeypatch.setattr(renewal, "MAX_CHUNKS_A_BATCH", 4)
    run = reindex.start_change(reindex.get_configured_target())
    reindex_task(run.pk)
    run.refresh_from_db()
    assert (run.open, run.claim, run.attempts) == (True, None, 0)
    assert sent[-1] == (queue.REINDEX, run.pk)
    monkeypatch.setattr(reindex, "SLICE_SECONDS", 60.0)
    reindex_task(run.pk)
    assert spaces.get_active_space().model == "words-32"


def test_a_change_whose_worker_was_killed_is_sent_again(sent):
    run = reindex.start_change(reindex.get_configured_target())
    reindex.claim_change(run.pk)
    reindex.reap_changes()
    assert len(sent) == 1
    Reindexing.objects.update(lease_until=timezone.now() - timedelta(seconds=1))
    reindex.reap_changes()
    assert sent[-1] == (queue.REINDEX, run.pk)
    assert len(sent) == 2
    reindex_task(run.pk)
    assert spaces.get_active_space().model == "words-32"


def test_a_change_that_kills_its_worker_again_and_again_ends(sent):
    run = reindex.start_change(reindex.get_configured_target())
    past = timezone.now() - timedelta(seconds=1)
    Reindexing.objects.update(attempts=Reindexing.MAX_ATTEMPTS, claim=uuid4(), lease_until=past)
    reindex.reap_changes()
    run.refresh_from_db()
    assert (run.open, run.state) == (False, "failed")


def test_a_change_that_nobody_holds_ends_when_its_attempts_are_used_up(sent):
    run = reindex.start_change(reindex.get_configured_target())
    Reindexing.objects.update(attempts=Reindexing.MAX_ATTEMPTS)
    reindex.reap_changes()
    run.refresh_from_db()
    assert (run.open, run.state) == (False, "failed")


def test_a_model_that_does_not_answer_is_tried_again_and_then_given_up(
    sent, embedding_server, page
):
    embedding_server.refuse_after(0)
    run = reindex.start_change(reindex.get_configured_target())
    for _ in range(Reindexing.MAX_ATTEMPTS):
        reindex_task(run.pk)
    run.refresh_from_db()
    assert (run.state, run.error) == ("failed", "embedder_failed")
    assert spaces.get_active_space().model == "words-16"
    assert "Failed" in read_text(page.get(LIST))


def test_a_message_for_a_change_that_is_over_does_nothing(sent):
    reindex_task(4711)
    assert not Reindexing.objects.exists()
