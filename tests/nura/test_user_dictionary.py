"""The setting of the user dictionary: right at the start, or no start."""

from dataclasses import replace

import pytest
from django.core.exceptions import ImproperlyConfigured

from nura.management.commands import doctor
from nura.management.commands.doctor import State
from nura.settings import rag


@pytest.fixture
def named(tmp_path, monkeypatch):
    """Puts a dictionary with this content into the environment; its path."""

    def write(content: bytes):
        path = tmp_path / "words.txt"
        path.write_bytes(content)
        monkeypatch.setenv("NURA_USER_DICTIONARY", str(path))
        return path

    return write


def test_without_the_setting_there_is_no_dictionary(monkeypatch):
    monkeypatch.delenv("NURA_USER_DICTIONARY", raising=False)
    assert not rag.build_rag_config().user_dictionary


def test_the_configuration_holds_the_path_of_the_dictionary(named):
    path = named("세출예산서\tNNP\t0\n".encode())
    assert rag.build_rag_config().user_dictionary == str(path)


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        ("# 주석\n\n나라장터 NNP\n".encode(), "line 3: expected word<TAB>tag<TAB>score"),
        ("나라장터\tNNP\n세출\tNOUN\t0\n".encode(), "line 2: 'NOUN' is no tag"),
        ("나라장터\tNNP\thigh\n".encode(), "line 1: the score 'high' is no number"),
        (b"a\tNNP\n\xff\xfe\tNNP\n", "line 2: not UTF-8"),
    ],
    ids=["no-tabs", "tag", "score", "encoding"],
)
def test_a_wrong_line_stops_the_start_and_is_named(named, content, complaint):
    path = named(content)
    with pytest.raises(ImproperlyConfigured) as error:
        rag.build_rag_config()
    assert f"NURA_USER_DICTIONARY: {path}, {complaint}" in str(error.value)


def test_a_missing_file_stops_the_start_and_is_named(monkeypatch):
    monkeypatch.setenv("NURA_USER_DICTIONARY", "/nowhere/words.txt")
    with pytest.raises(ImproperlyConfigured, match=r"NURA_USER_DICTIONARY: /nowhere/words\.txt"):
        rag.build_rag_config()


def test_the_doctor_counts_the_words(named, settings):
    path = named("세출예산서\tNNP\t0\n전자 조달\tNNG\n".encode())
    settings.RAG = replace(settings.RAG, user_dictionary=str(path))
    finding = doctor.check_morphemes()
    assert finding.state is State.OK
    assert "2 words" in finding.detail


def test_the_doctor_names_the_wrong_line(named, settings):
    path = named(b"word\n")
    settings.RAG = replace(settings.RAG, user_dictionary=str(path))
    finding = doctor.check_morphemes()
    assert finding.state is State.FAIL
    assert f"{path}, line 1" in finding.detail
