"""The guard against the own network, against real servers of this machine."""

import contextlib
import socket
import threading
import time

import pytest

from documents import outgoing
from documents.outgoing import (
    AddressForbidden,
    AddressInvalid,
    AddressUnreachable,
    AnswerTooLarge,
    OutgoingClient,
    is_private_address,
    split_address,
)

INSIDE = (
    *("127.0.0.1", "127.8.8.8", "0.0.0.0", "10.1.2.3", "172.16.0.1", "172.31.255.255"),
    *("192.168.0.1", "169.254.169.254", "100.64.0.1", "100.127.255.255", "192.0.0.8"),
    *("198.18.0.1", "224.0.0.1", "240.0.0.1", "255.255.255.255", "::", "::1", "fe80::1"),
    *("fe80::1%eth0", "fc00::1", "fd00:ec2::254", "ff02::1", "fec0::1", "::ffff:127.0.0.1"),
    *("::ffff:169.254.169.254", "64:ff9b::7f00:1", "64:ff9b::a9fe:a9fe", "2002:7f00:1::"),
    *("2001:db8::1", "192.0.2.1", "::127.0.0.1", "::ffff:0:10.0.0.1"),
)
OUTSIDE = ("8.8.8.8", "1.1.1.1", "93.184.216.34", "2606:4700:4700::1111", "64:ff9b::808:808")


def fetch(url, max_bytes=100_000, seconds=10.0, **options):
    with OutgoingClient(max_bytes=max_bytes, seconds=seconds) as client:
        return client.fetch(url, **options)


@pytest.fixture
def resolver_names(monkeypatch):
    """What the resolver answers, name by name: a list, or one list after the other."""
    known = {}

    def resolve(host, port, *arguments):
        if host not in known:
            return socket.getaddrinfo(host, port, *arguments)
        answer = known[host]
        addresses = answer.pop(0) if isinstance(answer[0], list) else answer
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (one, port)) for one in addresses]

    monkeypatch.setattr(outgoing, "getaddrinfo", resolve)
    return known


def test_a_name_that_nobody_resolves_is_not_waited_for(monkeypatch):
    over = threading.Event()
    monkeypatch.setattr(outgoing, "getaddrinfo", lambda *_: over.wait(20))
    begun = time.monotonic()
    with pytest.raises(AddressUnreachable):
        fetch("http://slow.example.com/", seconds=0.5)
    over.set()
    assert time.monotonic() - begun < 5


@pytest.mark.parametrize("address", INSIDE)
def test_addresses_inside_are_told(address):
    assert is_private_address(address)


@pytest.mark.parametrize("address", OUTSIDE)
def test_public_addresses_are_let_through(address):
    assert not is_private_address(address)


@pytest.mark.parametrize(
    "form", ["127.0.0.1", "2130706433", "0x7f000001", "0177.0.0.1", "127.1", "localhost", "[::1]"]
)
def test_no_spelling_of_this_machine_gets_through(other_site, form):
    with pytest.raises((AddressForbidden, AddressUnreachable, AddressInvalid)):
        fetch(f"http://{form}:{other_site.port}/")
    assert other_site.asked == []


def test_a_host_that_is_allowed_by_name_may_stand_inside(site):
    site.put("/", "안녕")
    assert fetch(f"{site.url}/").body.decode() == "안녕"


def test_another_port_of_an_allowed_host_is_not_allowed(site, other_site):
    with pytest.raises(AddressForbidden):
        fetch(f"{other_site.url}/")
    assert other_site.asked == []


def test_a_name_with_one_address_inside_is_refused(resolver_names, other_site):
    resolver_names["mixed.example"] = ["93.184.216.34", "127.0.0.1"]
    with pytest.raises(AddressForbidden):
        fetch(f"http://mixed.example:{other_site.port}/")
    assert other_site.asked == []


def test_a_name_that_answers_otherwise_later_leads_nowhere(resolver_names, other_site, monkeypatch):
    """Rebinding: first a public address, then one inside. Only the first one is ever used."""
    resolver_names["rebind.example"] = [["93.184.216.34"], ["127.0.0.1"]]
    tried = []

    def connect(_backend, host, *_arguments):
        tried.append(host)
        raise outgoing.httpcore2.ConnectError("no network in tests")

    monkeypatch.setattr(outgoing.httpcore2.SyncBackend, "connect_tcp", connect)
    with pytest.raises(AddressUnreachable):
        fetch(f"http://rebind.example:{other_site.port}/")
    assert tried == ["93.184.216.34"]
    with pytest.raises(AddressForbidden):
        fetch(f"http://rebind.example:{other_site.port}/")
    assert tried == ["93.184.216.34"]
    assert other_site.asked == []


