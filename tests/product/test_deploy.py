"""What stands in deploy/: nginx and Caddy in front of web processes, units read by systemd."""

import contextlib
import datetime as dt
import http.client
import os
import shutil
import ssl
import subprocess
import sys
import threading
import time
from urllib.parse import urlsplit

import psycopg
import pytest
import yaml
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from tests.product.client import Client
from tests.product.sockets import Socket, join_deltas
from tests.product.test_outages import WORDS, list_chats, reach_again
from tests.servers.llm import Stream
from tests.support import ROOT, Product, free_port, wait_until

DEPLOY = ROOT / "deploy"
NGINX = shutil.which("nginx") or shutil.which("nginx", path="/usr/sbin:/usr/local/sbin")
CADDY = shutil.which("caddy")
SYSTEMD = shutil.which("systemd-analyze")

pytestmark = [
    pytest.mark.product,
    pytest.mark.timeout(300),
]

MAIN = """
daemon off;
worker_processes 1;
pid {folder}/nginx.pid;
error_log {folder}/error.log;
events {{ }}
http {{
    access_log off;
    {temporary}
    include {folder}/nura.conf;
}}
"""


def make_certificate(folder):
    """A key and the certificate that it has signed itself, for localhost."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "localhost")])
    now = dt.datetime.now(dt.UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - dt.timedelta(days=1))
        .not_valid_after(now + dt.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName("localhost")]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    pem = serialization.Encoding.PEM
    (folder / "fullchain.pem").write_bytes(certificate.public_bytes(pem))
    (folder / "privkey.pem").write_bytes(
        key.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    )


NODE = """\
    server 127.0.0.1:8000 fail_timeout=1s;
    server 127.0.0.1:8000 max_fails=0 backup;
"""


@contextlib.contextmanager
def run_nginx(folder, *, plain, tls, nodes, location="/"):
    """Run nginx with the file of deploy/, whose names, ports and nodes alone are others."""
    text = (DEPLOY / "nginx" / "nura.conf").read_text(encoding="utf-8")
    for shipped, ours in (
        ("nura.example.com", "localhost"),
        ("/etc/ssl/nura", str(folder)),
        ("    listen [::]:80;\n", ""),
        ("    listen [::]:443 ssl http2;\n", ""),
        ("listen 80;", f"listen 127.0.0.1:{plain};"),
        ("listen 443 ", f"listen 127.0.0.1:{tls} "),
        (NODE, "".join(NODE.replace("8000", str(port)) for port in nodes)),
        ("location / {", f"location {location} {{"),
        ("location /static/ {", f"location {location}static/ {{"),
    ):
        assert shipped in text, shipped
        text = text.replace(shipped, ours)
    (folder / "nura.conf").write_text(text, encoding="utf-8")
    kinds = ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    temporary = "".join(f"{kind}_temp_path {folder}/{kind};" for kind in kinds)
    (folder / "nginx.conf").write_text(MAIN.format(folder=folder, temporary=temporary))
    command = [NGINX, "-e", folder / "error.log", "-c", folder / "nginx.conf"]
    subprocess.run([*command, "-t"], check=True, capture_output=True)
    process = subprocess.Popen(command)
    try:
        wait_until(lambda: fetch(f"https://localhost:{tls}", f"{location}healthz")[0] == 200, 20)
        yield
    finally:
        process.terminate()
        process.wait(10)


@contextlib.contextmanager
def run_web_process(product, **environment):
    """One more web process of the product; its port."""
    port = free_port()
    process = subprocess.Popen(
        [sys.executable, "-m", "nura.web"],
        cwd=ROOT,
        env=product.environment() | {"NURA_PORT": str(port)} | environment,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        yield port
    finally:
        process.terminate()
        process.wait(20)


def fetch(url, path, method="GET", **headers):
    """(status, headers, body) of one request; status 0 where nobody answers."""
    place = urlsplit(url)
    speak = {"http": http.client.HTTPConnection, "https": http.client.HTTPSConnection}
    connection = speak[place.scheme](place.netloc, timeout=20)
    try:
        connection.request(
            method, path, headers={name.replace("_", "-"): one for name, one in headers.items()}
        )
        answer = connection.getresponse()
        return answer.status, answer.headers, answer.read()
    except (OSError, http.client.HTTPException):
        return 0, {}, b""
    finally:
        connection.close()


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """nginx's own, with a certificate that this process trusts."""
    place = tmp_path_factory.mktemp("nginx")
    make_certificate(place)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SSL_CERT_FILE", str(place / "fullchain.pem"))
        assert ssl.create_default_context().cert_store_stats()["x509_ca"] == 1
        yield place


