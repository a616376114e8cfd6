"""Pages of the web: single ones, those they lead to, and those that a sitemap lists.

A page is stored as a reduced copy of itself: its text with the marks that give it form, without
scripts, styles and all else that differs at each visit, so that only what people read makes a new
version. Files that Nura reads, which pages lead to, are stored as they are. `robots.txt` is kept
to, links lead no further than the host and folder of the address that was given.
"""

import re
import tempfile
import time
import zlib
from collections import deque
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from hashlib import sha256
from html import escape, unescape
from html.parser import HTMLParser
from io import BytesIO
from typing import Any, BinaryIO, Self
from urllib.parse import unquote, urljoin, urlsplit
from urllib.robotparser import RobotFileParser

from django.conf import settings
from django.utils.translation import gettext_lazy as _

from documents.outgoing import (
    USER_AGENT,
    AddressForbidden,
    AddressInvalid,
    AddressUnreachable,
    AnswerTooLarge,
    FetchedResponse,
    OutgoingClient,
    split_address,
)
from documents.sources.base import (
    EntryGone,
    EntryUnreadable,
    KnownEntry,
    ListedEntry,
    Listing,
    SettingField,
    SourceKind,
    SourceReader,
    SourceSettingInvalid,
    SourceUnreachable,
    UnlistedEntry,
    is_readable_name,
    register_kind,
)
from rag.errors import NuraError

MAX_PAGE_BYTES = 20 * 1024 * 1024
MAX_MARKUP_BYTES = 4 * 1024 * 1024
"""A page larger than this is no text for people."""
MAX_RUN_BYTES = 1024 * 1024 * 1024
MAX_LINKS = 500
"""Of one page."""
MAX_SITEMAPS = 100
PAGE_SECONDS = 60.0
MARKUP_SECONDS = 10.0
"""A page that takes longer to take apart was made to."""
FEED_CHARACTERS = 32_768
MAX_DELAY_SECONDS = 10
"""A worker sleeps meanwhile: between two pages it sees whether documents wait for it."""
ROBOT = USER_AGENT.partition("/")[0]
GONE = frozenset((404, 410))
HTML_TYPES = frozenset(("text/html", "application/xhtml+xml"))
_CHARSET = re.compile(
    rb"""<meta\b[^<>]{0,200}\bcharset\s*=\s*["']?\s*([\w-]{1,40})""", re.IGNORECASE
)
_LOCATION = re.compile(rb"<loc>\s{0,100}(?:<!\[CDATA\[)?([^<\]]{1,2000}?)(?:\]\]>)?\s{0,100}</loc>")
_NO_PAGES = re.compile(
    r"\.(?:css|js|json|xml|rss|ico|png|jpe?g|gif|svg|webp|bmp|mp[34]|mov|avi|zip|gz|7z|rar|exe|apk|"
    r"woff2?|ttf)$",
    re.IGNORECASE,
)


class RobotsRefused(NuraError):
    """The site does not want this address to be read by programs."""

    code = "robots_refused"


@dataclass(frozen=True, slots=True)
class WebPage:
    """What is stored of an address, and where it leads to."""

    name: str
    body: bytes
    links: tuple[str, ...]
    indexed: bool


