import json
import re
import shutil
import subprocess
from datetime import timedelta

import pytest
from django.contrib.auth.models import User
from django.utils import timezone

from documents.models import Document
from nura import health, metrics
from nura.accounts import services
from tests.support import ROOT

pytestmark = pytest.mark.django_db


@pytest.fixture
def staff():
    return User.objects.create_user("operator", is_staff=True)


def test_a_stranger_gets_404(client):
    assert client.get("/metrics").status_code == 404


def test_a_user_without_rights_gets_404(client):
    client.force_login(User.objects.create_user("reader"))
    assert client.get("/metrics").status_code == 404


def test_a_wrong_key_gets_404(client):
    response = client.get("/metrics", headers={"Authorization": "Token nonsense"})
    assert response.status_code == 404


def test_staff_sees_requests_by_route_and_answers_by_status(client, staff):
    client.force_login(staff)
    client.get("/healthz")
    text = client.get("/metrics").content.decode()
    assert 'nura_http_requests_total{method="GET",route="healthz",status="200"}' in text
    assert "nura_http_request_seconds_bucket" in text
    assert "# TYPE nura_documents gauge" in text
    assert "# TYPE nura_answers gauge" in text
    assert "nura_open_sockets" in text


def test_the_jobs_that_wait_are_counted_with_the_age_of_the_oldest(client, staff):
    for name, status in (("하나.md", "PROCESSING"), ("둘.md", "COMPLETED")):
        Document.objects.create(owner=staff, name=name, size=1, sha256="0", status=status)
    hour = timezone.now() - timedelta(hours=1)
    Document.objects.filter(name="하나.md").update(created_at=hour)
    client.force_login(staff)
    text = client.get("/metrics").content.decode()
    assert 'nura_jobs_waiting{kind="documents"} 1.0' in text
    assert 'nura_jobs_running{kind="documents"} 0.0' in text
    assert 3600 <= float(re.search(r'oldest_seconds{kind="documents"} (\S+)', text)[1]) < 3700
    assert 'nura_job_oldest_seconds{kind="answers"} 0.0' in text


def test_the_processes_of_all_nodes_are_counted(client, staff):
    key, now = health.make_heartbeat_key("answers"), health.read_clock()
    health.get_client().delete(key)
    health.get_client().zadd(key, {"here:1 1": now + 9, "there:1 1": now + 9, "gone:1 1": now - 1})
    client.force_login(staff)
    try:
        assert 'nura_processes{kind="answers"} 2.0' in client.get("/metrics").content.decode()
    finally:
        health.get_client().delete(key)


def test_a_key_of_staff_opens_it_too(client, staff):
    key = services.create_key(user=staff)
    response = client.get("/metrics", headers={"Authorization": f"Token {key}"})
    assert response.status_code == 200


def test_routes_hold_no_ids(client, staff):
    client.force_login(staff)
    client.get("/c/5c0bd1b1-7e3a-4f6e-9d0a-000000000000")
    assert "5c0bd1b1" not in client.get("/metrics").content.decode()


async def test_open_sockets_are_counted_while_they_are_open():
    seen = []

    async def socket(scope, receive, send):
        seen.append(metrics.SOCKETS._value.get())

    before = metrics.SOCKETS._value.get()
    await metrics.CountedSockets(socket)({}, None, None)
    assert seen == [before + 1]
    assert metrics.SOCKETS._value.get() == before


MONITORING = ROOT / "deploy" / "monitoring"
PROMTOOL = shutil.which("promtool")


def test_the_dashboard_and_the_alerts_ask_for_metrics_that_there_are(client, staff):
    client.force_login(staff)
    client.get("/healthz")
    given = set(re.findall(r"^# TYPE (\S+)", client.get("/metrics").content.decode(), re.MULTILINE))
    panels = json.loads((MONITORING / "grafana.json").read_text(encoding="utf-8"))["panels"]
    asked = [target["expr"] for panel in panels for target in panel["targets"]]
    asked.append((MONITORING / "alerts.yml").read_text(encoding="utf-8"))
    names = set(re.findall(r"\bnura_(?!replica_)\w+", " ".join(asked)))
    assert len(names) > 10
    assert {re.sub(r"_bucket$", "", name) for name in names} <= given


@pytest.mark.skipif(PROMTOOL is None, reason="promtool is not installed: package prometheus")
@pytest.mark.parametrize(
    "command", [["check", "rules", "alerts.yml"], ["test", "rules", "alerts-test.yml"]]
)
def test_the_alerts_are_raised_when_they_should(command):
    said = subprocess.run(
        [PROMTOOL, *command], cwd=MONITORING, capture_output=True, text=True, check=False
    )
    assert said.returncode == 0, said.stdout + said.stderr
