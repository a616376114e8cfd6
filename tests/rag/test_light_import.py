"""Importing the engine loads no heavy library."""

import subprocess
import sys

HEAVY = ("torch", "sentence_transformers", "transformers", "kiwipiepy", "openai", "numpy")
CODE = """
import sys
from rag.config import Endpoint, RagConfig
from rag.factory import get_engine
endpoint = Endpoint("http://127.0.0.1:9/v1", "m")
made = get_engine(RagConfig(llm=endpoint, reranker_model="some/reranker"))
facts = (made.embedder.name, made.embedder.dimensions, made.embedder.languages)
print([name for name in {heavy!r} if name in sys.modules])
"""


def test_importing_and_making_an_engine_loads_no_heavy_library():
    code = CODE.format(heavy=HEAVY)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
