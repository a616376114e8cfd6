"""What one user may keep, counted under a lock, whichever way a file comes in."""

import threading
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, date, datetime

import pytest
from django.contrib.auth.models import Group
from django.core.files.base import ContentFile
from django.core.files.uploadedfile import SimpleUploadedFile
from django.db import IntegrityError, connection, transaction
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from documents import errors, ingest, libraries, quotas, services, versions
from documents.models import (
    Document,
    DocumentVersion,
    Library,
    LibraryMember,
    QuotaMeasure,
    QuotaRule,
)
from tests.documents.conftest import make_row, stored_files, upload

pytestmark = pytest.mark.django_db
URL = "/api/v1/documents"
MEGABYTE = 1024 * 1024


def post(api, content="글", name="글.txt"):
    file = SimpleUploadedFile(name, content.encode())
    return api.post(URL, {"file": file}, format="multipart")


def make_text(size):
    return "a" * size


def test_a_document_too_many_is_refused_with_a_reason(api, owner, sent, settings):
    settings.QUOTA_DOCUMENTS = 1
    assert post(api, "하나").status_code == 201
    response = post(api, "둘")
    assert (response.status_code, response.json()["code"]) == (403, "quota_documents")
    assert "1" in response.json()["detail"]
    assert Document.objects.count() == len(stored_files()) == 1


def test_the_same_file_again_is_no_document_more(api, sent, settings):
    settings.QUOTA_DOCUMENTS = 1
    post(api, "하나")
    assert post(api, "하나").status_code == 200


def test_nothing_is_counted_where_nothing_is_limited(owner, sent, settings):
    """A source brings tens of thousands of files, one after the other."""
    with CaptureQueriesContext(connection) as unlimited:
        upload(owner, content="하나")
    settings.QUOTA_DOCUMENTS = 10
    with CaptureQueriesContext(connection) as limited:
        upload(owner, content="둘")

    def count_sums(queries):
        return sum("SUM(" in one["sql"] for one in queries.captured_queries)

    assert (count_sums(unlimited), count_sums(limited) > 0) == (0, True)


def test_quotas_are_of_one_user_each(owner, stranger, sent, settings):
    settings.QUOTA_DOCUMENTS = 1
    upload(owner)
    assert upload(stranger).status == "PROCESSING"


def test_administrators_have_limits_too(owner, sent, settings):
    settings.QUOTA_DOCUMENTS = 1
    owner.is_staff = owner.is_superuser = True
    owner.save()
    upload(owner, content="하나")
    with pytest.raises(errors.QuotaDocuments):
        upload(owner, content="둘")


def test_bytes_beyond_the_limit_are_refused_and_leave_nothing(api, owner, sent, settings):
    settings.QUOTA_MB = 1
    make_row(owner, size=MEGABYTE - 10)
    response = post(api, make_text(11))
    assert (response.status_code, response.json()["code"]) == (403, "quota_bytes")
    assert stored_files() == []
    assert post(api, make_text(10)).status_code == 201


def test_old_versions_take_room_and_refused_ones_do_not(owner, sent, settings):
    settings.QUOTA_MB = 1
    document = make_row(owner, size=10)
    for number, state in enumerate(("old", "refused"), 2):
        DocumentVersion.objects.create(
            document=document,
            number=number,
            state=state,
            size=MEGABYTE - 20,
            created_at=timezone.now(),
        )
    assert quotas.measure_usage(owner.pk).bytes == MEGABYTE - 10
    upload(owner, content=make_text(10))
    with pytest.raises(errors.QuotaBytes):
        upload(owner, content=make_text(9))


def test_c44_a_new_version_counts_like_an_upload(api, owner, sent, settings):
    settings.QUOTA_MB = 1
    document = make_row(owner, status="COMPLETED", size=MEGABYTE - 10)
    file = SimpleUploadedFile("글.txt", make_text(11).encode())
    response = api.put(f"{URL}/{document.pk}/file", {"file": file}, format="multipart")
    assert (response.status_code, response.json()["code"]) == (403, "quota_bytes")
    assert stored_files() == []
    assert not document.versions.exists()


def test_a_file_that_waits_gives_its_room_to_the_one_that_takes_its_place(owner, sent, settings):
    settings.QUOTA_MB = 1
    document = make_row(owner, status="COMPLETED", size=10)
    for letter in "ab":
        content = ContentFile(letter.encode() * (MEGABYTE - 10))
        assert versions.receive_version(document=document, name="글.txt", content=content)
    assert quotas.measure_usage(owner.pk).bytes == MEGABYTE


