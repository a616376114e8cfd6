"""The whole product with a language model on the other side of a real socket."""

import pytest

from tests.product.client import Client
from tests.servers.llm import LLMServer
from tests.support import DATA, NO_DATA, Product


@pytest.fixture
def shared_data():
    if not DATA.exists():
        pytest.skip(NO_DATA)
    return DATA


@pytest.fixture(scope="package")
def model():
    with LLMServer() as server:
        yield server


@pytest.fixture(scope="package")
def product(model, tmp_path_factory):
    folder = tmp_path_factory.mktemp("whole") / "var"
    environment = {
        "NURA_LLM_BASE_URL": model.url,
        "NURA_LLM_MODEL": "stand-in",
        "NURA_LLM_MAX_TOKENS": "20000",
    }
    with Product(folder, **environment) as running:
        yield running


@pytest.fixture(scope="package")
def token(product):
    return product.add_user("asker")


@pytest.fixture
def client(product, token, model):
    model.reset()
    product.wait_ready()
    return Client(product.url, token)
