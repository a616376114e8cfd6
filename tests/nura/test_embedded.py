import contextlib
import os
import shutil
import signal
import subprocess

import psycopg
import pytest
from redis import Redis
from redis.exceptions import NoPermissionError, RedisError

from nura.embedded import locations, postgres, redis, session, spawn


@contextlib.contextmanager
def serve_folder(folder):
    with session.lock_folder(folder, "a test"), session.run_services(folder, durable=False):
        yield


@pytest.fixture(scope="module")
def served(tmp_path_factory):
    """A data folder with its services, for those who only look at them."""
    folder = tmp_path_factory.mktemp("served")
    folder.chmod(0o700)
    folder.parent.chmod(0o700)
    with serve_folder(folder):
        yield folder


@pytest.fixture(scope="module")
def stopped(tmp_path_factory):
    """A data folder whose services ran and stopped."""
    folder = tmp_path_factory.mktemp("stopped")
    with serve_folder(folder):
        pass
    return folder


@pytest.fixture
def former(stopped, tmp_path):
    """A copy of it: to make a cluster takes longer than most that is done with one."""
    subprocess.run(["cp", "-a", f"{stopped}/.", tmp_path], check=True)
    return tmp_path


def test_data_survives_a_restart(tmp_path):
    with serve_folder(tmp_path):
        with postgres.connect(tmp_path) as connection:
            connection.execute("CREATE TABLE kept AS SELECT '남는다'::text AS word")
        Redis.from_url(locations.build_redis_url(tmp_path)).set("kept", "1")
    with serve_folder(tmp_path):
        with postgres.connect(tmp_path) as connection:
            assert connection.execute("SELECT word FROM kept").fetchone() == ("남는다",)
        assert Redis.from_url(locations.build_redis_url(tmp_path)).get("kept") == b"1"


def test_the_database_sorts_and_cases_unicode(served):
    with postgres.connect(served) as connection:
        row = connection.execute("SELECT upper('é'), 'ㅎ' > '가', getdatabaseencoding()").fetchone()
    assert row[0] == "É"
    assert row[2] == "UTF8"


def test_a_killed_postgres_starts_again_over_its_stale_files(former):
    with session.lock_folder(former, "a test"):
        launch = postgres.prepare_launch(former)
        process = spawn.start_program(launch, subprocess.DEVNULL)
        postgres.wait_ready(former, lambda: process.poll() is None)
        with postgres.connect(former) as connection:
            connection.execute("CREATE TABLE kept (id int)")
        process.kill()
        process.wait()
        assert (former / "postgres" / "postmaster.pid").exists()
    with serve_folder(former), postgres.connect(former) as connection:
        assert connection.execute("SELECT count(*) FROM kept").fetchone() == (0,)


def test_a_postmaster_pid_of_an_unrelated_process_does_not_block(former):
    pid_file = former / "postgres" / "postmaster.pid"
    pid_file.write_text(f"{os.getpid()}\n/elsewhere\n0\n5432\n../run\n\n1 1\nready\n")
    with serve_folder(former):
        assert postgres.is_answering(former)


def test_a_half_made_cluster_is_made_anew(tmp_path):
    draft = tmp_path / "postgres.new"
    draft.mkdir()
    (draft / "PG_VERSION").write_text("18\n")
    with serve_folder(tmp_path):
        assert postgres.is_answering(tmp_path)
    assert not draft.exists()


def test_a_path_too_long_for_a_socket_gets_a_stand_in(tmp_path):
    folder = tmp_path / ("길" * 30) / "var"
    folder.mkdir(parents=True)
    with serve_folder(folder):
        assert postgres.is_answering(folder)
        assert redis.is_answering(folder)
    assert locations.find_socket_dir(folder).parent != folder
    stand_in = locations.find_socket_dir(folder)
    assert stand_in.stat().st_mode & 0o077 == 0
    shutil.rmtree(stand_in)


def test_a_link_in_place_of_the_socket_folder_is_refused(tmp_path):
    (tmp_path / "other").mkdir()
    (tmp_path / "other").chmod(0o755)
    (tmp_path / "run").symlink_to(tmp_path / "other")
    with pytest.raises(RuntimeError, match="somebody else"), serve_folder(tmp_path):
        pass
    assert (tmp_path / "other").stat().st_mode & 0o777 == 0o755


def test_only_one_process_holds_a_folder(tmp_path):
    with session.lock_folder(tmp_path, "http://127.0.0.1:1"):
        assert session.read_holder(tmp_path) == "http://127.0.0.1:1"
        with pytest.raises(session.FolderBusyError), session.lock_folder(tmp_path, "me"):
            pass
    assert session.read_holder(tmp_path) == ""


def test_a_lock_is_not_inherited_by_what_is_started(tmp_path):
    with session.lock_folder(tmp_path, "first"):
        sleeper = subprocess.Popen(["sleep", "60"])
    try:
        assert session.read_holder(tmp_path) == ""
    finally:
        sleeper.kill()
        sleeper.wait()


def test_strangers_cannot_reach_the_sockets(served):
    for name in ("run", "postgres", "redis"):
        assert (served / name).stat().st_mode & 0o077 == 0
    with pytest.raises(psycopg.OperationalError):
        psycopg.connect(host="127.0.0.1", dbname="nura", user="nura", connect_timeout=2)


def test_our_role_in_postgres_is_no_superuser_and_runs_no_program(served):
    with postgres.connect(served) as connection:
        rights = "rolsuper, rolcreaterole, rolreplication, rolbypassrls"
        row = connection.execute(f"SELECT {rights} FROM pg_roles WHERE rolname = current_user")
        assert row.fetchone() == (False, False, False, False)
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            connection.execute("COPY (SELECT 1) TO PROGRAM 'true'")
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            connection.execute("SELECT pg_read_file('/etc/passwd')")


