"""Chat completions with OpenAI's own client, whole and streamed."""

import pytest

pytestmark = pytest.mark.django_db(transaction=True)

ASKED = [{"role": "user", "content": "숙박비 상한은 얼마인가요?"}]


def test_a_question_is_answered_from_the_documents(client, travel, answers_worker):
    reply = client.chat.completions.create(model="nura", messages=ASKED)
    assert "90,000원" in reply.choices[0].message.content
    assert reply.choices[0].finish_reason == "stop"
    assert reply.model == "nura"
    assert reply.sources[0]["document_id"] == str(travel.pk)


def test_a_stream_holds_the_same_in_pieces(client, travel, answers_worker):
    chunks = list(client.chat.completions.create(model="nura", messages=ASKED, stream=True))
    assert len({(chunk.id, chunk.created, chunk.model) for chunk in chunks}) == 1
    assert {chunk.object for chunk in chunks} == {"chat.completion.chunk"}
    assert chunks[0].choices[0].delta.role == "assistant"
    text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks)
    assert "90,000원" in text
    assert [chunk.choices[0].finish_reason for chunk in chunks][-1] == "stop"
    assert chunks[-1].sources[0]["document_id"] == str(travel.pk)
