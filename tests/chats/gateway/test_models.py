"""The models of a key's owner, by every form of their names."""

from itertools import product

import openai
import pytest
from django.contrib.auth.models import Group

from chats.gateway import catalogue
from chats.models import Assistant, Category, Chat
from chats.services.chats import create_chat, delete_chat
from documents.connected.choice import announce_choices
from documents.connected.models import ConnectedModel, Connection
from tests.chats.conftest import make_document
from tests.chats.gateway.wire import connect_program, make_body

pytestmark = pytest.mark.django_db(transaction=True)


def list_ids(client):
    return [one.id for one in client.models.list().data]


@pytest.fixture
def category(owner):
    return Category.objects.create(owner=owner, name="규정")


def test_everything_is_a_model_without_any_document(client):
    found = client.models.list().data
    assert [(one.id, one.object, one.owned_by) for one in found] == [("nura", "model", "nura")]


def test_the_documents_that_can_be_searched_are_models_the_newest_first(client, owner):
    first, second = make_document(owner, "가.md"), make_document(owner, "나.md")
    make_document(owner, status="PROCESSING")
    make_document(owner, status="FAILED")
    assert list_ids(client) == ["nura", f"nura/{second.pk}", f"nura/{first.pk}"]
    assert client.models.list().data[1].name == "나.md"


def test_a_category_is_the_documents_of_its_chats(client, owner, category):
    document, other = make_document(owner), make_document(owner)
    gone = make_document(owner)
    create_chat(owner=owner, title="", document_ids=[document.pk], category_id=category.pk)
    create_chat(owner=owner, title="", document_ids=[other.pk])
    deleted = create_chat(owner=owner, title="", document_ids=[gone.pk], category_id=category.pk)
    delete_chat(chat=deleted)
    assert f"nura/{category.pk}" in list_ids(client)
    assert catalogue.find_model(owner, f"nura/{category.pk}").scope.document_ids == (document.pk,)


def test_a_category_without_documents_is_no_model(client, owner, category):
    create_chat(owner=owner, title="", category_id=category.pk)
    assert list_ids(client) == ["nura"]
    with pytest.raises(openai.NotFoundError):
        client.models.retrieve(f"nura/{category.pk}")


def test_a_long_list_is_cut_and_says_so(client, owner, monkeypatch):
    monkeypatch.setattr(catalogue, "MAX_LISTED_DOCUMENTS", 2)
    documents = [make_document(owner) for _ in range(3)]
    page = client.models.list()
    assert [one.id for one in page.data[1:]] == [f"nura/{one.pk}" for one in documents[:0:-1]]
    assert page.has_more is True
    assert client.models.retrieve(f"nura/{documents[0].pk}").id == f"nura/{documents[0].pk}"


def test_a_model_is_found_by_its_id(client, owner):
    document = make_document(owner)
    for name in ("nura", f"nura/{document.pk}"):
        assert client.models.retrieve(name).id == name


def test_the_answer_comes_from_the_model_asked_alone(client, travel, leave, answers_worker):
    asked = [{"role": "user", "content": "정산은 언제까지 하나요?"}]
    for document in (travel, leave):
        reply = client.chat.completions.create(model=f"nura/{document.pk}", messages=asked)
        assert {one["document_id"] for one in reply.sources} == {str(document.pk)}


FORMS = {
    "name": "nura/{pk}",
    "raw": "{pk}",
    "other prefix": "openai/{pk}",
    "capital prefix": "NURA/{pk}",
    "capitals": "nura/{upper}",
    "hex": "nura/{hex}",
    "urn": "nura/urn:uuid:{pk}",
    "braces": "nura/{{{pk}}}",
    "twice": "nura/nura/{pk}",
    "path": "nura/../{pk}",
    "slash": "nura//{pk}",
    "behind": "nura/{pk}/",
    "blank": " nura/{pk}",
    "nul": "nura/{pk}\0",
    "like": "nura/%",
    "two": "nura/{pk},{pk}",
}
UNKNOWN = "00000000-0000-4000-8000-000000000000"


def format_name(form, pk):
    return form.format(pk=pk, upper=str(pk).upper(), hex=str(pk).replace("-", ""))


@pytest.mark.parametrize("thing", ["document", "category", "chat"])
def test_no_form_of_a_name_reaches_what_a_stranger_has(web, key, stranger, thing):
    document = make_document(stranger)
    group = Category.objects.create(owner=stranger, name="geheim")
    chat = create_chat(owner=stranger, title="", document_ids=[document.pk], category_id=group.pk)
    pk = {"document": document.pk, "category": group.pk, "chat": chat.pk}[thing]
    with connect_program(web, key) as http:
        for form, path in product(FORMS.values(), ("/chat/completions", "/embeddings")):
            answers = [
                http.post(
                    path, json={**make_body("안녕"), "input": "x", "model": format_name(form, one)}
                )
                for one in (pk, UNKNOWN)
            ]
            assert [answer.status_code for answer in answers] == [404, 404]
            assert answers[0].text == answers[1].text
            error = answers[0].json()["error"]
            assert (error["code"], error["param"]) == ("model_not_found", "model")
    assert Chat.objects.count() == 1


@pytest.mark.parametrize("form", [form for name, form in FORMS.items() if name != "name"])
def test_a_name_has_one_form_for_its_owner_too(owner, form):
    document = make_document(owner)
    with pytest.raises(catalogue.ModelNotFound):
        catalogue.find_model(owner, format_name(form, document.pk))


def test_language_models_are_named_behind_a_sign_that_stands_in_no_other_id(
    client, owner, stranger, model, llm_server, answers_worker, travel
):
    group = Group.objects.create(name="연구소")
    owner.groups.add(group)
    connection = Connection.objects.create(name="서버", base_url=llm_server.url)
    row = ConnectedModel.objects.create(slug="qwen3", connection=connection, model="Qwen/Qwen3")
    row.groups.add(group)
    announce_choices()
    assert list_ids(client)[:3] == ["nura", "nura@installation", "nura@qwen3"]
    for name in ("nura@qwen3", f"nura/{travel.pk}@qwen3"):
        reply = client.chat.completions.create(
            model=name, messages=[{"role": "user", "content": "숙박비 상한은 얼마인가요?"}]
        )
        assert reply.model == name
        assert llm_server.chats[-1].json["model"] == "Qwen/Qwen3"
    for wrong in ("nura@", "nura@nothing", "qwen3", f"nura/{stranger.pk}@qwen3"):
        with pytest.raises((openai.NotFoundError, openai.BadRequestError)):
            client.models.retrieve(wrong)
    owner.groups.clear()
    with pytest.raises(openai.BadRequestError, match=r"언어 모델|language model"):
        client.chat.completions.create(
            model="nura@qwen3", messages=[{"role": "user", "content": "질문"}]
        )


def test_an_assistant_is_a_model_for_those_who_may_ask_it(client, owner, stranger):
    assistant = Assistant.objects.create(owner=owner, name="인사 도우미")
    theirs = Assistant.objects.create(owner=stranger, name="남의 것")
    assert f"nura/{assistant.pk}" in list_ids(client)
    assert f"nura/{theirs.pk}" not in list_ids(client)
    with pytest.raises(openai.NotFoundError):
        client.models.retrieve(f"nura/{theirs.pk}")
