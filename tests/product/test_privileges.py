"""Started by root, the product runs as a user without privileges."""

import contextlib
import os
import shutil
import stat
import sys
import sysconfig
import tempfile
from pathlib import Path

import psutil
import pytest

from tests.product.client import Client
from tests.support import Product, wait_until

pytestmark = [
    pytest.mark.product,
    pytest.mark.skipif(os.geteuid() != 0, reason="only root steps down"),
]


def link_or_copy(source, target):
    try:
        os.link(source, target)
    except OSError:  # on another disk
        shutil.copy2(source, target)


@pytest.fixture(scope="module")
def readable_python():
    """This Python where everybody may read it; its own place may be below /root."""
    with contextlib.ExitStack() as stack:
        home = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="nura-python-")))
        home.chmod(0o755)
        version = f"python{sys.version_info.major}.{sys.version_info.minor}"
        for name in ("bin", "lib"):
            (home / name).mkdir()
            (home / name).chmod(0o755)
        link_or_copy(os.path.realpath(sys.executable), home / "bin" / version)
        shutil.copytree(
            sysconfig.get_path("stdlib"),
            home / "lib" / version,
            ignore=shutil.ignore_patterns("site-packages", "test"),
            copy_function=link_or_copy,
        )
        for library in Path(sysconfig.get_config_var("LIBDIR")).glob("libpython3*.so.*"):
            link_or_copy(library, home / "lib" / library.name)
        # not by PYTHONPATH: processes that read files get no environment
        (home / "lib" / version / "site-packages").symlink_to(sysconfig.get_path("purelib"))
        yield str(home / "bin" / version), {"LD_LIBRARY_PATH": str(home / "lib")}


@pytest.fixture(scope="module")
def stepped_down(readable_python):
    python, environment = readable_python
    with Product(python=(python,), **environment) as product:
        if "runs_as_root" in product.log:
            pytest.skip("this checkout is not readable for others")
        yield product


def test_no_process_is_root_and_a_file_is_read(stepped_down):
    client = Client(stepped_down.url, stepped_down.add_user("writer"))
    document = client.upload("memo.md", "# 메모\n\n필터는 6개월마다 교체합니다.".encode())
    address = f"/documents/{document['id']}"
    wait_until(lambda: client.call("GET", address)[1]["status"] == "COMPLETED", 60)
    up = psutil.Process(stepped_down.process.pid)
    users = {process.uids().effective for process in (up, *up.children(recursive=True))}
    assert len(users) == 1
    assert users != {0}


def test_nobody_else_may_read_what_they_wrote(stepped_down):
    account = stepped_down.data_dir.stat().st_uid
    assert account != 0
    for path in (stepped_down.data_dir, *stepped_down.data_dir.rglob("*")):
        found = path.lstat()
        assert stat.S_ISLNK(found.st_mode) or not found.st_mode & 0o077, path
        assert found.st_uid == account, path


def test_what_a_command_of_root_writes_belongs_to_the_product(stepped_down):
    stepped_down.manage("seed")
    files = [path for path in (stepped_down.data_dir / "files").rglob("*") if path.is_file()]
    assert files
    assert {path.stat().st_uid for path in files} == {stepped_down.data_dir.stat().st_uid}


def test_doctor_tells_the_user_the_role_and_the_password(stepped_down):
    report = stepped_down.manage("doctor", check=False).stdout
    assert "without privileges" in report
    assert "role nura without superuser" in report
    assert "with a password" in report


def test_where_that_user_cannot_reach_the_data_root_stays_and_doctor_says_why(
    tmp_path, readable_python
):
    python, environment = readable_python
    tmp_path.chmod(0o700)
    report = Product(tmp_path / "var", python=(python,), **environment).manage(
        "doctor", check=False
    )
    assert "root: the user" in report.stdout
    assert "may not read" in report.stdout


def test_data_of_a_product_that_stepped_down_is_read_where_root_has_to_stay(
    stepped_down, tmp_path, readable_python
):
    client = Client(stepped_down.url, stepped_down.add_user("mover"))
    first = client.upload("옛.md", "# 옛 메모\n\n필터는 6개월마다 교체합니다.".encode())
    wait_until(lambda: client.call("GET", f"/documents/{first['id']}")[1]["status"] == "COMPLETED")
    stepped_down.stop()
    tmp_path.chmod(0o700)
    shutil.copytree(stepped_down.data_dir, tmp_path / "var", symlinks=True)
    for path in (stepped_down.data_dir, *stepped_down.data_dir.rglob("*")):
        found = path.lstat()
        copied = tmp_path / "var" / path.relative_to(stepped_down.data_dir)
        if copied.exists():
            os.lchown(copied, found.st_uid, found.st_gid)
    python, environment = readable_python
    with Product(tmp_path / "var", python=(python,), **environment) as moved:
        assert "runs_as_root" in moved.log
        again = Client(moved.url, client.token)
        again.call("POST", f"/documents/{first['id']}/reprocess")
        second = again.upload("새.md", "# 새 메모\n\n물통은 매주 비웁니다.".encode())
        for document in (first, second):
            address = f"/documents/{document['id']}"
            wait_until(lambda: again.call("GET", address)[1]["status"] == "COMPLETED", 60)  # noqa: B023 - waited for
