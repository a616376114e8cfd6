"""Answers spoken on this machine."""

from pathlib import Path

import pytest

from chats.management.commands import ask
from chats.services import speech
from tests.servers.speech import Reply


def test_an_endpoint_speaks_and_a_player_plays(program, speech_server):
    folder = program("aplay")
    assert ask.speak_answer("**안녕하세요** [1].") == ""
    assert speech_server.inputs == ["안녕하세요."]
    assert (folder / "called").read_text().startswith("-q ")


def test_a_long_answer_is_spoken_in_pieces(program, speech_server):
    program("aplay")
    ask.speak_answer("가나다라 마바사. " * 800)
    assert max(map(len, speech_server.inputs)) <= speech.MAX_PIECE_CHARACTERS
    assert " ".join(speech_server.inputs) == " ".join(["가나다라 마바사."] * 800)


def test_a_sound_that_nothing_can_play_is_kept(program, speech_server):
    program("something-else")
    speech_server.replies.append(Reply(body=b"RIFF"))
    kept = Path(ask.speak_answer("안녕"))
    assert kept.read_bytes() == b"RIFF"
    kept.unlink()


def test_an_endpoint_that_is_away_cannot_speak(program, settings):
    settings.TTS_BASE_URL, settings.TTS_MODEL = "http://127.0.0.1:9/v1", "tts-1"
    with pytest.raises(ask.SpeechUnavailable):
        ask.speak_answer("안녕")