@pytest.fixture(scope="module")
def site(model, folder, small_models, tmp_path_factory):
    """The product behind nginx with a second web process: (product, addresses by TLS and plain)."""
    if NGINX is None:
        pytest.skip("nginx is not installed")
    plain, tls = free_port(), free_port()
    environment = small_models | {
        "NURA_LLM_BASE_URL": model.url,
        "NURA_LLM_MODEL": "stand-in",
        "NURA_LLM_MAX_TOKENS": "20000",
        "NURA_HTTPS": "yes",
        "NURA_TRUSTED_PROXIES": "1",
        "CSRF_TRUSTED_ORIGINS": f"https://localhost:{tls}",
    }
    with (
        Product(tmp_path_factory.mktemp("site") / "var", **environment) as product,
        run_web_process(product) as other,
        run_nginx(folder, plain=plain, tls=tls, nodes=(product.port, other)),
    ):
        wait_until(lambda: fetch(f"http://127.0.0.1:{other}", "/readyz")[0] == 200, 60)
        yield product, f"https://localhost:{tls}", f"http://localhost:{plain}"


@pytest.fixture(scope="module")
def key(site):
    product, _, _ = site
    return product.add_user("visitor")


@pytest.fixture
def visitor(site, key, model):
    model.reset()
    _, url, _ = site
    return Client(url, key)


def test_a_browser_is_sent_to_tls_and_told_to_stay_there(site):
    _, url, plain = site
    status, headers, _ = fetch(plain, "/library?x=1")
    assert (status, headers["Location"]) == (301, "https://localhost/library?x=1")
    status, headers, _ = fetch(url, "/accounts/login/")
    assert status == 200
    assert "max-age=31536000" in headers["Strict-Transport-Security"]
    assert "; Secure" in headers["Set-Cookie"]


def test_an_address_that_the_visitor_makes_up_is_not_believed(site, key):
    product, url, _ = site
    status, headers, _ = fetch(
        url,
        "/api/v1/me",
        Authorization=f"Token {key}",
        X_Forwarded_For="203.0.113.7",
        X_Forwarded_Proto="http",
    )
    assert status == 200
    wait_until(lambda: headers["X-Request-ID"] in product.log or "203.0.113.7" in product.log, 5)
    assert "203.0.113.7" not in product.log


def test_words_of_an_answer_are_passed_on_as_they_come(site, visitor, model):
    _, url, _ = site
    seen = threading.Event()
    model.default = Stream(WORDS[:60], delay=0.05, hold=seen)
    with Socket(url, visitor.token) as socket:
        turn = visitor.ask("길게 이야기해 줘")
        socket.say("resume", run_id=turn["run_id"])
        listener = visitor.follow(turn)
        wait_until(lambda: listener.text and socket.run(turn["run_id"]), 20)
        assert visitor.message(turn)["status"] == "STREAMING"
        seen.set()
        heard = socket.wait_for_end(turn["run_id"])
    wait_until(lambda: listener.ended, 20)
    moments = [event["at"] for event in heard if event["type"] == "delta"]
    assert moments[-1] - moments[0] > 1
    assert join_deltas(heard) == listener.text == "".join(WORDS[:60])


def test_a_file_of_some_megabytes_passes_and_one_above_the_limit_is_refused_unread(site, visitor):
    _, url, _ = site
    document = visitor.upload("long.txt", "긴 글입니다. ".encode() * 200_000)
    assert document["size"] > 3_000_000
    begun = time.monotonic()
    status, _, _ = fetch(
        url,
        "/api/v1/documents",
        "POST",
        Authorization=f"Token {visitor.token}",
        Content_Type="multipart/form-data; boundary=x",
        Content_Length=str(300_000_000),
    )
    assert status == 413
    assert time.monotonic() - begun < 5


