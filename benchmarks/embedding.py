"""How fast the models process embeds: what a new embedding model costs, and whom it lets wait.

Passages of the Korean guides go through the product's adapter and socket, as documents processes
send them, to the model that comes with the product and to one of the size of bge-m3 (568 million
weights, drawn at random: they take as long as trained ones). Beside them one asks questions, first
alone, then while the passages are embedded. On a machine with a GPU the models process uses it; the
figures name it. Writing the vectors to the database is no part of this.
"""

import itertools
import tempfile
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

from benchmarks import report
from rag.adapters.encoders import EMBEDDED_NAME, EndpointEmbedder
from rag.config import Endpoint, RagConfig
from tests.servers.models import run_models

CLIENTS = report.choose_size(4, quick=2)
"""Processes that send passages at once."""
PASSAGE_CHARACTERS = RagConfig().chunk_size
TEXTS_A_CALL = report.choose_size(64 if report.read_gpu() else 32, quick=8)
"""As many as re-embedding sends; without a GPU as many as documents processes send, since more keep
the large model busy for half a minute."""
SECONDS = report.choose_size(20.0, quick=2.0)
"""For which passages are sent."""
PAUSE = 0.05
"""Between two questions; people ask more slowly."""
ROOT = Path(__file__).parents[1]
SOURCES = ("README.ko.md", "docs/user-guide.ko.md", "docs/administrator.ko.md")
QUESTION = "백업은 어떻게 만들고 어디에 보관하나요?"
KOREAN = frozenset(("ko",))
LARGE = "large"
VOCABULARY = 8_000
LAYERS, EMBEDDED_WORDS = report.choose_size((24, 250_002), quick=(2, VOCABULARY))
"""Of bge-m3 in a full run. Of its words only those of the guides are ever asked for."""


def read_passages() -> list[str]:
    """The guides in pieces as long as the product's."""
    text = "\n".join((ROOT / name).read_text(encoding="utf-8") for name in SOURCES)
    starts = range(0, len(text), PASSAGE_CHARACTERS // 4)  # they overlap, so that they are many
    return [text[start : start + PASSAGE_CHARACTERS] for start in starts]


def make_large_model(folder: Path, passages: Sequence[str]) -> str:
    """Write a model of the shape of bge-m3, and a tokenizer of the guides' words: the folder."""
    import torch
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer.modules import Pooling, Transformer
    from tokenizers import Tokenizer, pre_tokenizers, trainers
    from tokenizers.models import WordPiece
    from transformers import PreTrainedTokenizerFast, XLMRobertaConfig, XLMRobertaModel

    tokenizer = Tokenizer(WordPiece(unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    special = ["<s>", "<pad>", "</s>", "<unk>"]
    trainer = trainers.WordPieceTrainer(vocab_size=VOCABULARY, special_tokens=special)
    tokenizer.train_from_iterator(passages, trainer)
    names = dict(zip(("bos_token", "pad_token", "eos_token", "unk_token"), special, strict=True))
    written = folder / "transformer"
    PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, model_max_length=8192, **names
    ).save_pretrained(written)
    config = XLMRobertaConfig(
        vocab_size=EMBEDDED_WORDS,
        hidden_size=1024,
        num_hidden_layers=LAYERS,
        num_attention_heads=16,
        intermediate_size=4096,
        max_position_embeddings=8194,
    )
    torch.manual_seed(1)
    XLMRobertaModel(config).save_pretrained(written)
    encoder = Transformer(str(written), max_seq_length=8192)
    SentenceTransformer(modules=[encoder, Pooling(1024, "cls")]).save(str(folder / LARGE))
    return str(folder / LARGE)


def embed_for(seconds: float, endpoint: Endpoint, passages: Sequence[str]) -> float:
    """Passages a second of one client, in a process of its own."""
    embedder = EndpointEmbedder(endpoint, KOREAN)
    calls = [
        passages[start : start + TEXTS_A_CALL] for start in range(0, len(passages), TEXTS_A_CALL)
    ]
    embedder.embed_passages(passages[:1])  # loads what the client needs
    embedded, begun = 0, time.monotonic()
    for texts in itertools.cycle(calls):
        embedded += len(embedder.embed_passages(texts))
        if (took := time.monotonic() - begun) >= seconds:
            return embedded / took
    raise AssertionError("no passages")


def time_questions(embedder: EndpointEmbedder, until: Callable[[], bool]) -> list[float]:
    """Milliseconds that each question's vector takes, one after the other."""
    times: list[float] = []
    while not until():
        begun = time.perf_counter()
        embedder.embed_query(f"{QUESTION} {len(times)}")
        times.append((time.perf_counter() - begun) * 1000)
        time.sleep(PAUSE)
    return times


def measure(endpoint: Endpoint, passages: Sequence[str]) -> dict[str, object]:
    """Rate of passages, and the time of questions alone and beside them."""
    embedder = EndpointEmbedder(endpoint, KOREAN)
    embedder.embed_query(QUESTION)
    if report.read_gpu():  # where the first text of a length costs more than the next
        for text in passages[:TEXTS_A_CALL]:
            embedder.embed_query(text)
    embedder.embed_passages(passages[:TEXTS_A_CALL])
    ends = time.monotonic() + SECONDS / 2
    alone = time_questions(embedder, lambda: time.monotonic() > ends)
    with ProcessPoolExecutor(CLIENTS, get_context("spawn")) as pool:
        clients = [pool.submit(embed_for, SECONDS, endpoint, passages) for _ in range(CLIENTS)]
        beside = time_questions(embedder, lambda: any(client.done() for client in clients))
        rate = sum(client.result() for client in clients)
    return {
        "dimensions": embedder.dimensions,
        "passages_a_second": round(rate, 1),
        "question_ms": report.percentiles(alone),
        "question_beside_passages_ms": report.percentiles(beside),
    }


def main() -> None:
    """Measure both models."""
    passages = read_passages()
    with (
        tempfile.TemporaryDirectory(prefix="nura-embedding-") as folder,
        run_models() as config,
    ):
        large = make_large_model(Path(folder), passages)
        found = {
            name: measure(config.local_model(model), passages)
            for name, model in ((EMBEDDED_NAME, EMBEDDED_NAME), ("as bge-m3", large))
        }
    figures = {
        "passages": len(passages),
        "characters_a_passage": PASSAGE_CHARACTERS,
        "clients": CLIENTS,
        "models": found,
    }
    report.write("embedding", figures)
    rows = [
        [
            name,
            one["passages_a_second"],
            *(
                f"{one[kind]['p50']:.1f} / {one[kind]['p95']:.1f}"
                for kind in ("question_ms", "question_beside_passages_ms")
            ),
        ]
        for name, one in found.items()
    ]
    report.table(
        f"Embedding on {report.read_gpu() or report.read_processor()}",
        ["model", "passages/s", "question ms, p50 / p95", "beside passages"],
        rows,
    )


if __name__ == "__main__":
    main()
