"""Web pages: single ones, those they link to, and those that a sitemap lists.

A page is stored as a reduced copy: text and structure without scripts, styles and whatever else
differs at each visit, so that only changes that people can read make a new version. Linked files of
readable formats are stored as they are. `robots.txt` is respected, and only links within the host
and folder of the entered address are followed.
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
"""Larger pages are not read."""
MAX_RUN_BYTES = 1024 * 1024 * 1024
MAX_LINKS = 500
"""Of one page."""
MAX_SITEMAPS = 100
PAGE_SECONDS = 60.0
MARKUP_SECONDS = 10.0
"""A page that takes longer to parse is probably hostile."""
FEED_CHARACTERS = 32_768
MAX_DELAY_SECONDS = 10
"""A worker sleeps this long; between two pages it checks whether documents wait for it."""
ROBOT = USER_AGENT.partition("/")[0]
GONE_STATUSES = frozenset((404, 410))
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
    """The site's robots.txt disallows this address."""

    code = "robots_refused"


@dataclass(frozen=True, slots=True)
class WebPage:
    """The content to store of an address, and its links."""

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
        self._requested_at: dict[str, float] = {}
        self._bytes = 0
        self._spooled: dict[str, tuple[int, int]] = {}

    def __enter__(self) -> Self:
        self._client = OutgoingClient(max_bytes=MAX_PAGE_BYTES, seconds=PAGE_SECONDS)
        self._spool = tempfile.TemporaryFile(dir=settings.DATA_DIR)
        return self

    def __exit__(self, *_: object) -> None:
        self._client.__exit__()
        self._spool.close()

    def list_entries(self, listing: Listing) -> Iterator[ListedEntry | UnlistedEntry]:
        """Each readable page once, under its address after redirects."""
        waiting = deque[tuple[str, str, int]]()  # address, what it must begin with, links to follow
        visited, listed = set[str](), set[str]()
        for start in self._starts:
            response = self._fetch_start(start)
            if is_sitemap(response):
                prefix = _get_origin(response.url)
                waiting += [(url, prefix, 0) for url in self._read_sitemap(response, listing)]
            else:
                waiting.append((response.url, response.url.rpartition("/")[0] + "/", self._depth))
        while waiting:
            url, prefix, depth = waiting.popleft()
            if url in visited or not url.startswith(prefix) or self._is_excluded(url):
                continue
            visited.add(url)
            if len(listed) >= self._max_pages or self._bytes > MAX_RUN_BYTES:
                # pages that were not visited are not gone
                error = EntryUnreadable("limit", reason="limit", limit=self._max_pages)
                yield UnlistedEntry("", url, error, is_prefix=True)
                return
            listing.check()
            known = listing.get_known(url)
            if (
                known is not None and known.is_listed and listing.after
            ):  # before this run was cut off
                entry: ListedEntry | UnlistedEntry | None = None
                links = tuple(known.notes.get("links", ()))
                listed.add(url)
            else:
                entry, links = self._visit(url, known)
            if entry is not None and entry.key not in listed and entry.key.startswith(prefix):
                listed.add(entry.key)
                yield entry
            if depth:
                waiting += [(link, prefix, depth - 1) for link in links]

    def _fetch_start(self, start: str) -> FetchedResponse:
        """Fetch an entered address. Raises `SourceUnreachable`: without it nothing is known."""
        try:
            response = self._fetch(start)
        except (AddressForbidden, AddressInvalid, RobotsRefused):
            raise
        except NuraError as error:
            raise SourceUnreachable(str(error), reason="web", address=start) from error
        if response.status >= 400:
            raise SourceUnreachable(
                f"{start}: {response.status}",
                reason="status",
                address=start,
                status=response.status,
            )
        return response

    def _visit(
        self, url: str, known: KnownEntry | None
    ) -> tuple[ListedEntry | UnlistedEntry | None, tuple[str, ...]]:
        """The entry of an address, if there is one, and its links."""
        old_links = tuple(known.notes.get("links", ())) if known else ()
        is_stored = known is not None and known.is_stored
        headers = {}
        if is_stored and known is not None:
            validators = (("etag", "If-None-Match"), ("modified", "If-Modified-Since"))
            headers = {to: known.notes[name] for name, to in validators if known.notes.get(name)}
        try:
            response = self._fetch(url, headers)
            if response.status == 304 and known is not None:
                notes = dict(known.notes)
                return ListedEntry(
                    url, notes["name"], url, known.fingerprint, notes=notes
                ), old_links
            if response.status in GONE_STATUSES:
                return None, ()
            _check_status(response)
            page = to_page(response)
        except RobotsRefused:
            return None, ()
        except (AddressUnreachable, AddressForbidden, AnswerTooLarge, EntryUnreadable) as error:
            return UnlistedEntry(url, url, error), old_links
        if page is None or not page.indexed:
            return None, page.links if page else ()
        self._spool_page(response.url, page.body)
        notes = {
            "name": page.name,
            "etag": response.headers.get("etag", "")[:500],
            "modified": response.headers.get("last-modified", "")[:100],
            "links": list(page.links),
        }
        fingerprint = sha256(page.body).hexdigest()
        size = len(page.body)
        return ListedEntry(
            response.url, page.name, response.url, fingerprint, notes, size
        ), page.links

    def _spool_page(self, url: str, body: bytes) -> None:
        """Store a page until it is opened, so that each page is requested once per run."""
        start = self._spool.seek(0, 2)
        self._spool.write(body)
        self._spooled[url] = (start, len(body))

    @contextmanager
    def open_entry(self, key: str) -> Iterator[BinaryIO]:
        """The page as spooled while listing, or else fetched again."""
        if key in self._spooled:
            start, size = self._spooled[key]
            self._spool.seek(start)
            yield BytesIO(self._spool.read(size))
            return
        try:
            response = self._fetch(key)
        except AddressUnreachable as error:
            raise EntryUnreadable(str(error), reason="web") from error
        if response.status in GONE_STATUSES:
            raise EntryGone(key)
        _check_status(response)
        page = to_page(response)
        if page is None:
            raise EntryGone(key)
        yield BytesIO(page.body)

    def _fetch(self, url: str, headers: Mapping[str, str] | None = None) -> FetchedResponse:
        response = self._client.fetch(url, headers, before_request=self._wait_for_turn)
        self._bytes += len(response.body)
        if response.status == 429:
            raise SourceUnreachable(f"{url}: 429", reason="status", address=url, status=429)
        return response

    def _wait_for_turn(self, url: str) -> None:
        """Respect the site's robots.txt, and pause between two requests to it."""
        origin = _get_origin(split_address(url)[2])
        robots = self._robots.get(origin) or self._load_robots(origin)
        if not robots.can_fetch(ROBOT, url):
            raise RobotsRefused(url, address=url)
        pause = min(max(self._delay, float(robots.crawl_delay(ROBOT) or 0)), MAX_DELAY_SECONDS)
        seconds_left = self._requested_at.get(origin, -pause) + pause - time.monotonic()
        if seconds_left > 0:
            time.sleep(seconds_left)  # politeness, no synchronisation
        self._requested_at[origin] = time.monotonic()

    def _load_robots(self, origin: str) -> RobotFileParser:
        """The rules of a site; none if it has no such file (RFC 9309)."""
        rules = RobotFileParser()
        response = self._client.fetch(f"{origin}robots.txt")
        if response.status >= 500:
            raise AddressUnreachable("robots.txt", host=origin)
        text = response.body[:512_000].decode("utf-8", "replace") if response.status == 200 else ""
        rules.parse(text.splitlines())
        self._robots[origin] = rules
        return rules

    def _read_sitemap(self, response: FetchedResponse, listing: Listing) -> list[str]:
        """The pages that a sitemap lists, directly or through other sitemaps."""
        origin = _get_origin(response.url)
        sitemaps, pages, count = deque([response]), dict[str, None](), 0
        while sitemaps:
            text = unpack_sitemap(sitemaps.popleft().body)
            locations = [
                unescape(location.decode("utf-8", "replace")).strip()
                for location in _LOCATION.findall(text)
            ]
            own_links = [
                location for location in map(_clean_link, locations) if location.startswith(origin)
            ]
            if b"<sitemapindex" not in text:
                pages |= dict.fromkeys(own_links[: self._max_pages + 1])
                continue
            for location in own_links:
                count += 1
                if count > MAX_SITEMAPS:
                    raise SourceUnreachable("too many sitemaps", reason="web", address=response.url)
                listing.check()
                sitemaps.append(self._fetch_start(location))
        return list(pages)

    def _is_excluded(self, url: str) -> bool:
        return any(part in url or part in unquote(url) for part in self._exclude)