def test_a_first_file_that_never_served_gives_its_room_to_the_next(owner, sent, settings):
    settings.QUOTA_MB = 1
    document = make_row(owner, status="FAILED", size=MEGABYTE)
    content = ContentFile(make_text(MEGABYTE).encode())
    assert versions.receive_version(document=document, name="글.txt", content=content)


@pytest.mark.django_db(transaction=True)
def test_two_uploads_at_once_cannot_both_be_the_last_one(owner, sent, settings):
    settings.QUOTA_DOCUMENTS = 1
    together = threading.Barrier(2)

    def send(number):
        try:
            together.wait()
            return upload(owner, content=f"글 {number}")
        except errors.QuotaDocuments:
            return None
        finally:
            connection.close()

    with ThreadPoolExecutor(2) as pool:
        assert sum(one is not None for one in pool.map(send, range(2))) == 1
    assert Document.objects.count() == len(stored_files()) == 1


def test_pages_beyond_the_limit_fail_the_document_with_the_reason(
    api, owner, sent, tiny_engine, settings
):
    settings.QUOTA_PAGES = 10
    make_row(owner, status="COMPLETED", page_count=10)
    document = upload(owner)  # of one page, as formats without pages are
    ingest.ingest_next_document()
    body = api.get(f"{URL}/{document.pk}").json()
    assert (body["status"], body["error"]["code"]) == ("FAILED", "quota_pages")
    assert "10" in body["error"]["detail"]


def test_pages_of_a_document_that_is_read_again_count_once(owner, settings):
    settings.QUOTA_PAGES = 10
    document = make_row(owner, status="COMPLETED", page_count=10)
    quotas.check_page_quota(owner.pk, document.pk, 10)
    with pytest.raises(errors.QuotaPages):
        quotas.check_page_quota(owner.pk, document.pk, 11)


def test_what_is_kept_counts_a_page_where_a_format_has_none(owner, stranger):
    make_row(owner, status="COMPLETED", page_count=7)
    make_row(owner, status="COMPLETED", page_count=None)
    make_row(owner, status="FAILED", page_count=None)
    make_row(stranger, status="COMPLETED", page_count=7)
    assert quotas.measure_usage(owner.pk).pages == 8


def rule(measure, hard=None, soft=None, **subject):
    return QuotaRule.objects.create(measure=measure, hard=hard, soft=soft, **subject)


def find_hard_limit(user, measure=QuotaMeasure.DOCUMENTS):
    return quotas.find_limits(user.pk)[measure].hard


@pytest.fixture
def two_groups(owner):
    groups = [Group.objects.create(name=name) for name in ("가", "나")]
    owner.groups.set(groups)
    return groups


def test_a_users_own_rule_passes_over_those_of_groups_and_the_default(owner, two_groups, settings):
    settings.QUOTA_DOCUMENTS = 1
    assert find_hard_limit(owner) == 1
    rule("documents", 50, group=two_groups[0])
    assert find_hard_limit(owner) == 50
    rule("documents", 10, user=owner)
    assert find_hard_limit(owner) == 10


def test_of_several_groups_the_most_generous_counts(owner, stranger, two_groups, settings):
    settings.QUOTA_DOCUMENTS = 100
    rule("documents", 50, group=two_groups[0])
    rule("documents", 70, group=two_groups[1])
    assert find_hard_limit(owner) == 70
    assert find_hard_limit(stranger) == 100
    QuotaRule.objects.filter(hard=50).update(hard=None)
    assert find_hard_limit(owner) is None


def test_a_rule_without_a_limit_lifts_the_default(owner, sent, settings):
    settings.QUOTA_DOCUMENTS = 1
    rule("documents", user=owner)
    for number in range(2):
        upload(owner, content=f"글 {number}")


def test_a_rule_of_one_measure_leaves_the_others_to_the_default(owner, settings):
    settings.QUOTA_DOCUMENTS, settings.QUOTA_PAGES = 10, 20
    rule("documents", 3, user=owner)
    assert find_hard_limit(owner, QuotaMeasure.PAGES) == 20


def test_megabytes_of_a_rule_are_enforced_as_bytes(owner, sent):
    rule("bytes", 1, user=owner)
    make_row(owner, size=MEGABYTE - 10)
    with pytest.raises(errors.QuotaBytes):
        upload(owner, content=make_text(11))


def test_a_rule_of_nothing_refuses_the_first_document(owner, sent):
    rule("documents", 0, user=owner)
    with pytest.raises(errors.QuotaDocuments):
        upload(owner)