class WebReader(SourceReader):
    """Pages in the order in which they are found, one request at a time."""

    BATCH = 1

    def __init__(self, values: Mapping[str, Any]) -> None:
        self._starts: list[str] = values["addresses"]
        self._depth: int = values["depth"]
        self._max_pages: int = values["max_pages"]
        self._delay = float(values["delay_seconds"])
        self._exclude: list[str] = values["exclude"]
        self._robots: dict[str, RobotFileParser] = {}
        self._asked_at: dict[str, float] = {}
        self._bytes = 0
        self._kept: dict[str, tuple[int, int]] = {}

    def __enter__(self) -> Self:
        self._client = OutgoingClient(max_bytes=MAX_PAGE_BYTES, seconds=PAGE_SECONDS)
        self._spool = tempfile.TemporaryFile(dir=settings.DATA_DIR)
        return self

    def __exit__(self, *_: object) -> None:
        self._client.__exit__()
        self._spool.close()

    def list_entries(self, listing: Listing) -> Iterator[ListedEntry | UnlistedEntry]:
        """Each page that may be read, once, under the address behind its redirects."""
        waiting = deque[tuple[str, str, int]]()  # address, what it must begin with, links to follow
        asked, told = set[str](), set[str]()
        for start in self._starts:
            answer = self._fetch_start(start)
            if is_sitemap(answer):
                inside = _get_origin(answer.url)
                waiting += [(url, inside, 0) for url in self._read_sitemap(answer, listing)]
            else:
                waiting.append((answer.url, answer.url.rpartition("/")[0] + "/", self._depth))
        while waiting:
            url, inside, depth = waiting.popleft()
            if url in asked or not url.startswith(inside) or self._is_excluded(url):
                continue
            asked.add(url)
            if len(told) >= self._max_pages or self._bytes > MAX_RUN_BYTES:
                # what was not looked at any more is not gone
                error = EntryUnreadable("limit", reason="limit", limit=self._max_pages)
                yield UnlistedEntry("", url, error, below=True)
                return
            listing.check()
            known = listing.get_known(url)
            if known is not None and known.seen and listing.after:  # before this run was cut off
                entry: ListedEntry | UnlistedEntry | None = None
                links = tuple(known.notes.get("links", ()))
                told.add(url)
            else:
                entry, links = self._visit(url, known)
            if entry is not None and entry.key not in told and entry.key.startswith(inside):
                told.add(entry.key)
                yield entry
            if depth:
                waiting += [(link, inside, depth - 1) for link in links]

    def _fetch_start(self, start: str) -> FetchedResponse:
        """Without the addresses that were given, nothing is known of the source."""
        try:
            answer = self._fetch(start)
        except (AddressForbidden, AddressInvalid, RobotsRefused):
            raise
        except NuraError as error:
            raise SourceUnreachable(str(error), reason="web", address=start) from error
        if answer.status >= 400:
            raise SourceUnreachable(
                f"{start}: {answer.status}", reason="status", address=start, status=answer.status
            )
        return answer

    def _visit(
        self, url: str, known: KnownEntry | None
    ) -> tuple[ListedEntry | UnlistedEntry | None, tuple[str, ...]]:
        """What is told of an address, and where it leads to."""
        before = tuple(known.notes.get("links", ())) if known else ()
        held = known is not None and known.held
        headers = {}
        if held and known is not None:
            validators = (("etag", "If-None-Match"), ("modified", "If-Modified-Since"))
            headers = {to: known.notes[name] for name, to in validators if known.notes.get(name)}
        try:
            answer = self._fetch(url, headers)
            if answer.status == 304 and known is not None:
                notes = dict(known.notes)
                return ListedEntry(url, notes["name"], url, known.fingerprint, notes=notes), before
            if answer.status in GONE:
                return None, ()
            _check_status(answer)
            page = to_page(answer)
        except RobotsRefused:
            return None, ()
        except (AddressUnreachable, AddressForbidden, AnswerTooLarge, EntryUnreadable) as error:
            return UnlistedEntry(url, url, error), before
        if page is None or not page.indexed:
            return None, page.links if page else ()
        self._keep_page(answer.url, page.body)
        notes = {
            "name": page.name,
            "etag": answer.headers.get("etag", "")[:500],
            "modified": answer.headers.get("last-modified", "")[:100],
            "links": list(page.links),
        }
        found = sha256(page.body).hexdigest()
        size = len(page.body)
        return ListedEntry(answer.url, page.name, answer.url, found, notes, size), page.links

    def _keep_page(self, url: str, body: bytes) -> None:
        """Until it is opened: a page is asked for once a run."""
        start = self._spool.seek(0, 2)
        self._spool.write(body)
        self._kept[url] = (start, len(body))

    @contextmanager
    def open_entry(self, key: str) -> Iterator[BinaryIO]:
        """What was kept while listing, or else the page once more."""
        if key in self._kept:
            start, size = self._kept[key]
            self._spool.seek(start)
            yield BytesIO(self._spool.read(size))
            return
        try:
            answer = self._fetch(key)
        except AddressUnreachable as error:
            raise EntryUnreadable(str(error), reason="web") from error
        if answer.status in GONE:
            raise EntryGone(key)
        _check_status(answer)
        page = to_page(answer)
        if page is None:
            raise EntryGone(key)
        yield BytesIO(page.body)

    def _fetch(self, url: str, headers: Mapping[str, str] | None = None) -> FetchedResponse:
        answer = self._client.fetch(url, headers, before_request=self._wait_for_turn)
        self._bytes += len(answer.body)
        if answer.status == 429:
            raise SourceUnreachable(f"{url}: 429", reason="status", address=url, status=429)
        return answer

    def _wait_for_turn(self, url: str) -> None:
        """Keep to the site's rules, and to a pause between two requests to it."""
        origin = _get_origin(split_address(url)[2])
        robots = self._robots.get(origin) or self._load_robots(origin)
        if not robots.can_fetch(ROBOT, url):
            raise RobotsRefused(url, address=url)
        pause = min(max(self._delay, float(robots.crawl_delay(ROBOT) or 0)), MAX_DELAY_SECONDS)
        rest = self._asked_at.get(origin, -pause) + pause - time.monotonic()
        if rest > 0:
            time.sleep(rest)  # politeness: there is nothing to wait for
        self._asked_at[origin] = time.monotonic()

    def _load_robots(self, origin: str) -> RobotFileParser:
        """The rules of a site; it has none where it has no such file (RFC 9309)."""
        rules = RobotFileParser()
        answer = self._client.fetch(f"{origin}robots.txt")
        if answer.status >= 500:
            raise AddressUnreachable("robots.txt", host=origin)
        text = answer.body[:512_000].decode("utf-8", "replace") if answer.status == 200 else ""
        rules.parse(text.splitlines())
        self._robots[origin] = rules
        return rules

    def _read_sitemap(self, answer: FetchedResponse, listing: Listing) -> list[str]:
        """The addresses that a sitemap lists, and those of the sitemaps that it lists."""
        origin = _get_origin(answer.url)
        maps, found, number = deque([answer]), dict[str, None](), 0
        while maps:
            text = unpack_sitemap(maps.popleft().body)
            places = [
                unescape(one.decode("utf-8", "replace")).strip() for one in _LOCATION.findall(text)
            ]
            mine = [one for one in map(_clean_link, places) if one.startswith(origin)]
            if b"<sitemapindex" not in text:
                found |= dict.fromkeys(mine[: self._max_pages + 1])
                continue
            for place in mine:
                number += 1
                if number > MAX_SITEMAPS:
                    raise SourceUnreachable("too many sitemaps", reason="web", address=answer.url)
                listing.check()
                maps.append(self._fetch_start(place))
        return list(found)

    def _is_excluded(self, url: str) -> bool:
        return any(part in url or part in unquote(url) for part in self._exclude)


