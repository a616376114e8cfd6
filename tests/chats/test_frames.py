"""Events as clients get them: the public envelope, as server-sent events plain and packed."""

import http.client
import json
import uuid
import zlib

import pytest
from knox.models import AuthToken

from chats.runs import log, reader
from chats.runs.log import RunEvent
from chats.serializers import to_frame
from chats.services.turns import open_turn
from tests.servers import asgi

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def run(owner):
    """A run whose log holds an answer of many words."""
    turn = open_turn(user=owner, content="질문")
    words = [RunEvent(seq, "delta", {"text": f'낱말 "{seq}" '}) for seq in range(2, 402)]
    log.append_events(turn.run.pk, [*words, RunEvent(402, "run.completed", {"message": {}})])
    return turn.run


def test_a_frame_is_the_envelope_around_the_data():
    chat_id, run_id = uuid.uuid4(), uuid.uuid4()
    event = RunEvent(7, "delta", {"text": '"가"\n\\ \u2028 😀'})
    ids = {"chat_id": str(chat_id), "run_id": str(run_id), "seq": 7}
    made = reader.Framer(chat_id, run_id).to_frame(event)
    assert json.loads(made) == to_frame("delta", event.data, **ids)


async def test_each_packed_part_can_be_read_as_soon_as_it_is_there():
    async def parts():
        for number in range(50):
            yield f"data: {number}\n\n".encode()

    unpack = zlib.decompressobj(wbits=31)
    read = [unpack.decompress(part).decode() async for part in reader.compress_stream(parts())]
    assert read == [*(f"data: {number}\n\n" for number in range(50)), ""]
    assert unpack.eof


def fetch(owner, run, **headers):
    """Headers and body of the events, over a real server."""
    key = AuthToken.objects.create(owner)[1]
    with asgi.run_server() as web:
        connection = http.client.HTTPConnection("127.0.0.1", web.port, timeout=20)
        headers = {"Authorization": f"Token {key}", "Accept": "text/event-stream", **headers}
        connection.request("GET", f"/api/v1/runs/{run.pk}/events", headers=headers)
        response = connection.getresponse()
        body = response.read()
        connection.close()
    assert response.status == 200
    return response.headers, body


def test_who_takes_gzip_gets_the_same_events_in_few_bytes(owner, run):
    plain_headers, plain = fetch(owner, run)
    headers, packed = fetch(owner, run, **{"Accept-Encoding": "gzip, deflate"})
    assert plain_headers["Content-Encoding"] is None
    assert headers["Content-Encoding"] == "gzip"
    assert "Accept-Encoding" in plain_headers["Vary"]
    assert zlib.decompress(packed, wbits=31) == plain
    assert len(packed) < len(plain) / 4
