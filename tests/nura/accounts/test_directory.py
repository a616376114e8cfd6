"""Sign-in against OpenLDAP's server: who comes in, what follows, what the directory ends."""

import pytest
from allauth.socialaccount.models import SocialAccount
from django.contrib.auth.models import Group, User
from django.test import Client

from nura.accounts.roles import AccountRole, get_role, set_role
from nura.models import GroupDetails
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


def use(settings, server):
    """Set up Nura for it; the filter is as it comes, but for what a server does not know."""
    settings.LDAP_URL = server.url
    settings.LDAP_START_TLS = server.demands_tls
    settings.LDAP_CA_FILE = str(server.certificate) if server.demands_tls else ""
    settings.LDAP_BIND_DN, settings.LDAP_BIND_PASSWORD = slapd.ADMIN, slapd.ADMIN_PASSWORD
    settings.LDAP_USERS = f"ou=people,{slapd.BASE}"
    settings.LDAP_GROUPS = f"ou=groups,{slapd.BASE}"
    settings.LDAP_ADMINISTRATORS, settings.LDAP_AUDITORS = "nura-admins", "nura-audit"
    settings.AUTHENTICATION_BACKENDS = [
        *settings.AUTHENTICATION_BACKENDS,
        "nura.accounts.directory.DirectoryBackend",
    ]


@pytest.fixture
def directory(tmp_path, settings):
    with slapd.run_server(tmp_path) as server:
        use(settings, server)
        add_person(server, "hana")
        yield server


@pytest.fixture
def active_directory(tmp_path, settings):
    with slapd.run_server(tmp_path, is_active_directory=True) as server:
        use(settings, server)
        settings.LDAP_BIND_DN, settings.LDAP_BIND_PASSWORD = slapd.READER, slapd.READER_PASSWORD
        add_user(server, "Kim Hana", "hana")
        yield server


@pytest.fixture
def encrypted(tmp_path, settings):
    with slapd.run_server(tmp_path, demands_tls=True) as server:
        use(settings, server)
        add_person(server, "hana")
        yield server


def add_user(server, name, account, guid=b""):
    """A person as Active Directory keeps one."""
    server.add(
        f"cn={name},ou=people",
        objectClass="user",
        cn=name,
        sn="김",
        displayName="김하나",
        sAMAccountName=account,
        userPrincipalName=f"{account}.kim@corp.example.com",
        objectGUID=guid or account.encode().ljust(16, b"\x9f"),
        userAccountControl="512",
        userPassword=SECRET,
    )


def add_group(server, name, *members):
    dns = [f"{member},{slapd.BASE}" for member in members]
    server.add(f"cn={name},ou=groups", objectClass="group", cn=name, member=dns)


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
        server.replace_values(dn, "member", members)


def sign_in(name="hana", password=SECRET):
    browser = Client()
    browser.post("/accounts/login/", {"login": name, "password": password})
    key = browser.session.get("_auth_user_id")
    return browser, User.objects.get(pk=key) if key else None


def list_active():
    held = User.objects.filter(is_active=True).order_by("username")
    return list(held.values_list("username", flat=True))


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
    browser, _user = sign_in()
    sign_in("dul")
    end_removed_accounts()
    assert list_active() == ["dul", "hana"]
    directory.remove(HANA)
    end_removed_accounts()
    assert list_active() == ["dul"]
    assert browser.get("/settings/profile").status_code == 302


def test_the_directory_is_asked_for_many_accounts_at_once(directory, monkeypatch):
    monkeypatch.setattr(service, "IDS_A_SEARCH", 2)
    for uid in ("dul", "set"):
        add_person(directory, uid)
    for uid in ("hana", "dul", "set"):
        sign_in(uid)
    directory.remove("uid=dul,ou=people")
    end_removed_accounts()
    assert list_active() == ["hana", "set"]


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
    end_removed_accounts()
    directory.stop()
    with pytest.raises(ldap.LDAPError):
        end_removed_accounts()
    directory.start()
    assert list_active() == ["dul", "hana", "set"]


def test_people_of_the_directory_may_sign_in_where_passwords_are_left_to_it(directory, settings):
    settings.LOCAL_SIGN_IN = "administrators"
    User.objects.create_user("minsu", password=PASSWORD)
    assert sign_in("minsu", PASSWORD)[1] is None
    assert sign_in()[1].username == "hana"


