"""Pages of a real web server of this machine."""

import gzip

import pytest
from django.contrib.auth.models import User

from documents import libraries
from documents.models import Document
from documents.outgoing import FetchedResponse
from documents.sources.base import clean_settings, get_kind
from documents.sources.kinds import web
from documents.sources.kinds.web import PageReducer, to_page
from documents.sources.models import Source, SourceEntry
from tests.documents.sources.test_folder import get_counts, run

pytestmark = pytest.mark.django_db


@pytest.fixture
def manager(db):
    return User.objects.create_user("manager", password="secret-of-them")


@pytest.fixture
def make(manager, sent):
    def make_source(*addresses, **given):
        values = {"addresses": list(addresses), "delay_seconds": 0, **given}
        return Source.objects.create(
            library=libraries.create_library(creator=manager, name="웹"),
            owner=manager,
            kind="web",
            name="누리집",
            settings=clean_settings(get_kind("web"), values),
        )

    return make_source


def write_page(text, title="휴가 안내", more=""):
    head = f"<html><head><title>{title}</title></head>"
    return f"{head}<body><main><p>{text}</p>{more}</main></body></html>"


def test_a_page_becomes_a_document_with_its_title_and_address(site, make):
    site.put("/휴가".encode().decode("latin-1"), "")
    site.put("/guide", write_page("연차 휴가는 15일이다."))
    assert get_counts(run(make(f"{site.url}/guide"))) == {"added": 1}
    document = Document.objects.get()
    assert (document.name, document.content_type) == ("휴가 안내.html", "text/html")
    assert document.metadata["source_uri"] == f"{site.url}/guide"
    assert document.origin_address == f"{site.url}/guide"


def test_links_are_followed_below_the_address_only(site, make, other_site):
    away = f'<a href="{other_site.url}/x">x</a><a href="/other/page">o</a><a href="a">a</a>'
    site.put("/docs/", write_page("처음", more=away))
    site.put("/docs/a", write_page("둘째", title="둘째", more='<a href="/docs/b">b</a>'))
    site.put("/docs/b", write_page("셋째", title="셋째"))
    site.put("/other/page", write_page("밖"))
    assert get_counts(run(make(f"{site.url}/docs/", depth=1))) == {"added": 2}
    assert "/other/page" not in site.paths()
    assert other_site.asked == []


def test_a_page_that_has_not_changed_is_not_sent_again(site, make):
    site.put("/", write_page("처음", more='<a href="/a">a</a>'))
    site.put("/a", write_page("같다", title="같다"), ETag='"1"')
    source = make(f"{site.url}/", depth=1)
    run(source)
    site.pages["/a"] = lambda handler: (
        (304, {}, b"") if handler.headers.get("If-None-Match") == '"1"' else (500, {}, b"")
    )
    done = run(source)
    assert (done.status, done.listed, get_counts(done)) == ("done", 2, {})


def test_scripts_and_what_differs_at_each_visit_make_no_new_version(site, make):
    site.put("/", write_page("같다", more="<script>nonce=1</script>"))
    source = make(f"{site.url}/")
    run(source)
    site.put("/", write_page("같다", more="<script>nonce=2</script>"))
    assert get_counts(run(source)) == {}
    site.put("/", write_page("다르다"))
    assert get_counts(run(source)) == {"changed": 1}


def test_robots_are_heeded(site, make):
    site.put("/robots.txt", "User-agent: *\nDisallow: /private", kind="text/plain")
    site.put("/", write_page("처음", more='<a href="/private/x">x</a><a href="/open">o</a>'))
    site.put("/private/x", write_page("비밀"))
    site.put("/open", write_page("공개", title="공개"))
    assert get_counts(run(make(f"{site.url}/", depth=1))) == {"added": 2}
    assert "/private/x" not in site.paths()
    assert run(make(f"{site.url}/private/x")).error_code == "robots_refused"


def test_what_a_site_asks_for_between_two_pages_holds_up_to_a_bound(site, make, monkeypatch):
    slept = []
    monkeypatch.setattr(web.time, "sleep", slept.append)
    site.put("/robots.txt", "User-agent: *\nCrawl-delay: 3600", kind="text/plain")
    site.put("/", write_page("처음", more='<a href="/a">a</a>'))
    site.put("/a", write_page("둘째", title="둘째"))
    assert get_counts(run(make(f"{site.url}/", depth=1))) == {"added": 2}
    assert slept
    assert 9 < max(slept) <= 10


