"""Scans take turns: what was recognised is kept, and the next owner's scan goes first."""

import json
from datetime import timedelta

import pytest
from django.core.files.base import ContentFile
from django.db.models import Q
from django.utils import timezone

from documents import ingest, queue, services, versions
from documents.index import keep_recognised_page
from documents.models import Document, RecognisedPage
from documents.parsers.base import ParserCrashed
from jobs.lease import LeaseLostError
from rag.types import Page
from tests.documents.conftest import make_row, upload
from tests.documents.test_ingest import Reading, run, run_later

pytestmark = pytest.mark.django_db(transaction=True)
PAGES = 4


class Scan(Reading):
    """A reading of a scan, in place of the child: recognises what it is not given."""

    page_total = PAGES

    def __init__(self, name, options, recognised, pages=PAGES):
        self._name, self._options, self._recognised = name, options, recognised
        given = json.loads(options["recognised"] or b"{}")
        super().__init__(*(lambda index=index: self._read(index, given) for index in range(pages)))

    def _read(self, index, given):
        found = given.get(str(index))
        if found is None:
            self._options["on_recognition"]()
            self._options["on_wait"]()
            found = [f"{self._name} {index}"]
            self._recognised.append(found[0])
            self._options["on_recognised"](index, json.dumps(found).encode())
        return Page(index + 1, found[0])


@pytest.fixture
def recognised_pages(monkeypatch, tiny_engine, sent):
    """Everything is a scan of quick pages, and a turn is over at once; what was recognised."""
    done = []
    monkeypatch.setattr(ingest, "TURN_SECONDS", 0.0)
    monkeypatch.setattr(ingest, "MIN_SECONDS_BETWEEN_LOOKS", 0.0)
    monkeypatch.setattr(ingest, "MAX_REPEATED_SHARE", 1e9)
    monkeypatch.setattr(
        ingest,
        "read_document",
        lambda _path, _kind, name, *_limits, **options: Scan(name, options, done),
    )
    return done


def scan(owner, name="a.md", **fields):
    """A document that waits and is known to need recognition."""
    document = upload(owner, name=name, content=f"# {name}")
    Document.objects.filter(pk=document.pk).update(**{"stage": "pictured"} | fields)
    return document


def test_a_scan_passes_its_turn_on_and_no_page_is_recognised_twice(
    owner, stranger, recognised_pages
):
    first, other = scan(owner), scan(stranger, "b.md")
    run(first)
    assert (first.status, first.stage, first.attempts) == ("PROCESSING", "pictured", 0)
    assert (first.claim, first.progress) == (None, pytest.approx(0.9 / PAGES))
    assert first.seconds_before > 0
    assert recognised_pages == ["a.md 0"]
    Document.objects.update(lease_until=None)  # it has waited for the other
    run(other)
    assert (other.stage, recognised_pages) == ("pictured", ["a.md 0", "b.md 0"])
    for document in [first, other] * PAGES:
        run_later(document)
    for document in (first, other):
        document.refresh_from_db()
    assert (first.status, other.status) == ("COMPLETED", "COMPLETED")
    assert sorted(recognised_pages) == [
        f"{name}.md {page}" for name in "ab" for page in range(PAGES)
    ]
    assert (first.page_count, first.chunk_count) == (PAGES, PAGES)
    assert not RecognisedPage.objects.exists()


def test_no_turn_is_passed_on_where_nobody_has_had_less(owner, stranger, recognised_pages):
    first, _second = scan(owner), scan(owner, "b.md")
    make_row(stranger, stage="paused")
    make_row(stranger, stage="pictured", priority=Document.Priority.LAST)
    ingest._load_analyser()
    lease = queue.claim_next_document(Q(pk=first.pk))
    ingest._ingest(lease, in_pause=False)
    first.refresh_from_db()
    assert first.status == "COMPLETED"


def test_whoever_has_as_many_at_work_waits(owner, stranger):
    scan(owner)
    lease = queue.claim_next_document()
    make_row(stranger)  # read beside it
    assert not queue.is_turn_of_another(lease)
    scan(stranger, "b.md")
    scan(stranger, "c.md")
    assert queue.is_turn_of_another(lease)
    queue.claim_next_document()
    assert not queue.is_turn_of_another(lease)


@pytest.mark.parametrize(("pause", "pages"), [(0.0, 1), (60.0, PAGES)])
def test_slow_pages_are_left_when_none_has_come_for_a_while(
    owner, stranger, recognised_pages, monkeypatch, pause, pages
):
    monkeypatch.setattr(ingest, "MIN_SECONDS_BETWEEN_LOOKS", 60.0)
    monkeypatch.setattr(ingest, "SECONDS_AFTER_PAGE", pause)
    first = scan(owner)
    scan(stranger, "b.md")
    run(first)
    assert len(recognised_pages) == pages


