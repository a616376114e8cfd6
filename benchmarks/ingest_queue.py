"""A thousand small files of one user: time a file, how the list feels meanwhile, who else waits."""

import time
from concurrent.futures import ThreadPoolExecutor

from benchmarks import report
from tests.product.client import Client
from tests.support import Product, wait_until

FILES = 1_000
UPLOADERS = 4
LOOKS_EVERY = 1.0
SENTENCE = "해솔시는 통합돌봄 정보시스템을 구축하고 담당자를 둔다. "


def main() -> None:
    with Product() as product:
        first = Client(product.url, product.create_user("first"))
        second = Client(product.url, product.create_user("second"))
        figures = _measured(first, second)
    report.write("ingest_queue", figures)
    report.table(f"{FILES} files of one user", ("figure", "value"), list(figures.items()))


def _measured(first: Client, second: Client) -> dict[str, object]:
    begun = time.perf_counter()
    with ThreadPoolExecutor(UPLOADERS) as pool:
        list(pool.map(lambda number: first.upload(*_small(number)), range(FILES)))
    uploaded = time.perf_counter() - begun
    waited = _ended(second, second.upload("other.md", b"# Other\n\nOne short file.")["id"])
    ahead = _left(first)
    looks: list[float] = []
    wait_until(lambda: _looked(first, looks) and _left(first) == 0, FILES * 5, LOOKS_EVERY)
    whole = time.perf_counter() - begun
    completed = first.call("GET", "/documents?status=COMPLETED&page_size=1")[1]["count"]
    return {
        "files": FILES,
        "completed": completed,
        "upload_seconds": round(uploaded, 1),
        "seconds_a_file": round(whole / FILES, 3),
        "other_user_waited_seconds": round(waited, 1),
        "left_when_other_was_served": ahead,
        "list_milliseconds": report.percentiles(looks),
    }


def _small(number: int) -> tuple[str, bytes]:
    text = SENTENCE * 40
    return f"{number}.md", f"# {number}호 공고\n\n{text}{number}\n".encode()


def _left(client: Client) -> int:
    body = client.call("GET", "/documents/queue")[1]
    return int(body["waiting"] + body["working"])


def _ended(client: Client, key: str) -> float:
    begun = time.perf_counter()
    wait_until(lambda: client.call("GET", f"/documents/{key}")[1]["status"] == "COMPLETED", 120)
    return time.perf_counter() - begun


def _looked(client: Client, looks: list[float]) -> bool:
    """Adds how many milliseconds the first page of the list took."""
    begun = time.perf_counter()
    status, _body = client.call("GET", "/documents")
    looks.append((time.perf_counter() - begun) * 1000)
    return bool(status == 200)


if __name__ == "__main__":
    main()