def _check_status(response: FetchedResponse) -> None:
    if response.status != 200:
        raise EntryUnreadable(
            f"{response.url}: {response.status}", reason="status", status=response.status
        )


def _get_origin(url: str) -> str:
    """`https://example.com/`, with the slash, of an address as `split_address` writes it."""
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc}/"


def _clean_link(link: str) -> str:
    """The normalised address; "" if it is invalid."""
    try:
        return split_address(link)[2]
    except AddressInvalid:
        return ""


def is_sitemap(response: FetchedResponse) -> bool:
    """Whether a response is a sitemap."""
    head = unpack_sitemap(response.body[:65_536])[:2000] if response.body else b""
    return b"<urlset" in head or b"<sitemapindex" in head


def unpack_sitemap(body: bytes) -> bytes:
    """The text of a sitemap, compressed or not, limited to the size of a page."""
    if not body.startswith(b"\x1f\x8b"):
        return body
    try:
        return zlib.decompressobj(31).decompress(body, MAX_PAGE_BYTES)
    except zlib.error:
        return b""


def to_page(response: FetchedResponse) -> WebPage | None:
    """The page to store of a response; None if it has no readable format.

    Raises `EntryUnreadable`.
    """
    content_type = response.headers.get("content-type", "").partition(";")[0].strip().lower()
    tags = response.headers.get("x-robots-tag", "").lower()
    name = unquote(urlsplit(response.url).path).rstrip("/").rpartition("/")[2]
    if content_type not in HTML_TYPES:
        has_readable_name = is_readable_name(name)
        return (
            WebPage(name, response.body, (), "noindex" not in tags) if has_readable_name else None
        )
    if len(response.body) > MAX_MARKUP_BYTES:
        raise EntryUnreadable(response.url, reason="page")
    reducer = PageReducer(response.url)
    reducer.read(decode_page(response))
    title = re.sub(r"[/\\\s]+", " ", reducer.title).strip() or name or urlsplit(response.url).netloc
    links = () if "nofollow" in f"{tags} {reducer.robots}" else tuple(reducer.links)
    indexed = not {"noindex", "none"} & set(re.split(r"[\s,]+", f"{tags} {reducer.robots}"))
    stem = title.removesuffix(".html").removesuffix(".htm")[:150]
    return WebPage(f"{stem}.html", reducer.to_document(title), links, indexed)


