"""Answers as sound: what is said of them, and `POST /messages/{id}/speech`."""

import threading
import uuid

import pytest
from django.db import connection
from django.utils import timezone

from chats.models import Message
from chats.services import speech
from chats.services.chats import create_chat
from chats.services.speech import SpeechFailed, split_text, to_speech_text
from documents.errors import explain_code
from tests.chats.conftest import client
from tests.servers.speech import Reply, count_samples, make_wav, remove_length

SENTENCE = "가나다라 마바사."


def make_message(owner, content="휴가는 **15일**입니다 [1].", **fields):
    chat = create_chat(owner=owner, title="휴가")
    kept = {"role": "assistant", "created_at": timezone.now()} | fields
    return Message.objects.create(chat=chat, content=content, **kept)


def say(api, one, **body):
    return api.post(f"/api/v1/messages/{one.pk}/speech", body, format="json")


@pytest.mark.parametrize(
    ("written", "said"),
    [
        ("휴가는 **15일**입니다 [1][2].", "휴가는 15일입니다."),
        ("가 [1, 2], 나", "가, 나."),
        ("# 제목\n\n첫 줄\n둘째 줄\n\n- 하나\n- 둘!", "제목.\n첫 줄 둘째 줄.\n하나.\n둘!"),
        ("`NURA_PORT`를 봅니다.\n\n```sh\nrm -rf /\n```", "NURA_PORT를 봅니다."),
        ("[법령](https://law.go.kr/x?y=1)을 보세요.", "법령을 보세요."),
        ("https://www.law.go.kr/a/b?c 참고", "law.go.kr 참고."),
        ("![도표](x.png) <b>굵게</b>", "도표 굵게."),
        ("<script>alert(1)</script>", ""),
        (
            "| 종류 | 일수 |\n|---|---|\n| 연차 | 15 |\n| 반차 | |",
            "종류: 연차, 일수: 15.\n종류: 반차.",
        ),
        ("***\n\n- \n\n> ", ""),
        ("3 * 4 > 2_000", "3 * 4 > 2_000."),
        ("세율은 **50%**를 넘습니다.", "세율은 50%를 넘습니다."),
    ],
)
def test_an_answer_is_read_as_a_person_reads_it(written, said):
    assert to_speech_text(written) == said


def test_pieces_end_with_sentences_and_lose_nothing():
    text = " ".join([SENTENCE] * 100)
    found = list(split_text(text, 200))
    assert all(len(piece) <= 200 and piece.endswith(".") for piece in found)
    assert " ".join(found) == text


def test_a_text_without_any_end_is_cut_all_the_same():
    assert list(split_text("가" * 25, 10)) == ["가" * 10, "가" * 10, "가" * 5]


def test_an_answer_is_spoken_with_the_configured_voice(api, owner, speech_server):
    response = say(api, make_message(owner))
    assert (response.status_code, response["Content-Type"]) == (200, "audio/wav")
    assert count_samples(response.content) == 10 * len("휴가는 15일입니다.")
    path, headers, body = speech_server.requests[0]
    assert (path, headers["Authorization"]) == ("/v1/audio/speech", "Bearer key-of-the-voice")
    assert body == {
        "model": "tts-1",
        "voice": "alloy",
        "input": "휴가는 15일입니다.",
        "response_format": "wav",
    }


def test_voice_and_format_may_be_wished(api, owner, speech_server):
    response = say(api, make_message(owner), voice="nova", format="mp3")
    assert (response.content, response["Content-Type"]) == (b"ID3", "audio/mpeg")
    body = speech_server.requests[0][2]
    assert (body["voice"], body["response_format"]) == ("nova", "mp3")


def test_a_program_may_ask_for_sound_only(api, owner, speech_server):
    one = make_message(owner)
    response = api.post(f"/api/v1/messages/{one.pk}/speech", HTTP_ACCEPT="audio/wav")
    assert response.status_code == 200


def test_an_unknown_format_is_a_bad_request(api, owner, speech_server):
    assert say(api, make_message(owner), format="exe").status_code == 400
    assert not speech_server.requests


def test_a_long_answer_is_one_sound_of_several_pieces(api, owner, speech_server):
    response = say(api, make_message(owner, " ".join([SENTENCE] * 800)))
    assert len(speech_server.inputs) > 1
    assert max(map(len, speech_server.inputs)) <= speech.MAX_PIECE_CHARACTERS
    assert count_samples(response.content) == 10 * sum(map(len, speech_server.inputs))


def test_pieces_whose_headers_know_no_end_are_joined_by_what_is_in_them(api, owner, speech_server):
    speech_server.replies.extend(Reply(body=remove_length(make_wav(size))) for size in (70, 30))
    response = say(api, make_message(owner, " ".join([SENTENCE] * 500)))
    assert count_samples(response.content) == 100