def test_heads_that_grow_without_end_are_refused(site):
    _, url, _ = site
    headers = {f"X_{number}": "x" * 7000 for number in range(12)}
    assert fetch(url, "/healthz", **headers)[0] in {400, 431, 494}
    assert fetch(url, "/healthz")[0] == 200


def test_a_web_process_that_dies_costs_no_request_and_no_word(site, visitor, model):
    product, _, _ = site
    model.default = Stream(WORDS[:150], delay=0.03)
    turn = visitor.ask("길게 이야기해 줘")
    listener = visitor.follow(turn)
    wait_until(lambda: len(listener.text) > 100)
    victim = product.find_process("web")
    codes = []
    over = threading.Event()

    def look():
        while not over.is_set():
            codes.append(list_chats(visitor))

    looking = threading.Thread(target=look)
    looking.start()
    try:
        wait_until(lambda: len(codes) > 5)
        victim.kill()
        reach_again(product, "web", victim.pid)
        wait_until(lambda: product.status("/readyz") == 200, 30)
    finally:
        over.set()
        looking.join()
    # The one that it was answering may be lost: whether it had an effect, nobody knows.
    assert sum(code != 200 for code in codes) <= 1, codes
    wait_until(lambda: listener.ended, 30)
    assert listener.text == visitor.message(turn)["content"] == "".join(WORDS[:150])


def test_c86_behind_a_proxy_lists_are_answered_within_two_seconds_of_postgres_being_back(
    site, visitor
):
    product, _, _ = site
    assert {list_chats(visitor) for _ in range(20)} == {200}
    victim = product.find_process("postgres")
    victim.kill()
    reach_again(product, "postgres", victim.pid)
    place = product.database
    wait_until(lambda: is_open(place), 30, step=0.02)
    back = time.monotonic()
    wait_until(lambda: [list_chats(visitor) for _ in range(4)] == [200] * 4, 30, step=0.02)
    assert time.monotonic() - back < 2


def test_behind_a_proxy_streams_go_on_within_three_seconds_of_redis_being_back(
    site, visitor, model
):
    product, _, _ = site
    model.default = Stream(WORDS, delay=0.05)
    turn = visitor.ask("길게 이야기해 줘")
    listeners = [visitor.follow(turn) for _ in range(4)]  # the two web processes take turns
    wait_until(lambda: all(len(one.text) > 100 for one in listeners))
    victim = product.find_process("redis")
    victim.kill()
    reach_again(product, "redis", victim.pid)
    back = time.monotonic()
    heard = [len(one.text) for one in listeners]
    wait_until(
        lambda: all(len(one.text) > old + 200 for one, old in zip(listeners, heard, strict=True)),
        30,
        step=0.02,
    )
    assert time.monotonic() - back < 3
    visitor.call("POST", f"/runs/{turn['run_id']}/stop")
    wait_until(lambda: all(one.ended for one in listeners), 30)


def test_below_a_path_pages_the_api_and_sockets_are_found(site, key, folder, model):
    product, _, _ = site
    model.reset()
    plain, tls = free_port(), free_port()
    (folder / "path").mkdir()
    for name in ("fullchain.pem", "privkey.pem"):
        shutil.copy(folder / name, folder / "path" / name)
    with (
        run_web_process(
            product,
            NURA_URL_PREFIX="/nura",
            CSRF_TRUSTED_ORIGINS=f"https://localhost:{tls}",
        ) as port,
        run_nginx(folder / "path", plain=plain, tls=tls, nodes=(port,), location="/nura/"),
    ):
        url = f"https://localhost:{tls}"
        status, headers, _ = fetch(url, "/nura/")
        assert status == 302
        assert headers["Location"].startswith("/nura/accounts/login/")
        status, _, page = fetch(url, "/nura/accounts/login/")
        assert status == 200
        assert b'"/nura/static/' in page
        assert fetch(url, "/accounts/login/")[0] == 404
        visitor = Client(f"{url}/nura", key)
        with Socket(visitor.url, key) as socket:
            turn = visitor.ask("안녕하세요")
            socket.say("resume", run_id=turn["run_id"])
            heard = socket.wait_for_end(turn["run_id"])
        assert join_deltas(heard) == visitor.message(turn)["content"]


