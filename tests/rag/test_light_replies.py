"""What the light model is asked for and how its reply is read, whatever the server can do."""

import pytest

from rag.adapters.light import BadReply, Light
from rag.adapters.openai import OpenAILLM
from rag.config import Endpoint
from rag.ports import Piece
from tests.rag.worlds import ScriptedLLM
from tests.servers.llm import Failure, Stream

SCHEMA = {
    "title": "verdict",
    "type": "object",
    "properties": {"follows": {"type": "boolean"}},
    "required": ["follows"],
    "additionalProperties": False,
}
JSON = Stream(['{"follows": true}'])


def make_light(server) -> Light:
    return Light(OpenAILLM(Endpoint(server.url, "stand-in")))


async def read(model, schema=SCHEMA):
    return await model.ask_json("s", "u", max_tokens=10, schema=schema)


def list_formats(server):
    return [call.json.get("response_format", {}).get("type") for call in server.chats]


async def test_the_server_is_asked_to_hold_the_model_to_the_schema(llm_server):
    llm_server.script(JSON)
    assert await read(make_light(llm_server)) == {"follows": True}
    wanted = llm_server.chats[0].json["response_format"]
    assert wanted == {
        "type": "json_schema",
        "json_schema": {"name": "verdict", "schema": SCHEMA, "strict": True},
    }


async def test_a_call_without_a_schema_asks_for_no_format(llm_server):
    llm_server.script(JSON)
    await read(make_light(llm_server), schema=None)
    assert list_formats(llm_server) == [None]


@pytest.mark.parametrize(
    "said",
    [
        "response_format.type: Input should be 'text' or 'json_object'",
        "Invalid parameter: 'response_format' of type 'json_schema' is not supported",
        "failed to parse grammar",
    ],
)
async def test_a_server_that_refuses_schemas_is_asked_for_json_from_then_on(llm_server, said):
    llm_server.script(Failure(400, {"error": {"message": said}}), JSON, JSON)
    model = make_light(llm_server)
    assert await read(model) == await read(model) == {"follows": True}
    assert list_formats(llm_server) == ["json_schema", "json_object", "json_object"]


async def test_a_server_that_refuses_every_format_is_asked_in_words_alone(llm_server):
    refusal = Failure(422, {"detail": [{"loc": ["body", "response_format"], "msg": "extra"}]})
    llm_server.script(refusal, refusal, JSON)
    assert await read(make_light(llm_server)) == {"follows": True}
    assert list_formats(llm_server) == ["json_schema", "json_object", None]


@pytest.mark.parametrize(
    "said",
    [
        '{"follows": true}',
        '```json\n{"follows": true}\n```',
        'Sure, here it is:\n{"follows": true}\nAnything else?',
        'The form is {follows}; so: {"follows": true}',
        'Perhaps {"follows": false}? No.\n</think>\n\n{"follows": true}',
    ],
)
async def test_json_is_found_whatever_a_model_says_around_it(said):
    assert await read(Light(ScriptedLLM(Piece(said)))) == {"follows": True}


@pytest.mark.parametrize("said", ["yes", "{follows: yes}", "{" * 5000, "[" * 5000, ""])
async def test_a_reply_without_json_is_a_bad_reply(said):
    with pytest.raises(BadReply):
        await read(Light(ScriptedLLM(Piece(said))))