def test_a_scan_that_was_put_off_has_not_had_its_turn(owner, stranger, recognised_pages):
    first, second, other = scan(owner), scan(owner, "b.md"), scan(stranger, "c.md", stage="queued")
    run(first)  # it looks at the other's, puts it off and passes its turn on
    other.refresh_from_db()
    assert (other.stage, first.stage) == ("pictured", "pictured")
    run(second)  # a message that says no more than that something waits
    assert recognised_pages == ["a.md 0", "c.md 0"]


def test_a_text_does_not_wait_for_the_vectors_of_a_scan(
    owner, stranger, recognised_pages, monkeypatch
):
    """It is begun before the scan is stored, although all here turn out to be scans."""
    enter, stages = ingest.IngestProgress.enter, []

    def enter_and_upload(progress, stage):
        enter(progress, stage)
        if stage == "embedding":
            make_row(stranger)
        if stage == "indexing":
            stages.append(Document.objects.get(owner=stranger).stage)

    monkeypatch.setattr(ingest.IngestProgress, "enter", enter_and_upload)
    assert run(scan(owner)).status == "COMPLETED"
    assert stages == ["pictured"]


def test_a_turn_lasts_for_its_seconds(owner, stranger, recognised_pages, monkeypatch):
    monkeypatch.setattr(ingest, "TURN_SECONDS", 60.0)
    first = scan(owner)
    scan(stranger, "b.md")
    assert run(first).status == "COMPLETED"


def test_descriptions_of_a_model_are_not_asked_for_twice(
    owner, stranger, recognised_pages, monkeypatch
):
    require_turn_for_page = ingest._Recognition.require_turn_for_page

    def require_both(recognition):
        recognition.require_turn_for_picture()
        require_turn_for_page(recognition)

    monkeypatch.setattr(ingest._Recognition, "require_turn_for_page", require_both)
    first = scan(owner)
    scan(stranger, "b.md")
    assert run(first).status == "COMPLETED"


def test_a_worker_that_dies_costs_no_page_that_was_recognised(owner, recognised_pages, monkeypatch):
    document = scan(owner)

    class Dying(Scan):
        def _read(self, index, given):
            if index == 2:
                raise ParserCrashed(detail="killed")
            return super()._read(index, given)

    with monkeypatch.context() as patch:
        patch.setattr(
            ingest,
            "read_document",
            lambda _path, _kind, name, *_limits, **options: Dying(name, options, recognised_pages),
        )
        run(document)
    assert (document.status, len(recognised_pages)) == ("PROCESSING", 2)
    run_later(document)
    assert (document.status, len(recognised_pages)) == ("COMPLETED", PAGES)


def test_what_was_recognised_of_one_file_is_not_taken_for_another(owner, recognised_pages):
    document = run(scan(owner))
    RecognisedPage.objects.create(
        document=document, sha256=document.sha256, index=0, found=b"not even JSON"
    )
    versions.receive_version(
        document=document, name="neu.md", content=ContentFile(b"# another file")
    )
    run(document)
    assert (document.status, document.name) == ("COMPLETED", "neu.md")
    assert not RecognisedPage.objects.exists()


def test_a_document_that_is_deleted_takes_what_was_recognised_along(owner, recognised_pages):
    document = scan(owner)
    keep_recognised_page(document.pk, document.sha256, 0, b"[]")
    services.delete_document(document=document)
    assert not RecognisedPage.objects.exists()
    with pytest.raises(LeaseLostError):
        keep_recognised_page(document.pk, document.sha256, 1, b"[]")


def test_the_time_of_earlier_turns_counts_in_what_is_left(owner):
    now = timezone.now()
    document = make_row(owner, seconds_before=30.0, progress=0.5, claim="0" * 32)
    document.started_at, document.updated_at = now - timedelta(seconds=10), now
    assert queue.estimate_document_seconds(document) == pytest.approx(40)
    make_row(
        owner,
        status="COMPLETED",
        size=1000,
        started_at=now - timedelta(seconds=5),
        indexed_at=now,
        seconds_before=15.0,
    )
    Document.objects.filter(pk=document.pk).delete()
    make_row(owner, size=2000)
    assert queue.estimate_queue_seconds(owner.pk) == pytest.approx(40, rel=0.01)
