"""Sign-in against OpenLDAP's server: who comes in, what follows, what the directory ends."""

import pytest
from allauth.socialaccount.models import SocialAccount
from django.contrib.auth.models import Group, User
from django.test import Client

from nura.accounts.models import GroupDetails
from nura.accounts.roles import AccountRole, get_role, set_role
from tests.nura.accounts.conftest import PASSWORD
from tests.servers import slapd

ldap = pytest.importorskip("ldap", reason="requirements/ldap.txt is not installed")
pytest.importorskip("django_auth_ldap", reason="requirements/ldap.txt is not installed")
if not slapd.SLAPD:
    pytest.skip("slapd is not installed (Debian: slapd)", allow_module_level=True)

from nura.accounts import directory as service  # noqa: E402 - needs the library
from nura.accounts.directory import end_removed_accounts, read_id  # noqa: E402 - the same

pytestmark = pytest.mark.django_db
SECRET = "the password in the directory"
HANA = "uid=hana,ou=people"


@pytest.fixture
def directory(tmp_path, settings):
    with slapd.running(tmp_path) as server:
        settings.LDAP_URL = server.url
        settings.LDAP_START_TLS = False
        settings.LDAP_CA_FILE = ""
        settings.LDAP_BIND_DN, settings.LDAP_BIND_PASSWORD = slapd.ADMIN, slapd.ADMIN_PASSWORD
        settings.LDAP_USERS = f"ou=people,{slapd.BASE}"
        settings.LDAP_GROUPS = f"ou=groups,{slapd.BASE}"
        settings.LDAP_FILTER = "(uid=%(user)s)"
        settings.LDAP_ADMINISTRATORS, settings.LDAP_AUDITORS = "nura-admins", "nura-audit"
        settings.AUTHENTICATION_BACKENDS = [
            *settings.AUTHENTICATION_BACKENDS,
            "nura.accounts.directory.DirectoryBackend",
        ]
        add_person(server, "hana")
        yield server


def add_person(server, uid):
    server.add(
        f"uid={uid},ou=people",
        objectClass="inetOrgPerson",
        uid=uid,
        cn=uid,
        sn="김",
        mail=f"{uid.encode().hex() if not uid.isascii() else uid}@example.com",
        userPassword=SECRET,
    )


def put_in_group(server, name, *people):
    members = [f"uid={uid},ou=people,{slapd.BASE}" for uid in people] or ["cn=nobody"]
    dn = f"cn={name},ou=groups"
    try:
        server.add(dn, objectClass="groupOfNames", cn=name, member=members)
    except ldap.ALREADY_EXISTS:
        server.set(dn, "member", members)


def sign_in(name="hana", password=SECRET):
    browser = Client()
    browser.post("/accounts/login/", {"login": name, "password": password})
    key = browser.session.get("_auth_user_id")
    return browser, User.objects.get(pk=key) if key else None


def test_a_person_of_the_directory_signs_in_and_gets_an_account(directory):
    browser, user = sign_in()
    assert (user.username, user.email, user.has_usable_password()) == (
        *("hana", "hana@example.com"),
        False,
    )
    assert browser.get("/settings/keys").status_code in {200, 302}
    token = {"username": "hana", "password": SECRET}
    assert Client().post("/api/v1/auth/token", token, "application/json").status_code == 200


@pytest.mark.parametrize("password", ["wrong", "", "*", SECRET.upper()])
def test_a_wrong_password_lets_nobody_in(password, directory):
    assert sign_in(password=password)[1] is None
    assert not User.objects.exists()


@pytest.mark.parametrize("name", ["*", "hana)(uid=*", "h*", "*)(objectClass=*"])
def test_a_name_that_is_a_filter_finds_nobody(name, directory):
    assert sign_in(name)[1] is None


def test_an_account_that_is_here_is_not_taken_over_by_its_name(directory):
    local = User.objects.create_user("hana", password=PASSWORD)
    set_role(user=local, role=AccountRole.ADMINISTRATOR)
    assert sign_in()[1] is None
    assert sign_in(password=PASSWORD)[1] == local
    assert not SocialAccount.objects.exists()


def test_a_name_that_looks_like_another_gets_no_account(directory):
    add_person(directory, "аdmin")
    assert sign_in("аdmin")[1] is None


def test_who_is_renamed_in_the_directory_keeps_the_account(directory):
    _browser, before = sign_in()
    directory.rename(HANA, "uid=kim")
    _browser, after = sign_in("kim")
    assert before == after


def test_groups_and_role_follow_at_each_sign_in(directory):
    head = User.objects.create_user("head")
    set_role(user=head, role=AccountRole.ADMINISTRATOR)
    group = Group.objects.create(name="인사")
    GroupDetails.objects.create(group=group, directory_name="hr")
    for names, held, role in (
        (("hr", "nura-admins"), [group], AccountRole.ADMINISTRATOR),
        (("nura-audit",), [], AccountRole.AUDITOR),
        ((), [], AccountRole.USER),
    ):
        for name in ("hr", "nura-admins", "nura-audit"):
            put_in_group(directory, name, *(["hana"] if name in names else []))
        _browser, user = sign_in()
        assert list(user.groups.all()) == held
        assert get_role(user) == role


def test_a_directory_that_is_down_lets_local_accounts_in_and_nobody_else(directory):
    head = User.objects.create_user("head", password=PASSWORD)
    directory.stop()
    assert sign_in()[1] is None
    assert sign_in("head", PASSWORD)[1] == head
    directory.start()


def test_what_the_directory_removed_ends_within_the_check(directory):
    add_person(directory, "dul")
    browser, user = sign_in()
    sign_in("dul")
    assert end_removed_accounts() == 0
    directory.remove(HANA)
    assert end_removed_accounts() == 1
    user.refresh_from_db()
    assert not user.is_active
    assert browser.get("/settings/profile").status_code == 302


def test_the_directory_is_asked_for_many_accounts_at_once(directory, monkeypatch):
    monkeypatch.setattr(service, "IDS_A_SEARCH", 2)
    for uid in ("dul", "set"):
        add_person(directory, uid)
    for uid in ("hana", "dul", "set"):
        sign_in(uid)
    directory.remove("uid=dul,ou=people")
    assert end_removed_accounts() == 1
    held = User.objects.filter(is_active=True).order_by("username")
    assert list(held.values_list("username", flat=True)) == ["hana", "set"]


@pytest.mark.parametrize("told", [b"0123456789abcdef", "0123456789abcdef"])
def test_an_id_of_active_directory_is_bytes_even_where_it_reads_as_text(told):
    assert read_id({"objectguid": [told]}) == b"0123456789abcdef".hex()


def test_nobody_is_switched_off_because_the_directory_is_down_or_forgot_all(directory):
    for uid in ("dul", "set"):
        add_person(directory, uid)
    for uid in ("hana", "dul", "set"):
        sign_in(uid)
    for uid in ("hana", "dul", "set"):
        directory.remove(f"uid={uid},ou=people")
    assert end_removed_accounts() == 0
    directory.stop()
    with pytest.raises(ldap.LDAPError):
        end_removed_accounts()
    directory.start()
    assert User.objects.filter(is_active=True).count() == 3


def test_people_of_the_directory_may_sign_in_where_passwords_are_left_to_it(directory, settings):
    settings.LOCAL_SIGN_IN = "administrators"
    User.objects.create_user("minsu", password=PASSWORD)
    assert sign_in("minsu", PASSWORD)[1] is None
    assert sign_in()[1].username == "hana"