def test_nobody_signs_in_without_the_password_and_the_superuser_never(served):
    place = {"host": str(locations.find_socket_dir(served)), "dbname": "nura"}
    for user, password in (("nura", ""), ("nura", "wrong"), ("postgres", "")):
        with pytest.raises(psycopg.OperationalError):
            psycopg.connect(user=user, password=password, connect_timeout=2, **place)
    socket = str(locations.find_socket_dir(served) / "redis.sock")
    with pytest.raises(RedisError):
        Redis(unix_socket_path=socket).ping()
    with pytest.raises(RedisError):
        Redis(unix_socket_path=socket, username="nura", password="wrong").ping()


def test_our_user_in_redis_does_not_rule_the_server(tmp_path):
    with session.lock_folder(tmp_path, "a test"), session.run_services(tmp_path):
        client = Redis.from_url(locations.build_redis_url(tmp_path))
        assert client.set("word", "말")
        for command in (
            *(
                "FLUSHALL",
                "KEYS *",
                "CONFIG SET dir /tmp",
                "ACL LIST",
                "MODULE LIST",
                "DEBUG SLEEP 0",
            ),
            *("CLIENT LIST", "MONITOR", "SHUTDOWN", "SCRIPT FLUSH", "PFADD a b", "REPLICAOF a 1"),
        ):
            with pytest.raises(NoPermissionError):
                client.execute_command(*command.split())


def test_data_of_a_version_whose_role_was_superuser_is_kept_and_becomes_ours(tmp_path, monkeypatch):
    account = spawn.find_service_account(tmp_path)
    binaries = spawn.find_postgres(account)
    spawn.prepare_data_folder(tmp_path, account)
    monkeypatch.setattr(postgres, "SUPERUSER", "nura")
    postgres._make_cluster(binaries, tmp_path / "postgres", account, durable=False)
    launch = spawn.Launch("postgres", (), tmp_path / "postgres", account)
    former = ["CREATE TABLE kept AS SELECT 1 AS id;", "CREATE SEQUENCE counted;"]
    former += ["CREATE VIEW seen AS SELECT * FROM kept;", "CREATE EXTENSION vector;"]
    former += ["CREATE TABLE numbered (id bigint GENERATED BY DEFAULT AS IDENTITY);"]
    former += ["CREATE FUNCTION one() RETURNS int LANGUAGE sql AS 'SELECT 1';"]
    postgres._run_single_user(launch, binaries, "template1", ["CREATE DATABASE nura;"])
    postgres._run_single_user(launch, binaries, "nura", former)
    for _ in range(2):
        with serve_folder(tmp_path), postgres.connect(tmp_path) as connection:
            assert connection.execute("SELECT id FROM seen").fetchone() == (1,)
            connection.execute("ALTER TABLE numbered ADD COLUMN more int; DROP FUNCTION one()")
            connection.execute("ALTER TABLE numbered DROP COLUMN more")
            connection.execute("CREATE FUNCTION one() RETURNS int LANGUAGE sql AS 'SELECT 1'")
            supers = connection.execute("SELECT rolname FROM pg_roles WHERE rolsuper").fetchall()
            assert supers == [("postgres",)]


def test_another_secret_key_changes_the_passwords(former, settings):
    settings.SERVICE_PASSWORD = locations.derive_password("another")
    with serve_folder(former):
        assert postgres.is_answering(former)
        assert redis.is_answering(former)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root steps down")
def test_root_runs_the_services_as_a_user_without_privileges(served):
    owner = (served / "postgres").stat().st_uid
    assert owner != 0
    assert served.parent.stat().st_mode & 0o077 == 0
    assert spawn.find_service_account(served).uid == owner


@pytest.mark.skipif(os.geteuid() != 0, reason="only root steps down")
def test_data_of_a_user_whose_name_is_gone_is_served_as_that_user(former):
    for path in (*former.rglob("*"),):
        if path.parts[len(former.parts)] in {"postgres", "redis", "run"}:
            os.chown(path, 54321, 54321)
    with serve_folder(former):
        assert postgres.is_answering(former)
        assert spawn.find_service_account(former).uid == 54321


def test_a_stop_is_forced_when_the_program_does_not_listen(tmp_path):
    command = ("sh", "-c", "trap '' TERM; echo on; while :; do sleep 1; done")
    launch = spawn.Launch("deaf", command, tmp_path)
    process = spawn.start_program(launch, subprocess.PIPE)
    assert process.stdout.readline() == b"on\n"
    spawn.stop_program(process, launch, timeout=0.2)
    assert process.returncode == -signal.SIGKILL


@pytest.mark.parametrize(("limit", "megabytes"), [(1 << 30, 512), (4 << 30, 1024)])
def test_postgres_buffers_a_quarter_of_the_memory_of_its_container(tmp_path, limit, megabytes):
    told = tmp_path / "memory.max"
    told.write_text(f"{limit}\n", encoding="ascii")
    assert postgres.choose_buffer_megabytes(told) == megabytes


def test_without_a_limit_the_memory_of_the_machine_counts(tmp_path):
    told = tmp_path / "memory.max"
    told.write_text("max\n", encoding="ascii")
    found = postgres.choose_buffer_megabytes(told)
    assert found == postgres.choose_buffer_megabytes(tmp_path / "missing")
    assert 512 <= found <= 8192