def decode_page(response: FetchedResponse) -> str:
    """Decode a page by its header, its own declaration, or else by trying encodings."""
    header = re.search(r"charset=[\"']?([\w-]{1,40})", response.headers.get("content-type", ""))
    declared = _CHARSET.search(response.body[:4096])
    names = [header[1] if header else "", declared[1].decode() if declared else ""]
    korean = re.compile(r"(?i)euc-?kr|ks_?c_?5601.*|ms949|uhc")
    for name in [
        *(
            "cp949" if korean.fullmatch(candidate) else candidate
            for candidate in names
            if candidate
        ),
        "utf-8",
        "cp949",
    ]:
        try:
            return response.body.decode(name)
        except (UnicodeDecodeError, LookupError):
            continue
    return response.body.decode("utf-8", "replace")


class PageReducer(HTMLParser):
    """Parses a page: reduced markup, title, links, and directives for robots.

    Pure Python, because a page may be hostile and this runs in the worker itself; the resulting
    document is read in the sandbox like any other.
    """

    DROPPED_TAGS = frozenset(
        (
            *("script", "style", "template", "noscript", "svg", "iframe", "object", "canvas"),
            *("select", "textarea", "button"),
        )
    )
    KEPT_ATTRIBUTES = frozenset(
        ("colspan", "rowspan", "hidden", "aria-hidden", "role", "lang", "alt", "start")
    )
    METADATA_NAMES = frozenset(
        ("author", "article:author", "article:published_time", "dc.creator", "dc.date", "og:title")
    )
    VOID_TAGS = frozenset(("br", "hr", "img", "wbr", "col"))
    KEPT_TAGS = frozenset(
        (
            *("article", "aside", "blockquote", "caption", "code", "dd", "details", "div", "dl"),
            *("dt", "em", "figcaption", "figure", "footer", "h1", "h2", "h3", "h4", "h5", "h6"),
            *("header", "li", "main", "nav", "ol", "p", "pre", "section", "span", "strong", "sub"),
            *("summary", "sup", "table", "tbody", "td", "tfoot", "th", "thead", "tr", "ul", "b"),
            *("i", "u", "del", "ins", "q", "cite", "address", "math", "colgroup", *VOID_TAGS),
        )
    )

    def __init__(self, url: str) -> None:
        super().__init__(convert_charrefs=True)
        self._base, self._parts, self._metadata = url, list[str](), list[str]()
        self._dropped_tags, self._in_title = list[str](), False
        self.title, self.robots, self.links = "", "", dict[str, None]()

    def read(self, text: str) -> None:
        """Parse the whole page. Raises `EntryUnreadable` if it takes too long."""
        ends_at = time.monotonic() + MARKUP_SECONDS
        for start in range(0, len(text), FEED_CHARACTERS):
            self.feed(text[start : start + FEED_CHARACTERS])
            if time.monotonic() > ends_at:
                raise EntryUnreadable("page takes too long", reason="page")
        self.close()

    def to_document(self, title: str) -> bytes:
        """The reduced page as HTML."""
        head = f'<meta charset="utf-8"><title>{escape(title)}</title>{"".join(self._metadata)}'
        body = "".join(self._parts)
        text = f"<!doctype html>\n<html><head>{head}</head><body>{body}</body></html>\n"
        return text.encode()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Keep tags of structure, note links and metadata."""
        attributes = {name: value or "" for name, value in attrs}
        if tag in self.DROPPED_TAGS and tag not in self.VOID_TAGS:
            self._dropped_tags.append(tag)
        elif tag == "title" and not self._parts:
            self._in_title = True
        elif tag == "base" and attributes.get("href"):
            self._base = urljoin(self._base, attributes["href"])
        elif tag == "meta":
            self._note_metadata(attributes)
        elif tag == "a" and "nofollow" not in attributes.get("rel", ""):
            self._note_link(attributes.get("href", ""))
        if self._dropped_tags or tag not in self.KEPT_TAGS:
            return
        parts = [
            f' {name}="{escape(value)}"'
            for name, value in attributes.items()
            if name in self.KEPT_ATTRIBUTES
        ]
        if re.search(r"display\s*:\s*none|visibility\s*:\s*hidden", attributes.get("style", "")):
            parts.append(' hidden=""')
        self._parts.append(f"<{tag}{''.join(parts)}>")

    def handle_endtag(self, tag: str) -> None:
        """Close the tag."""
        if tag == "title":
            self._in_title = False
        if tag in self._dropped_tags:
            while self._dropped_tags.pop() != tag:
                continue
        elif not self._dropped_tags and tag in self.KEPT_TAGS and tag not in self.VOID_TAGS:
            self._parts.append(f"</{tag}>")

    def handle_data(self, data: str) -> None:
        """Add the text."""
        if self._in_title:
            self.title += data[:500]
        elif not self._dropped_tags:
            self._parts.append(escape(data, quote=False))

    def _note_metadata(self, attributes: Mapping[str, str]) -> None:
        name = (attributes.get("name") or attributes.get("property") or "").lower()
        if name in {"robots", ROBOT.lower()}:
            self.robots += f" {attributes.get('content', '').lower()}"
        elif name in self.METADATA_NAMES:
            content = escape(attributes.get("content", "")[:500])
            self._metadata.append(f'<meta name="{name}" content="{content}">')

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
