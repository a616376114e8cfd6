"""OpenLDAP's server from the distribution, with a few people in it.

It can imitate Active Directory (its names, ids and flags, and `memberOf` maintained by the server)
and demand StartTLS.
"""

import contextlib
import datetime as dt
import ipaddress
import shutil
import socket
import subprocess
import threading

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

SLAPD = shutil.which("slapd", path="/usr/sbin:/usr/libexec:/usr/bin")
BASE = "dc=example,dc=com"
ADMIN, ADMIN_PASSWORD = f"cn=admin,{BASE}", "secret of the searcher"
CONFIGURATION = """
include /etc/ldap/schema/core.schema
include /etc/ldap/schema/cosine.schema
include /etc/ldap/schema/inetorgperson.schema
{schema}
modulepath /usr/lib/ldap
moduleload back_mdb
moduleload memberof
pidfile {folder}/pid
{tls}
database mdb
suffix "{base}"
rootdn "{admin}"
rootpw "{password}"
directory {folder}/data
overlay memberof
memberof-group-oc {group_class}
memberof-member-ad member
{access}
"""
ACTIVE_DIRECTORY = """
attributetype ( 1.2.840.113556.1.4.221 NAME 'sAMAccountName' EQUALITY caseIgnoreMatch
  SYNTAX 1.3.6.1.4.1.1466.115.121.1.15 SINGLE-VALUE )
attributetype ( 1.2.840.113556.1.4.656 NAME 'userPrincipalName' EQUALITY caseIgnoreMatch
  SYNTAX 1.3.6.1.4.1.1466.115.121.1.15 SINGLE-VALUE )
attributetype ( 1.2.840.113556.1.4.2 NAME 'objectGUID' EQUALITY octetStringMatch
  SYNTAX 1.3.6.1.4.1.1466.115.121.1.40 SINGLE-VALUE )
attributetype ( 1.2.840.113556.1.4.8 NAME 'userAccountControl' EQUALITY integerMatch
  SYNTAX 1.3.6.1.4.1.1466.115.121.1.27 SINGLE-VALUE )
objectclass ( 1.2.840.113556.1.5.9 NAME 'user' SUP organizationalPerson STRUCTURAL
  MAY ( sAMAccountName $ userPrincipalName $ objectGUID $ userAccountControl $ mail
  $ displayName ) )
objectclass ( 1.2.840.113556.1.5.8 NAME 'group' SUP top STRUCTURAL MUST cn MAY member )
"""
"""The part of Active Directory's schema that is used here, with its object ids."""
ACCESS = """
access to attrs=entryUUID by * none
access to attrs=userPassword by anonymous auth
access to * by users read
"""
"""Active Directory has no `entryUUID`, and everybody who signs in may read."""
READER, READER_PASSWORD = f"cn=nura,ou=services,{BASE}", "secret of the reader"
TLS = """
TLSCACertificateFile {folder}/certificate.pem
TLSCertificateFile {folder}/certificate.pem
TLSCertificateKeyFile {folder}/key.pem
security simple_bind=128
"""
"""Refuses passwords over unencrypted connections."""
READY_TRIES = 100


class Slapd:
    """A server at `url`, with methods that change its entries."""

    def __init__(self, folder, *, is_active_directory=False, demands_tls=False):
        self.folder = folder
        self.is_active_directory, self.demands_tls = is_active_directory, demands_tls
        self.certificate = folder / "certificate.pem"
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.url = f"ldap://127.0.0.1:{probe.getsockname()[1]}"
        self.process = None

    def start(self):
        (self.folder / "data").mkdir(exist_ok=True)
        values = {"folder": self.folder, "base": BASE, "admin": ADMIN, "password": ADMIN_PASSWORD}
        values["schema"] = ACTIVE_DIRECTORY if self.is_active_directory else ""
        values["access"] = ACCESS if self.is_active_directory else ""
        values["group_class"] = "group" if self.is_active_directory else "groupOfNames"
        values["tls"] = ""
        if self.demands_tls:
            write_certificate(self.certificate, self.folder / "key.pem")
            values["tls"] = TLS.format(folder=self.folder)
        file = self.folder / "slapd.conf"
        file.write_text(CONFIGURATION.format(**values), encoding="utf-8")
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
    def connect(self):
        import ldap

        connection = ldap.initialize(self.url)
        if self.demands_tls:
            connection.set_option(ldap.OPT_X_TLS_CACERTFILE, str(self.certificate))
            connection.set_option(ldap.OPT_X_TLS_NEWCTX, 0)
            connection.start_tls_s()
        connection.simple_bind_s(ADMIN, ADMIN_PASSWORD)
        try:
            yield connection
        finally:
            connection.unbind_s()

    def add(self, dn, **attributes):
        lists = {k: v if isinstance(v, list) else [v] for k, v in attributes.items()}
        rows = [(name, list(map(_to_bytes, values))) for name, values in lists.items()]
        with self.connect() as connection:
            connection.add_s(f"{dn},{BASE}" if dn else BASE, rows)

    def replace_values(self, dn, name, values):
        import ldap

        with self.connect() as connection:
            change = [(ldap.MOD_REPLACE, name, list(map(_to_bytes, values)))]
            connection.modify_s(f"{dn},{BASE}", change)

    def remove(self, dn):
        with self.connect() as connection:
            connection.delete_s(f"{dn},{BASE}")

    def rename(self, dn, name):
        with self.connect() as connection:
            connection.rename_s(f"{dn},{BASE}", name)


def _to_bytes(value):
    return value if isinstance(value, bytes) else value.encode()


def write_certificate(certificate, key):
    """Write a self-signed certificate for this machine and its key."""
    private = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "localhost")])
    now = dt.datetime.now(dt.UTC)
    # not localhost, for which the library puts the host name
    here = x509.IPAddress(ipaddress.ip_address("127.0.0.1"))
    names = x509.SubjectAlternativeName([here])
    signed = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(private.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - dt.timedelta(days=1))
        .not_valid_after(now + dt.timedelta(days=1))
        .add_extension(names, critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(private, hashes.SHA256())
    )
    certificate.write_bytes(signed.public_bytes(serialization.Encoding.PEM))
    plain = (serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    key.write_bytes(private.private_bytes(serialization.Encoding.PEM, *plain))


@contextlib.contextmanager
def run_server(folder, **options):
    """Run a server that is empty except for its two branches."""
    server = Slapd(folder, **options)
    server.start()
    try:
        server.add("", objectClass=["dcObject", "organization"], dc="example", o="Example")
        for branch in ("people", "groups"):
            server.add(f"ou={branch}", objectClass="organizationalUnit", ou=branch)
        if server.is_active_directory:
            server.add("ou=services", objectClass="organizationalUnit", ou="services")
            reader = {"objectClass": "user", "cn": "nura", "sn": "nura"}
            server.add("cn=nura,ou=services", userPassword=READER_PASSWORD, **reader)
        yield server
    finally:
        server.stop()
