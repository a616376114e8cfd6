"""OpenAI-compatible servers that are not ours: `transformers serve` on a CPU, vLLM on a GPU.

The model is real, but its weights are made here: each word has one successor, so that the answer is
known word for word. It continues from the last word of the question.
"""

import contextlib
import http.client
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
import yaml

from tests.support import ROOT, free_port, wait_until

VLLM_VARIABLE = "NURA_TEST_VLLM"
"""Path of the program `vllm`."""
MAIN_MODEL = ROOT / "deploy" / "vllm" / "main.yaml"
NAME = "qwen3-of-the-tests"
ANSWER = "연차 휴가는 해마다 15일 입니다."
THOUGHT = "규정을 찾아 본다"
THOUGHT_OVER = "반차는 반나절 입니다."
ENDLESS = ("계속", "하나", "둘", "셋")
CALL = '{"name":"search","arguments":{"query":"출장비"}}'
CHAINS = (
    ("며칠?", *ANSWER.split()),
    ("생각해", "<think>", *THOUGHT.split(), "</think>", *THOUGHT_OVER.split()),
    ("찾아줘", "<tool_call>", CALL, "</tool_call>"),
)
END = "<|end|>"
PROBE = "abcdef"
"""A word that the server expects in every vocabulary, for its stop words."""
CONTEXT = 32_768
"""Tokens of the model's context: enough for minutes of writing."""
WIDTH = 64
TEMPLATE = "{% for message in messages %}{{ message['content'] }} {% endfor %}"
PARTS = {
    "defaults": {"role": "assistant"},
    "start_anchor": [chain[0] for chain in (*CHAINS, ENDLESS)],
    "fields": {
        "reasoning_content": {"open": "<think>", "close": "</think>", "content": "text"},
        "tool_calls": {
            "open_pattern": r"\s*<tool_call>",
            "close": "</tool_call>",
            "repeats": True,
            "content": "json",
            "transform": {"type": "function", "function": "{content}"},
        },
        "content": {"close_pattern": r"\s*<\|end\|>", "content": "text"},
    },
}
"""How the server separates thoughts and tool calls from the answer."""


def map_successors() -> dict[str, str]:
    """The word that follows each word."""
    pairs = [pair for chain in CHAINS for pair in zip(chain, (*chain[1:], END), strict=True)]
    pairs += zip(ENDLESS, (*ENDLESS[1:], ENDLESS[1]), strict=True)
    assert len(dict(pairs)) == len(set(pairs)), "a word with two successors"
    return dict(pairs)


def make_model(folder: Path) -> None:
    """Write model, tokenizer and chat template."""
    import torch
    from transformers import GPT2Config, GPT2LMHeadModel

    following = map_successors()
    words = ["<unk>", END, PROBE, *following]
    ids = {word: place for place, word in enumerate(words)}
    config = GPT2Config(
        vocab_size=len(words),
        n_positions=CONTEXT,
        n_embd=WIDTH,
        n_layer=1,
        n_head=1,
        eos_token_id=ids[END],
        bos_token_id=None,
        pad_token_id=ids[END],
        tie_word_embeddings=False,
    )
    torch.manual_seed(1)
    model = GPT2LMHeadModel(config)
    with torch.no_grad():
        block, embeddings = model.transformer.h[0], model.transformer.wte.weight
        for projection in (block.attn.c_proj, block.mlp.c_proj):
            projection.weight.zero_()
        model.transformer.wpe.weight.zero_()
        torch.nn.init.normal_(embeddings)
        model.lm_head.weight.zero_()
        for word, follower in following.items():
            model.lm_head.weight[ids[follower]] += embeddings[ids[word]]
    model.save_pretrained(folder)
    make_tokenizer(ids).save_pretrained(folder)


def make_tokenizer(ids: dict[str, int]):
    """A tokenizer that splits at spaces."""
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    tokenizer = Tokenizer(models.WordLevel(ids, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        unk_token="<unk>",
        eos_token=END,
        pad_token=END,
        chat_template=TEMPLATE,
        response_template=PARTS,
        clean_up_tokenization_spaces=False,
    )


def is_ready(process: subprocess.Popen[bytes], port: int, log: Path) -> bool:
    """Whether the server responds. Raises `AssertionError` if it has exited."""
    assert process.poll() is None, log.read_text(encoding="utf-8", errors="replace")[-4000:]
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
    try:
        connection.request("GET", "/health")
        return connection.getresponse().status == 200
    except OSError:
        return False
    finally:
        connection.close()


@contextlib.contextmanager
def serve_by_transformers(folder: Path) -> Iterator[tuple[str, str]]:
    """Make a model in the folder and serve it: the base URL, with /v1, and the model's name."""
    program = Path(sys.executable).with_name("transformers")
    command = [program, "serve", folder / "model", "--device", "cpu"]
    with _run_server(folder, command, {"CUDA_VISIBLE_DEVICES": ""}) as url:
        yield url, str(folder / "model")


@contextlib.contextmanager
def serve_by_vllm(folder: Path) -> Iterator[tuple[str, str]]:
    """The same by the vLLM of the environment that `NURA_TEST_VLLM` names, with the parsers of
    `deploy/vllm/main.yaml`. Skips where there is none."""
    program = os.environ.get(VLLM_VARIABLE, "")
    if not program:
        pytest.skip(f"{VLLM_VARIABLE} names no vLLM, which needs a GPU")
    options = yaml.safe_load(MAIN_MODEL.read_text(encoding="utf-8"))
    parsers = ("reasoning-parser", "tool-call-parser")
    command = [program, "serve", folder / "model", "--enable-auto-tool-choice", "--enforce-eager"]
    command += ["--served-model-name", NAME, "--gpu-memory-utilization", "0.3"]
    command += [word for name in parsers for word in (f"--{name}", options[name])]
    with _run_server(folder, command, {}) as url:
        yield url, NAME


@contextlib.contextmanager
def _run_server(
    folder: Path, command: list[str | Path], environment: Mapping[str, str]
) -> Iterator[str]:
    port = free_port()
    make_model(folder / "model")
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(
            [*command, "--host", "127.0.0.1", "--port", str(port)],
            env={**os.environ, "HF_HUB_OFFLINE": "1", **environment},
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,  # the engine of vLLM is a process of its own
        )
    try:
        wait_until(lambda: is_ready(process, port, folder / "log"), timeout=300, step=0.1)
        yield f"http://127.0.0.1:{port}/v1"
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