@pytest.mark.parametrize("typed", ["hana", "HANA", "hana.kim@corp.example.com"])
def test_a_person_of_active_directory_signs_in_by_either_name(typed, active_directory):
    _browser, user = sign_in(typed)
    assert (user.username, user.first_name) == ("hana", "김하나")
    assert SocialAccount.objects.get(user=user).uid == b"hana".ljust(16, b"\x9f").hex()


def test_both_names_of_active_directory_are_one_account_that_outlives_them(active_directory):
    _browser, before = sign_in("hana")
    assert sign_in("hana.kim@corp.example.com")[1] == before
    active_directory.replace_values("cn=Kim Hana,ou=people", "sAMAccountName", ["hlee"])
    active_directory.rename("cn=Kim Hana,ou=people", "cn=Lee Hana")
    assert sign_in("hlee")[1] == before


@pytest.mark.parametrize(
    "guid",
    [
        *(b"0123456789abcdef", "가나다라마".encode() + b"a", b"*)(cn=*)\\2a\0\0\0\0\0"),
        *(b"0000-0000-000-00", bytes(16), b"\xff" * 16),
    ],
)
def test_an_id_of_active_directory_names_one_person_whatever_its_bytes_read_as(
    guid, active_directory
):
    add_user(active_directory, "Lee Dul", "dul", guid)
    _browser, before = sign_in("dul")
    assert SocialAccount.objects.get(user=before).uid == guid.hex()
    sign_in("hana")
    end_removed_accounts()
    assert list_active() == ["dul", "hana"]
    active_directory.replace_values("cn=Lee Dul,ou=people", "sAMAccountName", ["renamed"])
    assert sign_in("renamed")[1] == before
    active_directory.remove("cn=Lee Dul,ou=people")
    end_removed_accounts()
    assert list_active() == ["hana"]


def test_groups_within_groups_of_active_directory_count(active_directory):
    head = User.objects.create_user("head")
    set_role(user=head, role=AccountRole.ADMINISTRATOR)
    group = Group.objects.create(name="인사")
    GroupDetails.objects.create(group=group, directory_name="division")
    add_group(active_directory, "hr", "cn=Kim Hana,ou=people")
    add_group(active_directory, "division", "cn=hr,ou=groups")
    add_group(active_directory, "nura-admins", "cn=division,ou=groups", "cn=nura-admins,ou=groups")
    _browser, user = sign_in()
    assert list(user.groups.all()) == [group]
    assert get_role(user) == AccountRole.ADMINISTRATOR


def test_a_filter_by_member_of_lets_in_the_members_and_ends_who_is_none_any_more(
    active_directory, settings
):
    for number, account in enumerate(("hana", "dul", "set")):
        if number:
            add_user(active_directory, account, account)
    add_group(active_directory, "nura-users", "cn=Kim Hana,ou=people", "cn=dul,ou=people")
    settings.LDAP_FILTER = (
        "(&(|(sAMAccountName=%(user)s)(userPrincipalName=%(user)s))"
        f"(memberOf=cn=nura-users,ou=groups,{slapd.BASE}))"
    )
    assert [sign_in(name)[1] is not None for name in ("hana", "dul", "set")] == [True, True, False]
    end_removed_accounts()
    assert list_active() == ["dul", "hana"]
    members = [f"cn=dul,ou=people,{slapd.BASE}"]
    active_directory.replace_values("cn=nura-users,ou=groups", "member", members)
    end_removed_accounts()
    assert list_active() == ["dul"]


def test_whom_active_directory_disables_is_switched_off(active_directory):
    add_user(active_directory, "dul", "dul")
    for name in ("hana", "dul"):
        sign_in(name)
    active_directory.replace_values("cn=dul,ou=people", "userAccountControl", ["514"])
    end_removed_accounts()
    assert list_active() == ["hana"]


def test_start_tls_encrypts_the_sign_in_and_the_check(encrypted):
    add_person(encrypted, "dul")
    assert sign_in()[1].username == "hana"
    sign_in("dul")
    encrypted.remove(HANA)
    end_removed_accounts()
    assert list_active() == ["dul"]


def test_a_directory_with_another_certificate_is_told_no_password(encrypted, settings, tmp_path):
    sign_in()
    other = tmp_path / "other.pem"
    slapd.write_certificate(other, tmp_path / "other-key.pem")
    settings.LDAP_CA_FILE = str(other)
    assert sign_in()[1] is None
    with pytest.raises(ldap.CONNECT_ERROR):
        end_removed_accounts()


def test_a_directory_without_start_tls_is_told_no_password(directory, settings):
    sign_in()
    settings.LDAP_START_TLS = True
    assert sign_in()[1] is None
    with pytest.raises(ldap.LDAPError):
        end_removed_accounts()