def _check_status(answer: FetchedResponse) -> None:
    if answer.status != 200:
        raise EntryUnreadable(
            f"{answer.url}: {answer.status}", reason="status", status=answer.status
        )


def _get_origin(url: str) -> str:
    """`https://example.com/`, with the slash, of an address as `split_address` writes it."""
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc}/"


def _clean_link(link: str) -> str:
    """The address as it is asked for; "" for what is none."""
    try:
        return split_address(link)[2]
    except AddressInvalid:
        return ""


def is_sitemap(answer: FetchedResponse) -> bool:
    """Whether an answer lists addresses instead of being a page."""
    head = unpack_sitemap(answer.body[:65_536])[:2000] if answer.body else b""
    return b"<urlset" in head or b"<sitemapindex" in head


def unpack_sitemap(body: bytes) -> bytes:
    """The text of a sitemap, packed or not, no more than a page may have."""
    if not body.startswith(b"\x1f\x8b"):
        return body
    try:
        return zlib.decompressobj(31).decompress(body, MAX_PAGE_BYTES)
    except zlib.error:
        return b""


def to_page(answer: FetchedResponse) -> WebPage | None:
    """What to store of an answer; None where it is nothing that people read.

    Raises `EntryUnreadable`.
    """
    kind = answer.headers.get("content-type", "").partition(";")[0].strip().lower()
    tags = answer.headers.get("x-robots-tag", "").lower()
    name = unquote(urlsplit(answer.url).path).rstrip("/").rpartition("/")[2]
    if kind not in HTML_TYPES:
        named = is_readable_name(name)
        return WebPage(name, answer.body, (), "noindex" not in tags) if named else None
    if len(answer.body) > MAX_MARKUP_BYTES:
        raise EntryUnreadable(answer.url, reason="page")
    reducer = PageReducer(answer.url)
    reducer.read(decode_page(answer))
    title = re.sub(r"[/\\\s]+", " ", reducer.title).strip() or name or urlsplit(answer.url).netloc
    links = () if "nofollow" in f"{tags} {reducer.robots}" else tuple(reducer.links)
    indexed = not {"noindex", "none"} & set(re.split(r"[\s,]+", f"{tags} {reducer.robots}"))
    stem = title.removesuffix(".html").removesuffix(".htm")[:150]
    return WebPage(f"{stem}.html", reducer.to_document(title), links, indexed)