@pytest.mark.parametrize("second", [make_wav(5, rate=16_000), b"ID3", b"RIFF"])
def test_pieces_that_do_not_fit_together_are_no_sound(api, owner, speech_server, second):
    speech_server.replies.extend([Reply(body=make_wav(5)), Reply(body=second)])
    response = say(api, make_message(owner, " ".join([SENTENCE] * 500)))
    assert (response.status_code, response.json()["code"]) == (502, "speech_failed")


@pytest.mark.parametrize(("form", "sentences"), [("wav", 1200), ("mp3", 500)])
def test_what_is_too_long_is_not_begun(api, owner, speech_server, form, sentences):
    response = say(api, make_message(owner, " ".join([SENTENCE] * sentences)), format=form)
    assert (response.status_code, response.json()["code"]) == (422, "speech_too_long")
    assert not speech_server.requests


def test_without_an_endpoint_nothing_here_can_speak(api, owner, settings):
    settings.TTS_BASE_URL = ""
    response = say(api, make_message(owner))
    assert (response.status_code, response.json()["code"]) == (501, "speech_not_configured")
    assert response.json()["detail"] == explain_code("speech_not_configured")


def test_another_users_answer_is_not_there(owner, stranger, speech_server):
    one = make_message(owner)
    response = say(client(stranger), one)
    unknown = client(stranger).post(f"/api/v1/messages/{uuid.uuid4()}/speech")
    assert (response.status_code, response.content) == (404, unknown.content)
    assert not speech_server.requests


@pytest.mark.parametrize(
    ("fields", "status", "code"),
    [
        ({"role": "user"}, 400, "nothing_to_say"),
        ({"content": ""}, 400, "nothing_to_say"),
        ({"content": "```\ncode\n```"}, 400, "nothing_to_say"),
        ({"status": "STREAMING"}, 409, "still_answering"),
    ],
)
def test_what_is_no_written_answer_is_not_spoken(api, owner, speech_server, fields, status, code):
    response = say(api, make_message(owner, **fields))
    assert (response.status_code, response.json()["code"]) == (status, code)
    assert not speech_server.requests


@pytest.mark.parametrize(
    "reply",
    [
        Reply(401, b'{"error": "wrong key key-of-the-voice"}'),
        Reply(500, b"key-of-the-voice"),
        Reply(200, b"<script>", {"Content-Type": "text/html"}),
        Reply(200, b'{"error": "no"}', {"Content-Type": "application/json"}),
        Reply(200, b""),
    ],
)
def test_whatever_is_no_sound_is_a_failure_without_its_words(api, owner, speech_server, reply):
    speech_server.replies.append(reply)
    response = say(api, make_message(owner))
    assert (response.status_code, response.json()["code"]) == (502, "speech_failed")
    assert response["Content-Type"] == "application/problem+json"
    assert "key-of" not in response.content.decode()


def test_a_redirect_is_not_followed(api, owner, speech_server):
    elsewhere = {"Location": f"{speech_server.url}/elsewhere"}
    for status in (302, 307):
        speech_server.replies.append(Reply(status, b"", elsewhere))
        assert say(api, make_message(owner)).json()["code"] == "speech_failed"
    assert [path for path, _, _ in speech_server.requests] == ["/v1/audio/speech"] * 2


def test_an_endpoint_that_is_away_is_a_failure(api, owner, settings):
    settings.TTS_BASE_URL, settings.TTS_MODEL = "http://127.0.0.1:9/v1", "tts-1"
    assert say(api, make_message(owner)).json()["code"] == "speech_failed"


def test_an_endpoint_that_falls_silent_is_given_up(api, owner, speech_server, monkeypatch):
    monkeypatch.setattr(speech, "SPEECH_SECONDS", 0.3)
    hold = threading.Event()
    speech_server.replies.append(Reply(body=make_wav(100), hold=hold))
    response = say(api, make_message(owner))
    hold.set()
    assert response.json()["code"] == "speech_failed"


def test_a_sound_without_end_is_given_up(api, owner, speech_server, monkeypatch):
    monkeypatch.setattr(speech, "MAX_SOUND_BYTES", 1000)
    speech_server.replies.append(Reply(body=make_wav(1000)))
    assert say(api, make_message(owner)).json()["code"] == "speech_failed"


def test_the_machines_own_surroundings_are_not_asked_to_speak(api, owner, settings, monkeypatch):
    settings.TTS_BASE_URL, settings.TTS_MODEL = "http://169.254.169.254/v1", "tts"
    assert say(api, make_message(owner)).json()["code"] == "speech_failed"
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    with pytest.raises(SpeechFailed, match="inside"):
        speech.request_speech("휴가")


def test_no_connection_is_held_while_the_endpoint_speaks(api, owner, speech_server, monkeypatch):
    one, held = make_message(owner), []
    reply = speech.request_speech

    def sound(*arguments, **options):
        held.append(connection.connection)
        return reply(*arguments, **options)

    monkeypatch.setattr(speech, "request_speech", sound)
    assert say(api, one).status_code == 200
    assert held == [None]