def test_pages_that_want_no_index_are_not_kept(site, make):
    site.put("/", write_page("x", more='<meta name="robots" content="noindex"><a href="/b">b</a>'))
    site.put("/b", write_page("둘째"))
    run(make(f"{site.url}/", depth=1))
    assert [one.metadata["source_uri"] for one in Document.objects.all()] == [f"{site.url}/b"]


def test_a_sitemap_index_leads_to_its_pages(site, make, other_site):
    index = f"<sitemapindex><sitemap><loc>{site.url}/a.xml.gz</loc></sitemap></sitemapindex>"
    places = [f"{site.url}/1", f"{site.url}/2?a=1&amp;b=2", f"{other_site.url}/3"]
    urls = "".join(f"<url><loc>{one}</loc></url>" for one in places)
    site.put("/sitemap.xml", index, kind="application/xml")
    site.put("/a.xml.gz", gzip.compress(f"<urlset>{urls}</urlset>".encode()))
    site.put("/1", write_page("하나", title="하나"))
    site.put("/2?a=1&b=2", write_page("둘", title="둘"))
    assert get_counts(run(make(f"{site.url}/sitemap.xml"))) == {"added": 2}
    assert other_site.asked == []


def test_a_page_that_is_gone_is_deleted_and_one_with_an_error_is_not(site, make):
    site.put("/", write_page("처음", more='<a href="/a">a</a><a href="/b">b</a>'))
    site.put("/a", write_page("하나", title="하나"))
    site.put("/b", write_page("둘", title="둘"))
    source = make(f"{site.url}/", depth=1)
    run(source)
    del site.pages["/a"]
    site.put("/b", "oops", status=500)
    done = run(source)
    assert get_counts(done) == {"removed": 1, "failed": 1}
    assert SourceEntry.objects.get(error_code="entry_unreadable").uri == f"{site.url}/b"


def test_a_dry_run_tells_a_page_that_has_moved_by_its_words(site, make):
    def put_map(*paths):
        places = "".join(f"<url><loc>{site.url}{path}</loc></url>" for path in paths)
        site.put("/sitemap.xml", f"<urlset>{places}</urlset>", kind="application/xml")

    site.put("/old", write_page("하나", title="하나"))
    site.put("/gone", write_page("둘", title="둘"))
    put_map("/old", "/gone")
    source = make(f"{site.url}/sitemap.xml")
    run(source)
    site.put("/new/place", write_page("하나", title="하나"))
    site.put("/more", write_page("셋", title="셋"))
    put_map("/new/place", "/more")
    told = run(source, dry_run=True)
    assert get_counts(told) == {"added": 1, "renamed": 1, "removed": 1}
    assert told.report == {
        "added": [f"{site.url}/more"],
        "renamed": [f"{site.url}/new/place"],
        "removed": [f"{site.url}/gone"],
    }
    assert get_counts(run(source)) == get_counts(told)


def test_an_unreachable_site_deletes_nothing(site, make):
    site.put("/", write_page("처음"))
    source = make(f"{site.url}/")
    run(source)
    site.put("/", "oops", status=503)
    assert run(source).error_code == "source_unreachable"
    assert Document.objects.count() == 1


def test_what_the_limit_leaves_out_is_not_gone(site, make):
    links = "".join(f'<a href="/{n}">{n}</a>' for n in range(4))
    site.put("/", write_page("처음", more=links))
    for number in range(4):
        site.put(f"/{number}", write_page(f"쪽 {number}", title=f"쪽 {number}"))
    source = make(f"{site.url}/", depth=1)
    run(source)
    source.settings["max_pages"] = 2
    source.save()
    done = run(source)
    assert (done.removed, done.failed) == (0, 1)
    assert Document.objects.count() == 5


@pytest.mark.parametrize("inside", ["http://127.0.0.1:1/", "http://169.254.169.254/latest/"])
def test_nothing_inside_is_fetched(make, inside):
    assert run(make(inside)).error_code == "address_forbidden"


def test_old_korean_pages_are_decoded():
    body = "<html><head><meta charset=euc-kr><title>공지</title></head><body>휴가</body></html>"
    found = to_page(
        FetchedResponse("http://a/b", 200, {"content-type": "text/html"}, body.encode("cp949"))
    )
    assert found.name == "공지.html"
    assert "휴가" in found.body.decode()


def test_a_hostile_page_is_taken_apart_in_time():
    reducer = PageReducer("http://a/")
    reducer.read("<div " * 20_000 + "<!--" * 20_000 + "<a href='x'>" * 1000)
    assert len(reducer.links) <= 500