@pytest.mark.skipif(CADDY is None, reason="Caddy is not installed")
def test_caddy_passes_pages_and_words_on(site, visitor, folder, model):
    product, _, _ = site
    port = free_port()
    text = (DEPLOY / "caddy" / "Caddyfile").read_text(encoding="utf-8")
    for shipped, ours in (
        ("\tservers {", "\tadmin off\n\tauto_https disable_redirects\n\tservers {"),
        (
            "nura.example.com {",
            f"https://localhost:{port} {{\n\ttls {folder}/fullchain.pem {folder}/privkey.pem",
        ),
        ("127.0.0.1:8000", f"127.0.0.1:{product.port}"),
    ):
        assert shipped in text, shipped
        text = text.replace(shipped, ours)
    (folder / "Caddyfile").write_text(text, encoding="utf-8")
    environment = {"HOME": str(folder), "PATH": os.defpath}
    command = [CADDY, "run", "--adapter", "caddyfile", "--config", folder / "Caddyfile"]
    with (folder / "caddy.log").open("wb") as log:
        process = subprocess.Popen(command, env=environment, stdout=log, stderr=log)
    url = f"https://localhost:{port}"
    try:
        wait_until(lambda: fetch(url, "/healthz")[0] == 200, 20)
        status, headers, _ = fetch(url, "/accounts/login/")
        assert status == 200
        assert "; Secure" in headers["Set-Cookie"]
        client = Client(url, visitor.token)
        model.default = Stream(WORDS[:40], delay=0.05)
        with Socket(url, client.token) as socket:
            turn = client.ask("길게 이야기해 줘")
            socket.say("resume", run_id=turn["run_id"])
            heard = socket.wait_for_end(turn["run_id"])
        moments = [event["at"] for event in heard if event["type"] == "delta"]
        assert moments[-1] - moments[0] > 0.5
        assert join_deltas(heard) == "".join(WORDS[:40])
    finally:
        process.terminate()
        process.wait(10)


def test_a_container_is_healthy_while_its_process_tells_of_itself(site):
    product, _, _ = site

    def check(*kind):
        command = [sys.executable, DEPLOY / "docker" / "healthcheck.py", *kind]
        own = {"REDIS_URL": product.redis_url, "NURA_PORT": str(product.port)}
        environment = product.environment() | own
        return subprocess.run(command, env=environment, capture_output=True, check=False).returncode

    assert [check(), check("answers"), check("documents"), check("beat")] == [0] * 4
    assert check("nothing") == 1


def test_each_container_has_limits_and_time_to_stop():
    text = (DEPLOY / "docker" / "compose.yaml").read_text(encoding="utf-8")
    services = yaml.safe_load(text)["services"]
    del services["migrate"]
    assert all(one["deploy"]["resources"]["limits"]["memory"] for one in services.values())
    ours = [one for one in services.values() if one["image"] == "nura"]
    assert len(ours) == 5
    assert all(one["stop_grace_period"] == "30s" and one["pids_limit"] for one in ours)


@pytest.mark.skipif(SYSTEMD is None, reason="systemd is not installed")
def test_systemd_understands_each_unit(tmp_path):
    for path in (DEPLOY / "systemd").iterdir():
        text = path.read_text(encoding="utf-8").replace("/opt/nura", str(ROOT))
        (tmp_path / path.name).write_text(text, encoding="utf-8")
        done = subprocess.run(
            [SYSTEMD, "verify", "--recursive-errors=no", f"./{path.name}"],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            check=False,
        )
        assert (done.returncode, done.stdout + done.stderr) == (0, ""), path.name


def is_open(place):
    """Whether the database takes connections."""
    try:
        psycopg.connect(**place, connect_timeout=2).close()
    except psycopg.OperationalError:
        return False
    return True