def test_each_redirect_is_looked_at(site, other_site):
    site.put("/start", "", status=302, Location=f"{other_site.url}/secret")
    other_site.put("/secret", "secret")
    with pytest.raises(AddressForbidden):
        fetch(f"{site.url}/start")
    assert other_site.asked == []


@pytest.mark.parametrize(
    "target",
    ["file:///etc/passwd", "gopher://127.0.0.1/", "http://user:pw@127.0.0.1/"],
)
def test_redirects_lead_to_no_other_kind_of_address(site, target):
    site.put("/start", "", status=302, Location=target)
    with pytest.raises((AddressInvalid, AddressForbidden)):
        fetch(f"{site.url}/start")


def test_redirects_end(site):
    site.put("/loop", "", status=302, Location="/loop")
    with pytest.raises(AddressUnreachable):
        fetch(f"{site.url}/loop")
    assert len(site.asked) == outgoing.MAX_REDIRECTS + 1


def test_an_answer_is_read_up_to_its_bound(site):
    site.put("/large", "x" * 100_001)
    with pytest.raises(AnswerTooLarge):
        fetch(f"{site.url}/large")


def test_an_answer_that_drips_is_given_up(site):
    def drip(handler):
        handler.send_response(200)
        handler.end_headers()
        for _ in range(50):
            handler.wfile.write(b"x")
            handler.wfile.flush()
            time.sleep(0.05)
        return 200, {}, b""

    site.pages["/drip"] = drip
    with pytest.raises(AddressUnreachable):
        fetch(f"{site.url}/drip", seconds=0.3)


def test_headers_that_drip_are_given_up(site):
    gone = threading.Event()

    def drip(handler):
        with contextlib.suppress(OSError):
            handler.wfile.write(b"HTTP/1.1 200 OK\r\nX-Slow: ")
            while not gone.wait(0.05):
                handler.wfile.write(b"x")
                handler.wfile.flush()
        return 200, {}, b""

    site.pages["/drip"] = drip
    try:
        with pytest.raises(AddressUnreachable):
            fetch(f"{site.url}/drip", seconds=0.3)
    finally:
        gone.set()


def test_a_pause_before_a_request_takes_nothing_of_its_time(site):
    site.put("/", "안녕")
    pause = threading.Event()
    answer = fetch(f"{site.url}/", seconds=0.5, before_request=lambda _url: pause.wait(0.6))
    assert answer.body.decode() == "안녕"


def test_the_environment_names_no_proxy(site, other_site, monkeypatch):
    monkeypatch.setenv("HTTP_PROXY", other_site.url)
    site.put("/", "direct")
    assert fetch(f"{site.url}/").body == b"direct"
    assert other_site.asked == []


def test_korean_addresses_are_sent_as_ascii():
    assert split_address("http://한글.kr/문서?q=휴가#top") == (
        "xn--bj0bj06e.kr",
        80,
        "http://xn--bj0bj06e.kr/%EB%AC%B8%EC%84%9C?q=%ED%9C%B4%EA%B0%80",
    )


@pytest.mark.parametrize(
    "address",
    ["", "example.com", "ftp://example.com", "http://", "http://a:b@c/", "http://x:99999/"],
)
def test_what_is_no_address_is_refused(address):
    with pytest.raises(AddressInvalid):
        split_address(address)


def test_what_an_administrator_entered_may_stand_inside_but_not_everywhere(
    other_site, resolver_names
):
    other_site.put("/", "안")
    resolver_names["cloud.example"] = ["169.254.169.254"]
    with OutgoingClient(max_bytes=1000, seconds=5, is_entered=True) as client:
        assert client.fetch(f"{other_site.url}/").body.decode() == "안"
        for host in ("169.254.169.254", "0xa9fea9fe", "[::ffff:169.254.169.254]", "cloud.example"):
            with pytest.raises(AddressForbidden):
                client.fetch(f"http://{host}/latest/meta-data/")


def test_what_an_administrator_entered_is_asked_through_the_proxy(site, other_site, monkeypatch):
    monkeypatch.setenv("http_proxy", other_site.url)
    monkeypatch.delenv("no_proxy", raising=False)
    other_site.pages["http://model.example/v1"] = (200, {}, b"by the proxy")
    with OutgoingClient(max_bytes=1000, seconds=5, is_entered=True) as client:
        assert client.fetch("http://model.example/v1").body == b"by the proxy"
    assert site.asked == []


def test_no_proxy_is_told_to_ask_a_machines_own_surroundings(other_site, monkeypatch):
    monkeypatch.setenv("http_proxy", other_site.url)
    monkeypatch.delenv("no_proxy", raising=False)
    with OutgoingClient(max_bytes=1000, seconds=5, is_entered=True) as client:
        for host in ("169.254.169.254", "0xa9fea9fe", "[::ffff:169.254.169.254]"):
            with pytest.raises(AddressForbidden):
                client.fetch(f"http://{host}/latest/meta-data/")
    assert other_site.asked == []