def decode_page(answer: FetchedResponse) -> str:
    """The text of a page by what its answer says, by what it says itself, or by its bytes."""
    header = re.search(r"charset=[\"']?([\w-]{1,40})", answer.headers.get("content-type", ""))
    inside = _CHARSET.search(answer.body[:4096])
    named = [header[1] if header else "", inside[1].decode() if inside else ""]
    korean = re.compile(r"(?i)euc-?kr|ks_?c_?5601.*|ms949|uhc")
    for name in [
        *("cp949" if korean.fullmatch(one) else one for one in named if one),
        "utf-8",
        "cp949",
    ]:
        try:
            return answer.body.decode(name)
        except (UnicodeDecodeError, LookupError):
            continue
    return answer.body.decode("utf-8", "replace")


class PageReducer(HTMLParser):
    """Takes a page apart: its text with its form, its title, its links, what it asks of robots.

    Written in Python all the way down, for a page may be hostile and this runs in the worker
    itself; the document that comes of it is read in the sandbox like any other.
    """

    DROPPED = frozenset(
        (
            *("script", "style", "template", "noscript", "svg", "iframe", "object", "canvas"),
            *("select", "textarea", "button"),
        )
    )
    KEPT = frozenset(
        ("colspan", "rowspan", "hidden", "aria-hidden", "role", "lang", "alt", "start")
    )
    FACTS = frozenset(
        ("author", "article:author", "article:published_time", "dc.creator", "dc.date", "og:title")
    )
    VOID = frozenset(("br", "hr", "img", "wbr", "col"))
    PLAIN = frozenset(
        (
            *("article", "aside", "blockquote", "caption", "code", "dd", "details", "div", "dl"),
            *("dt", "em", "figcaption", "figure", "footer", "h1", "h2", "h3", "h4", "h5", "h6"),
            *("header", "li", "main", "nav", "ol", "p", "pre", "section", "span", "strong", "sub"),
            *("summary", "sup", "table", "tbody", "td", "tfoot", "th", "thead", "tr", "ul", "b"),
            *("i", "u", "del", "ins", "q", "cite", "address", "math", "colgroup", *VOID),
        )
    )

    def __init__(self, url: str) -> None:
        super().__init__(convert_charrefs=True)
        self._base, self._out, self._facts = url, list[str](), list[str]()
        self._dropped, self._in_title = list[str](), False
        self.title, self.robots, self.links = "", "", dict[str, None]()

    def read(self, text: str) -> None:
        """The whole page. Raises `EntryUnreadable` where it takes too long."""
        ends_at = time.monotonic() + MARKUP_SECONDS
        for start in range(0, len(text), FEED_CHARACTERS):
            self.feed(text[start : start + FEED_CHARACTERS])
            if time.monotonic() > ends_at:
                raise EntryUnreadable("page takes too long", reason="page")
        self.close()

    def to_document(self, title: str) -> bytes:
        """The reduced page."""
        head = f'<meta charset="utf-8"><title>{escape(title)}</title>{"".join(self._facts)}'
        body = "".join(self._out)
        text = f"<!doctype html>\n<html><head>{head}</head><body>{body}</body></html>\n"
        return text.encode()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Keep what gives form, note what leads on."""
        known = {name: value or "" for name, value in attrs}
        if tag in self.DROPPED and tag not in self.VOID:
            self._dropped.append(tag)
        elif tag == "title" and not self._out:
            self._in_title = True
        elif tag == "base" and known.get("href"):
            self._base = urljoin(self._base, known["href"])
        elif tag == "meta":
            self._note_fact(known)
        elif tag == "a" and "nofollow" not in known.get("rel", ""):
            self._note_link(known.get("href", ""))
        if self._dropped or tag not in self.PLAIN:
            return
        kept = [f' {name}="{escape(value)}"' for name, value in known.items() if name in self.KEPT]
        if re.search(r"display\s*:\s*none|visibility\s*:\s*hidden", known.get("style", "")):
            kept.append(' hidden=""')
        self._out.append(f"<{tag}{''.join(kept)}>")

    def handle_endtag(self, tag: str) -> None:
        """Close what was opened."""
        if tag == "title":
            self._in_title = False
        if tag in self._dropped:
            while self._dropped.pop() != tag:
                continue
        elif not self._dropped and tag in self.PLAIN and tag not in self.VOID:
            self._out.append(f"</{tag}>")

    def handle_data(self, data: str) -> None:
        """The text."""
        if self._in_title:
            self.title += data[:500]
        elif not self._dropped:
            self._out.append(escape(data, quote=False))

    def _note_fact(self, known: Mapping[str, str]) -> None:
        name = (known.get("name") or known.get("property") or "").lower()
        if name in {"robots", ROBOT.lower()}:
            self.robots += f" {known.get('content', '').lower()}"
        elif name in self.FACTS:
            told = escape(known.get("content", "")[:500])
            self._facts.append(f'<meta name="{name}" content="{told}">')

    def _note_link(self, href: str) -> None:
        if not href or len(href) > 2000 or len(self.links) >= MAX_LINKS:
            return
        try:
            link = _clean_link(urljoin(self._base, href.strip()))
        except ValueError:
            return
        if link and not _NO_PAGES.search(urlsplit(link).path):
            self.links[link] = None


def _check_web(values: Mapping[str, Any]) -> None:
    for address in values["addresses"]:
        try:
            split_address(address)
        except AddressInvalid as error:
            raise SourceSettingInvalid(address, name="addresses", reason="address") from error


register_kind(
    SourceKind(
        name="web",
        label=_("Web pages"),
        hint=_("Pages of a website, or all that its sitemap lists."),
        fields=(
            SettingField(
                "addresses",
                _("Addresses"),
                form="lines",
                required=True,
                default=(),
                help=_("Pages or sitemaps, one per line, such as https://example.com/sitemap.xml."),
            ),
            SettingField(
                "depth",
                _("Follow links"),
                form="number",
                default=0,
                maximum=10,
                help=_("How many links away from these pages. 0: only these pages."),
            ),
            SettingField(
                "max_pages",
                _("Maximum pages"),
                form="number",
                default=200,
                minimum=1,
                maximum=5000,
            ),
            SettingField(
                "delay_seconds",
                _("Seconds between two requests"),
                form="number",
                default=1,
                maximum=MAX_DELAY_SECONDS,
                help=_("A website's own Crawl-delay is respected up to 10 seconds."),
            ),
            SettingField(
                "exclude",
                _("Not these addresses"),
                form="lines",
                default=(),
                help=_("Parts of addresses such as /login, one per line."),
            ),
        ),
        open_reader=WebReader,
        describe=lambda values: ", ".join(values["addresses"]),
        check=_check_web,
        rank=1,
    )
)