def test_people_are_told_at_a_share_of_the_limit_unless_the_rule_says_when(owner, settings):
    settings.QUOTA_DOCUMENTS = 9
    assert quotas.find_limits(owner.pk)[QuotaMeasure.DOCUMENTS].soft == 8
    settings.QUOTA_SOFT_PERCENT = 0
    assert quotas.find_limits(owner.pk)[QuotaMeasure.DOCUMENTS].soft is None
    rule("documents", 9, soft=2, user=owner)
    assert quotas.find_limits(owner.pk)[QuotaMeasure.DOCUMENTS].soft == 2


def test_a_rule_is_of_a_user_or_a_group_and_tells_before_it_refuses(owner, two_groups):
    for wrong in (
        {"user": owner, "group": two_groups[0]},
        {},
        {"user": owner, "soft": 11},
    ):
        with pytest.raises(IntegrityError), transaction.atomic():
            rule("documents", **({"hard": 10} | wrong))


def test_limits_of_many_are_those_of_each(owner, stranger, two_groups, settings):
    settings.QUOTA_DOCUMENTS = 100
    rule("documents", 50, group=two_groups[0])
    rule("documents", 7, user=stranger)
    found = quotas.find_all_limits()
    hard = {user: found[user.pk][QuotaMeasure.DOCUMENTS].hard for user in (owner, stranger)}
    assert hard == {owner: 50, stranger: 7}
    assert found[0][QuotaMeasure.DOCUMENTS].hard == 100


def test_days_and_months_are_those_of_the_installation(settings, monkeypatch):
    settings.TIME_ZONE = "Asia/Seoul"
    new_year = datetime(2026, 12, 31, 15, 30, tzinfo=UTC)  # half past midnight in Seoul
    monkeypatch.setattr("django.utils.timezone.now", lambda: new_year)
    with timezone.override("America/New_York"):
        assert quotas.get_today() == date(2027, 1, 1)
        assert quotas.get_next_day().isoformat() == "2027-01-02T00:00:00+09:00"
        assert quotas.get_next_month().isoformat() == "2027-02-01T00:00:00+09:00"


@pytest.fixture
def shared(owner):
    library = Library.objects.create(name="공용")
    LibraryMember.objects.create(library=library, user=owner, role="manager")
    return library


def put(owner, library, content):
    file = ContentFile(content.encode())
    return services.upload_document(owner=owner, name="글.txt", content=file, library=library)[0]


def test_a_library_may_have_limits_of_its_own_beside_those_of_its_members(
    owner, stranger, sent, shared
):
    rule("documents", 1, library=shared)
    put(owner, shared, "하나")
    with pytest.raises(errors.QuotaLibrary):
        put(stranger, shared, "둘")
    assert put(owner, None, "셋").status == "PROCESSING"


def test_bytes_of_a_library_count_versions_too(owner, sent, shared):
    rule("bytes", 1, library=shared)
    document = make_row(owner, status="COMPLETED", size=MEGABYTE - 10, library=shared)
    with pytest.raises(errors.QuotaLibrary) as raised:
        versions.receive_version(document=document, name="글.txt", content=ContentFile(b"a" * 11))
    assert "1.0" in errors.explain_code(raised.value.code, raised.value.params)


def test_a_full_library_takes_no_document_from_elsewhere(owner, sent, shared):
    rule("documents", 1, library=shared)
    make_row(owner, library=shared)
    moved = make_row(owner)
    with pytest.raises(errors.QuotaLibrary):
        libraries.move_document(document=moved, library=shared, actor=owner)
    assert Document.objects.get(pk=moved.pk).library is None


def test_documents_in_a_library_count_for_who_put_them_there(owner, sent, shared):
    rule("documents", 1, user=owner)
    put(owner, shared, "하나")
    with pytest.raises(errors.QuotaDocuments):
        put(owner, None, "둘")


@pytest.mark.django_db(transaction=True)
def test_two_uploads_into_a_library_at_once_cannot_both_be_the_last_one(
    owner, stranger, sent, shared
):
    rule("documents", 1, library=shared)
    together = threading.Barrier(2)

    def send(user):
        try:
            together.wait()
            return put(user, shared, f"글 {user.pk}")
        except errors.QuotaLibrary:
            return None
        finally:
            connection.close()

    with ThreadPoolExecutor(2) as pool:
        assert sum(one is not None for one in pool.map(send, (owner, stranger))) == 1
