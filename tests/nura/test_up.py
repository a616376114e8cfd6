import contextlib
import os
import re
import signal
import socket
import subprocess
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psutil
import pytest

from tests.support import ROOT, Product, copy_prepared_folder, get_part_name, wait_until

pytestmark = [pytest.mark.product, pytest.mark.timeout(300)]

NOBODY = 65534


@pytest.fixture(scope="module")
def product(tmp_path_factory):
    # A folder that only root may enter, when we are root: the services must come to terms with it.
    with Product(tmp_path_factory.mktemp("product") / "var", prepared=False) as running:
        yield running


def test_a_second_up_on_the_same_folder_names_the_running_one_and_touches_nothing(product):
    before = {process.pid for process in product.processes()}
    second = product.manage("up", "--port", "1", check=False)
    assert second.returncode == 1
    assert product.url in second.stderr
    assert {process.pid for process in product.processes()} == before
    assert product.status("/readyz") == 200


def test_a_taken_port_is_a_clear_message_and_nothing_starts(tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        refused = Product(tmp_path / "var").manage("up", "--port", port, check=False)
    assert refused.returncode == 1
    assert f"127.0.0.1:{port}" in refused.stderr
    assert "Traceback" not in refused.stderr
    assert not (tmp_path / "var" / "postgres").exists()


def test_a_bad_setting_stops_the_start_and_is_named(tmp_path):
    refused = Product(tmp_path / "var", NURA_TOP_K="many").manage("up", check=False)
    assert refused.returncode == 1
    assert "NURA_TOP_K" in refused.stderr
    assert "Traceback" not in refused.stderr


def test_a_killed_pool_process_leaves_the_documents_worker_alive(product):
    (child, *_) = wait_until(lambda: _pool(product))
    parent = child.parent()
    child.kill()
    wait_until(lambda: {process.pid for process in _pool(product)} - {child.pid})
    assert parent.is_running()


@pytest.mark.parametrize(
    "name",
    ["forkserver", "web", "answers", "documents", "models", "beat", "redis", "postgres"],
)
def test_a_killed_child_is_reported_and_restarted(product, name):
    victim = product.find_process(name)
    victim.kill()
    wait_until(lambda: f"{name} was ended by SIGKILL" in product.log)
    wait_until(lambda: _successor(product, name, victim.pid), 30)
    wait_until(lambda: product.status("/readyz") == 200, 30)


def test_processes_share_what_they_load(product):
    memory = []
    for process in product.processes():
        with contextlib.suppress(psutil.NoSuchProcess):  # killed before, and about to go
            if get_part_name(process) in {"forkserver", "web", "answers", "documents", "beat"}:
                memory.append(process.memory_full_info())
    assert sum(one.pss for one in memory) < 0.5 * sum(one.rss for one in memory)


def test_processes_outlive_their_fork_server(product):
    names = ("web", "answers", "documents", "beat")
    before = {name: product.find_process(name).pid for name in names}
    kills = product.log.count("forkserver was ended by SIGKILL")
    product.find_process("forkserver").kill()
    wait_until(lambda: product.log.count("forkserver was ended by SIGKILL") > kills)
    assert {name: product.find_process(name).pid for name in names} == before
    assert product.status("/readyz") == 200


def test_doctor_is_content_with_a_running_product(product):
    report = product.call("doctor", check=False)
    assert report.returncode == 0, report.stdout
    assert re.search(r"ok +answers worker", report.stdout)


def test_a_command_uses_the_services_of_the_running_product(product):
    key = product.create_user("in-between")
    assert re.fullmatch(r"\S{20,}", key)
    assert product.status("/readyz") == 200


def test_the_sockets_and_data_of_the_services_are_closed_to_other_users(product):
    for folder in ("run", "postgres", "redis"):
        assert (product.data_dir / folder).stat().st_mode & 0o077 == 0


def test_nothing_listens_on_a_port_but_the_web(product):
    ports = {
        connection.laddr.port
        for process in product.processes()
        for connection in process.net_connections("tcp")
        if connection.status == psutil.CONN_LISTEN
    }
    assert ports == {product.port}


def test_after_a_kill_of_up_all_children_are_gone_and_the_next_start_has_the_data(product):
    product.add_user("survivor")
    product.kill()
    wait_until(lambda: not product.processes(), 15)
    product.start()
    again = product.call("create_user", "survivor", "--password", "another-horse-9")
    assert again.returncode == 0
    assert _user_count(product, "survivor") == 1


def test_a_start_right_after_a_kill_waits_for_the_dying_services(product):
    product.kill()
    product.start()
    assert product.status("/readyz") == 200


def test_a_command_alone_brings_its_services_and_prints_nothing_else(tmp_path):
    stopped = Product(tmp_path / "var")
    copy_prepared_folder(stopped.data_dir)  # made by a command alone in an empty folder
    made = stopped.manage("create_user", "early", "--password", "correct-horse-9")
    assert re.fullmatch(r"\S{20,}\n", made.stdout)
    assert stopped.processes() == []


def test_two_commands_at_once_wait_for_each_other(tmp_path):
    stopped = Product(tmp_path / "var")
    copy_prepared_folder(stopped.data_dir)
    with ThreadPoolExecutor(2) as both:
        keys = list(both.map(stopped.create_user, ["one", "two"]))
    assert len(set(keys)) == 2


@pytest.fixture
def open_folder():
    """A folder that everybody may enter: pytest closes its own to others, at any moment."""
    with tempfile.TemporaryDirectory(prefix="nura-open-") as name:
        Path(name).chmod(0o755)
        yield Path(name)


def test_it_runs_as_an_ordinary_user(open_folder):
    python = _python_of_nobody(open_folder)
    folder = open_folder / "var"
    folder.mkdir()
    copy_prepared_folder(folder, "static")
    for path in (folder, *folder.rglob("*")):
        os.chown(path, NOBODY, NOBODY)
    with Product(folder, python=python) as product:
        assert {process.uids().real for process in product.processes()} == {NOBODY}
        assert product.create_user("ordinary")


def test_at_last_a_stop_ends_every_process(product):
    product.end_commands()
    product.process.send_signal(signal.SIGINT)  # `Product.stop` would kill what is left
    assert product.process.wait(40) == 0
    assert product.processes() == []


def _pool(product):
    """The pool of the documents worker; empty while it is being replaced after earlier kills."""
    with contextlib.suppress(psutil.Error, AssertionError):
        return product.find_process("documents").children()
    return []


def _successor(product, name, old):
    with contextlib.suppress(AssertionError):
        return product.find_process(name).pid != old
    return False


def _user_count(product, name):
    code = (
        "from django.contrib.auth.models import User;"
        f"print(User.objects.filter(username='{name}').count())"
    )
    return int(product.call("shell", "-v", "0", "-c", code).stdout.split()[-1])


def _python_of_nobody(folder):
    """A Python that the user nobody may run with our packages."""
    if os.geteuid() != 0:
        pytest.skip("already an ordinary user: every other test here is this test")
    # redis-py wants this module before Python 3.11.3; our packages may belong to a later one.
    (folder / "async_timeout.py").write_text("from asyncio import timeout\n")
    drop = ("setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups")
    packages = next((ROOT / ".venv" / "lib").glob("python*/site-packages"))
    places = f"PYTHONPATH={packages}:{folder}"
    for python in (str(ROOT / ".venv" / "bin" / "python"), "/usr/bin/python3"):
        command = (*drop, "env", places, "HOME=/nonexistent", python)
        probe = [*command, "-c", "import django, psycopg, redis, nura"]
        with contextlib.suppress(OSError):
            if not subprocess.run(probe, cwd=ROOT, capture_output=True, check=False).returncode:
                return command
    pytest.skip("no Python here that another user may run")
