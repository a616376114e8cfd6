"""OpenLDAP's server as the distribution brings it, with a few people in it."""

import contextlib
import shutil
import socket
import subprocess
import threading

SLAPD = shutil.which("slapd", path="/usr/sbin:/usr/libexec:/usr/bin")
BASE = "dc=example,dc=com"
ADMIN, ADMIN_PASSWORD = f"cn=admin,{BASE}", "secret of the searcher"
CONFIGURATION = """
include /etc/ldap/schema/core.schema
include /etc/ldap/schema/cosine.schema
include /etc/ldap/schema/inetorgperson.schema
modulepath /usr/lib/ldap
moduleload back_mdb
pidfile {folder}/pid
database mdb
suffix "{base}"
rootdn "{admin}"
rootpw "{password}"
directory {folder}/data
"""
READY_TRIES = 100


class Slapd:
    """`url` of a running server; `add`, `change` and `remove` entries."""

    def __init__(self, folder):
        self.folder = folder
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.url = f"ldap://127.0.0.1:{free.getsockname()[1]}"
        self.process = None

    def start(self):
        (self.folder / "data").mkdir(exist_ok=True)
        told = {"folder": self.folder, "base": BASE, "admin": ADMIN, "password": ADMIN_PASSWORD}
        file = self.folder / "slapd.conf"
        file.write_text(CONFIGURATION.format(**told), encoding="utf-8")
        command = [SLAPD, "-h", self.url, "-f", file, "-d", "0"]
        self.process = subprocess.Popen(command)
        pause = threading.Event()
        for _ in range(READY_TRIES):
            with contextlib.suppress(OSError):
                host, port = self.url.removeprefix("ldap://").split(":")
                socket.create_connection((host, int(port)), 1).close()
                return
            pause.wait(0.05)
        raise AssertionError("slapd does not start")

    def stop(self):
        self.process.terminate()
        self.process.wait(10)

    @contextlib.contextmanager
    def connected(self):
        import ldap

        connection = ldap.initialize(self.url)
        connection.simple_bind_s(ADMIN, ADMIN_PASSWORD)
        try:
            yield connection
        finally:
            connection.unbind_s()

    def add(self, dn, **attributes):
        listed = {k: v if isinstance(v, list) else [v] for k, v in attributes.items()}
        rows = [(name, [one.encode() for one in values]) for name, values in listed.items()]
        with self.connected() as connection:
            connection.add_s(f"{dn},{BASE}" if dn else BASE, rows)

    def set(self, dn, name, values):
        import ldap

        with self.connected() as connection:
            change = [(ldap.MOD_REPLACE, name, [one.encode() for one in values])]
            connection.modify_s(f"{dn},{BASE}", change)

    def remove(self, dn):
        with self.connected() as connection:
            connection.delete_s(f"{dn},{BASE}")

    def rename(self, dn, name):
        with self.connected() as connection:
            connection.rename_s(f"{dn},{BASE}", name)


@contextlib.contextmanager
def running(folder):
    """The server, empty but for its two branches."""
    server = Slapd(folder)
    server.start()
    try:
        server.add("", objectClass=["dcObject", "organization"], dc="example", o="Example")
        for branch in ("people", "groups"):
            server.add(f"ou={branch}", objectClass="organizationalUnit", ou=branch)
        yield server
    finally:
        server.stop()
