import pytest
from django.contrib.auth.models import User

from nura import metrics
from nura.accounts import services

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
