"""Sign-on by OpenID Connect, against a server that runs: who comes in, and as whom."""

import re
import time
from urllib.parse import parse_qs, urlsplit

import pytest
import requests
from allauth.account.models import EmailAddress
from allauth.socialaccount.models import SocialAccount
from django.contrib.auth.models import Group, User
from django.test import Client
from joserfc.jwk import RSAKey

from documents.audit import Action, AuditEvent
from documents.secrets import seal_secret
from nura.accounts import services, sign_on
from nura.accounts.roles import AccountRole, get_role, set_role
from nura.accounts.signup import build_path, create_invitation
from nura.models import GroupDetails, SignOnServer
from tests.nura.accounts.conftest import PASSWORD
from tests.servers import oidc
from tests.servers.hostile import HostileServer

pytestmark = pytest.mark.django_db

HANA = {
    "sub": "1001",
    "preferred_username": "hana",
    "name": "김하나",
    "email": "hana@example.com",
    "email_verified": True,
}


@pytest.fixture
def server():
    with oidc.run_server(person=dict(HANA)) as running:
        yield running


@pytest.fixture
def keycloak(server):
    return set_up(server)


def set_up(server, **fields):
    given = {"slug": "keycloak", "name": "Keycloak", "sign_up": "everybody"} | fields
    return SignOnServer.objects.create(
        issuer=server.url,
        client_id=oidc.CLIENT_ID,
        sealed_secret=seal_secret(oidc.CLIENT_SECRET),
        **given,
    )


def make_browser():
    browser = Client()
    browser.cookies["django_language"] = "en"
    return browser


def begin(browser, slug="keycloak", query=""):
    """Press the button, and come back from the server's page: the address with the code."""
    sent = browser.get(f"/accounts/oidc/{slug}/login/{query}")
    assert sent.status_code == 302, sent.content.decode()[-1500:]
    back = requests.get(sent.url, allow_redirects=False, timeout=5)
    assert back.status_code == 302, back.text
    parts = urlsplit(back.headers["Location"])
    return f"{parts.path}?{parts.query}"


def sign_in_by_provider(browser=None, **more):
    browser = browser or make_browser()
    return browser, browser.get(begin(browser, **more))


def get_signed_in_user(browser):
    key = browser.session.get("_auth_user_id")
    return User.objects.get(pk=key) if key else None


def test_a_person_who_is_new_gets_an_account_and_is_signed_in(server, keycloak):
    browser, answer = sign_in_by_provider()
    assert (answer.status_code, answer.url) == (302, "/")
    user = get_signed_in_user(browser)
    assert (user.username, user.email, user.has_usable_password()) == (
        *("hana", "hana@example.com"),
        False,
    )
    assert EmailAddress.objects.get(user=user).verified
    assert browser.get("/").status_code == 200
    assert AuditEvent.objects.filter(action=Action.ACCOUNT_CREATED, subject_id=user.pk).exists()


def test_the_same_person_comes_back_to_the_same_account_under_another_name(server, keycloak):
    first, _answer = sign_in_by_provider()
    server.person |= {"preferred_username": "kim", "email": "kim@example.com"}
    second, _answer = sign_in_by_provider()
    assert get_signed_in_user(first) == get_signed_in_user(second)
    assert User.objects.count() == 1


def test_pkce_and_a_nonce_are_used(server, keycloak):
    browser = make_browser()
    sent = browser.get("/accounts/oidc/keycloak/login/")
    asked = parse_qs(urlsplit(sent.url).query)
    assert asked["code_challenge_method"] == ["S256"]
    assert len(asked["nonce"][0]) >= 32
    sign_in_by_provider()
    assert len(server.verifiers[0]) >= 43


def test_a_visitor_cannot_choose_what_is_asked_of_the_server(server, keycloak):
    query = "?auth_params=nonce%3Dmine%26prompt%3Dnone&scope=admin&process=connect"
    asked = parse_qs(
        urlsplit(make_browser().get(f"/accounts/oidc/keycloak/login/{query}").url).query
    )
    assert asked["nonce"] != ["mine"]
    assert "prompt" not in asked
    assert set(asked["scope"][0].split()) == {"openid", "profile", "email"}


def check_refusal(browser, answer, status=401):
    assert answer.status_code == status
    assert get_signed_in_user(browser) is None
    assert not User.objects.exists()
    assert AuditEvent.objects.filter(action=Action.SIGN_IN_FAILED).exists()
    return answer.content.decode()


PAST = int(time.time()) - 3600
LIES = {
    "another issuer": {"iss": "https://evil.example.com"},
    "another audience": {"aud": "another-client"},
    "several audiences, for another": {"aud": ["nura", "other"], "azp": "other"},
    "expired": {"exp": PAST, "iat": PAST - 60},
    "without an end": {"exp": None},
    "another nonce": {"nonce": "replayed"},
    "no nonce": {"nonce": None},
    "no subject": {"sub": None},
}


@pytest.mark.parametrize("lie", LIES)
def test_a_token_that_is_not_right_lets_nobody_in(lie, server, keycloak):
    server.wrong_claims = LIES[lie]
    check_refusal(*sign_in_by_provider())


def test_a_token_signed_by_somebody_else_lets_nobody_in(server, keycloak):
    server.signed_with = RSAKey.generate_key(2048, {"kid": "one"})
    check_refusal(*sign_in_by_provider())


def test_what_is_told_of_another_subject_lets_nobody_in(server, keycloak):
    server.userinfo = {"sub": "1"}
    check_refusal(*sign_in_by_provider())


def test_a_server_that_calls_itself_otherwise_is_not_asked(server, keycloak):
    server.discovery = {"issuer": "https://evil.example.com"}
    browser = make_browser()
    check_refusal(browser, browser.get("/accounts/oidc/keycloak/login/"))


@pytest.mark.parametrize("moment", ["before", "after"])
def test_a_server_that_is_down_is_told_in_words(moment, server, keycloak):
    browser = make_browser()
    address = begin(browser) if moment == "after" else "/accounts/oidc/keycloak/login/"
    server.is_down = True
    assert "Keycloak could not be reached" in check_refusal(browser, browser.get(address))


def test_a_code_of_another_browser_lets_nobody_in(server, keycloak):
    address = begin(make_browser())
    browser = make_browser()
    begin(browser)
    check_refusal(browser, browser.get(address))


def test_a_code_is_good_once(server, keycloak):
    browser = make_browser()
    address = begin(browser)
    browser.get(address)
    again = make_browser()
    assert again.get(address).status_code == 401
    assert get_signed_in_user(again) is None


def test_an_address_that_is_not_verified_takes_over_no_account(server):
    set_up(server, link_by_email=True)
    owner = User.objects.create_user("owner", "hana@example.com", PASSWORD)
    server.person["email_verified"] = False
    browser, _answer = sign_in_by_provider()
    assert get_signed_in_user(browser) != owner
    assert get_signed_in_user(browser).email == ""
    assert not SocialAccount.objects.filter(user=owner).exists()


def test_a_verified_address_takes_over_no_account_unless_linking_is_allowed(server, keycloak):
    owner = User.objects.create_user("owner", "Hana@Example.com", PASSWORD)
    browser, answer = sign_in_by_provider()
    assert answer.status_code == 403
    assert "already has the e-mail address" in answer.content.decode()
    assert get_signed_in_user(browser) is None
    assert list(User.objects.all()) == [owner]


def test_a_verified_address_gets_its_account_where_linking_is_allowed(server):
    set_up(server, link_by_email=True)
    owner = User.objects.create_user("owner", "hana@example.com", PASSWORD)
    EmailAddress.objects.create(user=owner, email="hana@example.com", verified=True, primary=True)
    key = services.create_key(user=owner)
    browser, _answer = sign_in_by_provider()
    assert get_signed_in_user(browser) == owner
    owner.refresh_from_db()
    assert owner.check_password(PASSWORD)
    headers = {"Authorization": f"Token {key}"}
    assert Client().get("/api/v1/me", headers=headers).status_code == 200


def test_who_typed_the_address_of_somebody_else_loses_password_and_keys(server):
    set_up(server, link_by_email=True)
    squatter = User.objects.create_user("owner", "hana@example.com", PASSWORD)
    key = services.create_key(user=squatter)
    browser, _answer = sign_in_by_provider()
    assert get_signed_in_user(browser) == squatter
    squatter.refresh_from_db()
    assert not squatter.has_usable_password()
    headers = {"Authorization": f"Token {key}"}
    assert Client().get("/api/v1/me", headers=headers).status_code == 401


def test_an_administrator_is_never_linked_by_an_address(server):
    set_up(server, link_by_email=True)
    head = User.objects.create_user("head", "hana@example.com", PASSWORD)
    set_role(user=head, role=AccountRole.ADMINISTRATOR)
    browser, answer = sign_in_by_provider()
    assert answer.status_code == 403
    assert get_signed_in_user(browser) is None


@pytest.mark.parametrize(
    ("told", "got"),
    [
        ("admin", "admin2"),
        ("ADMIN", "ADMIN2"),
        ("аdmin", "hana"),
        ("\u200badmin", "hana"),
        ("a b", "hana"),
    ],
)
def test_a_name_that_somebody_has_or_that_looks_like_it_is_not_taken(told, got, server, keycloak):
    User.objects.create_user("admin", password=PASSWORD)
    server.person["preferred_username"] = told
    browser, _answer = sign_in_by_provider()
    assert get_signed_in_user(browser).username == got


def test_a_deactivated_account_stays_out(server, keycloak):
    sign_in_by_provider()
    User.objects.update(is_active=False)
    browser, _answer = sign_in_by_provider()
    assert get_signed_in_user(browser) is None
    assert User.objects.count() == 1


def test_only_addresses_of_the_organization_come_in(server):
    set_up(server, domains="example.co.kr, example.org")
    browser, answer = sign_in_by_provider()
    assert "no verified e-mail address of this organization" in check_refusal(browser, answer, 403)


def test_a_server_that_verifies_nothing_can_be_vouched_for(server):
    set_up(server, vouches_for_email=True, domains="example.com")
    del server.person["email_verified"]
    browser, _answer = sign_in_by_provider()
    assert get_signed_in_user(browser).email == "hana@example.com"


def test_only_the_invited_get_an_account_where_that_is_set(server):
    set_up(server, sign_up="invited")
    browser, answer = sign_in_by_provider()
    assert get_signed_in_user(browser) is None
    assert "by invitation" in answer.content.decode()
    group = Group.objects.create(name="인사팀")
    _invitation, secret = create_invitation(by=None, max_uses=5, groups=[group])
    browser.get(build_path(secret))
    sign_in_by_provider(browser)
    assert list(get_signed_in_user(browser).groups.all()) == [group]


def test_an_invited_address_gets_its_account_without_the_link(server):
    set_up(server, sign_up="invited")
    invitation, _secret = create_invitation(by=None, email="hana@example.com")
    browser, _answer = sign_in_by_provider()
    invitation.refresh_from_db()
    assert invitation.used_by == get_signed_in_user(browser)


def test_groups_of_the_server_are_followed_at_each_sign_in(server):
    set_up(server, groups_claim="groups")
    group, other = (Group.objects.create(name=name) for name in ("인사", "재무"))
    GroupDetails.objects.create(group=group, directory_name="hr")
    GroupDetails.objects.create(group=other, directory_name="finance")
    for told, held in ((["/hr", "x"], {group}), ("finance", {other}), ([], set())):
        server.person["groups"] = told
        browser, _answer = sign_in_by_provider()
        assert set(get_signed_in_user(browser).groups.all()) == held


def test_groups_that_are_too_many_to_be_told_stay_as_they_are(server):
    set_up(server, groups_claim="groups")
    group = Group.objects.create(name="인사")
    GroupDetails.objects.create(group=group, directory_name="hr")
    server.person["groups"] = ["hr"]
    sign_in_by_provider()
    del server.person["groups"]
    server.person["_claim_names"] = {"groups": "src1"}
    browser, _answer = sign_in_by_provider()
    assert list(get_signed_in_user(browser).groups.all()) == [group]


def test_the_server_gives_and_takes_the_roles_that_it_is_asked_for(server):
    head = User.objects.create_user("head")
    set_role(user=head, role=AccountRole.ADMINISTRATOR)
    set_up(server, groups_claim="roles", administrators="nura-admins", auditors="nura-audit")
    for told, role in (
        (["nura-admins"], AccountRole.ADMINISTRATOR),
        (["nura-audit"], AccountRole.AUDITOR),
        ([], AccountRole.USER),
    ):
        server.person["roles"] = told
        browser, _answer = sign_in_by_provider()
        assert get_role(get_signed_in_user(browser)) == role


def test_the_server_cannot_end_the_last_administrator(server):
    set_up(server, groups_claim="roles", administrators="nura-admins")
    server.person["roles"] = ["nura-admins"]
    sign_in_by_provider()
    server.person["roles"] = []
    browser, _answer = sign_in_by_provider()
    assert get_role(get_signed_in_user(browser)) == AccountRole.ADMINISTRATOR


def test_roles_stay_as_they_are_where_the_server_is_not_asked(server, keycloak):
    browser, _answer = sign_in_by_provider()
    set_role(user=get_signed_in_user(browser), role=AccountRole.ADMINISTRATOR)
    server.person["groups"] = ["x"]
    browser, _answer = sign_in_by_provider()
    assert get_role(get_signed_in_user(browser)) == AccountRole.ADMINISTRATOR


def test_two_servers_with_the_same_subject_are_two_people(server, keycloak):
    sign_in_by_provider()
    with oidc.run_server(person=HANA | {"email": "another@example.org"}) as second:
        set_up(second, slug="google", name="Google")
        sign_in_by_provider(slug="google")
    assert User.objects.count() == 2


def test_the_sign_in_page_has_a_button_for_each_server_that_is_switched_on(server, keycloak):
    set_up(server, slug="off", name="Old one", is_active=False)
    page = make_browser().get("/accounts/login/?next=/documents").content.decode()
    assert "Sign in with Keycloak" in page
    assert 'href="/accounts/oidc/keycloak/login/?next=/documents"' in page
    assert "Old one" not in page
    assert make_browser().get("/accounts/oidc/off/login/").status_code == 404


def test_one_comes_back_to_where_one_wanted_to_go_and_nowhere_else(server, keycloak):
    _browser, answer = sign_in_by_provider(query="?next=/documents")
    assert answer.url == "/documents"
    _browser, answer = sign_in_by_provider(query="?next=https://evil.example.com/")
    assert answer.url == "/"


def test_signing_out_leads_to_the_sign_out_of_the_server(server, keycloak):
    browser, _answer = sign_in_by_provider()
    page = browser.post("/accounts/logout/", follow=True)
    assert page.redirect_chain[0][0] == "/accounts/oidc/keycloak/signed-out/"
    assert f"{server.url}/end?client_id=nura&amp;post_logout_redirect_uri=" in page.content.decode()
    assert get_signed_in_user(browser) is None


def test_passwords_can_be_left_to_administrators(server, keycloak, settings):
    settings.LOCAL_SIGN_IN = "administrators"
    User.objects.create_user("minsu", password=PASSWORD)
    head = User.objects.create_user("head", password=PASSWORD)
    set_role(user=head, role=AccountRole.ADMINISTRATOR)
    form = {"login": "minsu", "password": PASSWORD}
    browser = make_browser()
    browser.post("/accounts/login/", form)
    assert get_signed_in_user(browser) is None
    token = {"username": "minsu", "password": PASSWORD}
    assert Client().post("/api/v1/auth/token", token, "application/json").status_code == 401
    browser.post("/accounts/login/", form | {"login": "head"})
    assert get_signed_in_user(browser) == head
    other, _answer = sign_in_by_provider()
    assert get_signed_in_user(other).username == "hana"


@pytest.fixture
def heads_browser():
    """Of an administrator, signed in."""
    head = User.objects.create_user("head")
    set_role(user=head, role=AccountRole.ADMINISTRATOR)
    browser = make_browser()
    browser.force_login(head)
    return browser


def fill_in(server):
    """What an administrator enters of a new server."""
    return {
        "name": "Keycloak",
        "slug": "keycloak",
        "issuer": f"{server.url}/.well-known/openid-configuration",
        "client_id": "nura",
        "secret": oidc.CLIENT_SECRET,
        "is_active": "on",
        "sign_up": "everybody",
    }


def test_a_new_server_with_the_short_name_of_a_deleted_one_opens_no_account_of_it(
    server, keycloak, heads_browser
):
    first, _answer = sign_in_by_provider()
    hana = get_signed_in_user(first)
    keycloak.delete()
    heads_browser.post("/admin/nura/signonserver/add/", fill_in(server))
    server.person |= {"preferred_username": "mallory", "email": "mallory@example.com"}
    other, _answer = sign_in_by_provider()
    assert get_signed_in_user(other).username == "mallory"
    assert list_connections(hana) == []
    ended = AuditEvent.objects.get(action=Action.ACCOUNT_CHANGED, subject_id=hana.pk)
    assert ended.details == {"change": "account_disconnected", "server": "keycloak"}


def test_changing_a_server_leaves_its_connections(server, keycloak, heads_browser):
    first, _answer = sign_in_by_provider()
    address = f"/admin/nura/signonserver/{keycloak.pk}/change/"
    heads_browser.post(address, fill_in(server) | {"name": "Renamed"})
    keycloak.refresh_from_db()
    assert keycloak.name == "Renamed"
    assert list_connections(get_signed_in_user(first)) == [("keycloak", "1001")]


def test_a_server_cannot_pass_for_the_directory(server, heads_browser):
    hana = User.objects.create_user("hana")
    SocialAccount.objects.create(user=hana, provider="ldap", uid="1001")
    heads_browser.post("/admin/nura/signonserver/add/", fill_in(server) | {"slug": "ldap"})
    assert not SignOnServer.objects.exists()
    assert list_connections(hana) == [("ldap", "1001")]


def test_an_administrator_sets_up_a_server_whose_secret_is_sealed(server, settings, heads_browser):
    browser, form = heads_browser, fill_in(server)
    page = browser.post("/admin/nura/signonserver/add/", form, follow=True).content.decode()
    assert "http://testserver/accounts/oidc/keycloak/login/callback/" in page
    assert "The server answers." in page
    made = SignOnServer.objects.get()
    assert oidc.CLIENT_SECRET not in made.sealed_secret
    address = f"/admin/nura/signonserver/{made.pk}/change/"
    assert oidc.CLIENT_SECRET not in browser.get(address).content.decode()
    browser.post(address, form | {"secret": "", "name": "Renamed"})
    signed_in, _answer = sign_in_by_provider()
    assert get_signed_in_user(signed_in).username == "hana"
    unsafe = form | {"slug": "other", "issuer": "http://login.example.com"}
    page = browser.post("/admin/nura/signonserver/add/", unsafe).content.decode()
    assert "must begin with https://" in page


# Connecting an account by hand


@pytest.fixture
def minsus_browser(minsu):
    """Signed in with a password, which was asked for again just now."""
    browser = make_browser()
    browser.force_login(minsu)
    browser.post("/accounts/reauthenticate/", {"password": PASSWORD})
    return browser


def ask_to_connect(browser, slug="keycloak"):
    """What the page of the settings leads to: the link to the server."""
    page = browser.get(f"/settings/sign-on/{slug}").content.decode()
    found = re.search(rf'href="/accounts/oidc/{slug}/login/(\?connect=[^"]+)"', page)
    assert found, page
    return found[1]


def connect(browser, slug="keycloak", query=None):
    link = query or ask_to_connect(browser, slug)
    return browser.get(begin(browser, slug, link), follow=True)


def list_connections(user):
    return list(SocialAccount.objects.filter(user=user).values_list("provider", "uid"))


def test_a_person_connects_an_account_by_hand_and_signs_in_with_it(
    server, keycloak, minsu, minsus_browser
):
    answer = connect(minsus_browser)
    assert answer.redirect_chain == [("/settings/sign-on", 302)]
    assert "Connected. You can now sign in with Keycloak." in answer.content.decode()
    assert list_connections(minsu) == [("keycloak", "1001")]
    minsu.refresh_from_db()
    assert (minsu.email, minsu.check_password(PASSWORD)) == ("minsu@example.com", True)
    assert not EmailAddress.objects.filter(email="hana@example.com").exists()
    told = AuditEvent.objects.get(action=Action.ACCOUNT_CHANGED, subject_id=minsu.pk).details
    assert told == {"change": "account_connected", "server": "keycloak"}
    other, _answer = sign_in_by_provider()
    assert get_signed_in_user(other) == minsu


def test_connecting_asks_for_the_password_first(server, keycloak, minsus_client):
    answer = minsus_client.get("/settings/sign-on/keycloak")
    assert answer.url.startswith("/accounts/reauthenticate/")
    assert "%2Fsettings%2Fsign-on%2Fkeycloak" in answer.url


def test_who_has_nothing_here_to_prove_must_have_signed_in_just_now(server, keycloak):
    other = set_up(server, slug="entra", name="Entra")
    browser, _answer = sign_in_by_provider()
    assert ask_to_connect(browser, "entra")
    session = browser.session
    for record in session["account_authentication_methods"]:
        record["at"] -= 3600
    session.save()
    page = browser.get(f"/settings/sign-on/{other.slug}").content.decode()
    assert "You signed in a while ago." in page
    assert "?connect=" not in page


@pytest.mark.parametrize(
    "forge",
    ["?connect=made-up", "?connect=", "?process=connect&connect=x", "of another session"],
)
def test_no_address_of_somebody_else_connects_anything(
    forge, server, keycloak, minsu, minsus_browser, stranger
):
    if forge == "of another session":
        theirs = make_browser()
        theirs.force_login(stranger)
        theirs.post("/accounts/reauthenticate/", {"password": PASSWORD})
        forge = ask_to_connect(theirs)
    answer = minsus_browser.get(f"/accounts/oidc/keycloak/login/{forge}")
    assert answer.url == "/settings/sign-on"
    assert not SocialAccount.objects.exists()
    assert get_signed_in_user(minsus_browser) == minsu


def test_a_link_that_is_used_after_signing_out_connects_and_signs_in_nobody(
    server, keycloak, minsus_browser
):
    link = ask_to_connect(minsus_browser)
    minsus_browser.logout()
    answer = minsus_browser.get(f"/accounts/oidc/keycloak/login/{link}", follow=True)
    assert answer.redirect_chain[-1][0] == "/accounts/login/?next=/settings/sign-on"


def test_an_account_that_signs_in_to_another_here_cannot_be_connected(
    server, keycloak, minsu, minsus_browser
):
    first, _answer = sign_in_by_provider()
    answer = connect(minsus_browser)
    assert "is connected to another account here" in answer.content.decode()
    assert list_connections(minsu) == []
    assert list_connections(get_signed_in_user(first)) == [("keycloak", "1001")]


@pytest.mark.parametrize("is_verified", [True, False])
def test_connecting_touches_nobody_who_has_the_same_address(
    is_verified, server, minsu, minsus_browser
):
    set_up(server, link_by_email=True)
    server.person["email_verified"] = is_verified
    owner = User.objects.create_user("owner", "hana@example.com", PASSWORD)
    key = services.create_key(user=owner)
    connect(minsus_browser)
    assert list_connections(minsu) == [("keycloak", "1001")]
    assert list_connections(owner) == []
    owner.refresh_from_db()
    assert owner.check_password(PASSWORD)
    headers = {"Authorization": f"Token {key}"}
    assert Client().get("/api/v1/me", headers=headers).status_code == 200


def test_an_account_outside_of_the_organization_is_not_connected(server, minsu, minsus_browser):
    set_up(server, domains="corp.example.com")
    answer = connect(minsus_browser)
    assert "no verified e-mail address of this organization" in answer.content.decode()
    assert list_connections(minsu) == []


@pytest.mark.parametrize("moment", ["before", "after"])
def test_a_server_that_is_down_leaves_one_signed_in_and_says_so(
    moment, server, keycloak, minsu, minsus_browser
):
    link = ask_to_connect(minsus_browser)
    address = f"/accounts/oidc/keycloak/login/{link}"
    if moment == "after":
        address = begin(minsus_browser, query=link)
    server.is_down = True
    answer = minsus_browser.get(address, follow=True)
    assert answer.redirect_chain[-1][0] == "/settings/sign-on"
    assert "Nothing was connected. Keycloak could not be reached" in answer.content.decode()
    assert get_signed_in_user(minsus_browser) == minsu
    assert list_connections(minsu) == []


def test_who_takes_long_at_the_server_proves_it_again_and_is_connected(
    server, keycloak, minsu, minsus_browser
):
    set_up(server, slug="second", name="Second")  # with the same client id
    back = begin(minsus_browser, query=ask_to_connect(minsus_browser))
    session = minsus_browser.session
    for record in session["account_authentication_methods"]:
        record["at"] -= 3600
    session.save()
    assert minsus_browser.get(back).url.startswith("/accounts/reauthenticate/")
    assert list_connections(minsu) == []
    minsus_browser.post("/accounts/reauthenticate/", {"password": PASSWORD})
    assert list_connections(minsu) == [("keycloak", "1001")]


def disconnect(browser, account):
    form = {"account": account.pk if account else 0}
    return browser.post("/settings/sign-on", form, follow=True).content.decode()


def test_a_connection_is_ended_by_hand(server, keycloak, minsu, minsus_browser):
    connect(minsus_browser)
    page = disconnect(minsus_browser, SocialAccount.objects.get(user=minsu))
    assert "The account is no longer connected." in page
    assert list_connections(minsu) == []
    browser, _answer = sign_in_by_provider()
    assert get_signed_in_user(browser) != minsu


def test_ending_a_connection_asks_for_the_password_first(server, keycloak, minsu, minsus_client):
    held = SocialAccount.objects.create(user=minsu, provider="keycloak", uid="1001")
    answer = minsus_client.post("/settings/sign-on", {"account": held.pk})
    assert answer.url.startswith("/accounts/reauthenticate/")
    minsus_client.post(answer.url, {"password": PASSWORD, "next": "/settings/sign-on"})
    assert list_connections(minsu) == []


def test_nobody_ends_the_connection_of_another(server, keycloak, minsus_browser):
    sign_in_by_provider()
    held = SocialAccount.objects.get()
    page = disconnect(minsus_browser, held)
    assert "hana@example.com" not in page
    assert SocialAccount.objects.filter(pk=held.pk).exists()
    made_up = disconnect(minsus_browser, None)
    assert re.findall('role="alert">[^<]+', page) == re.findall('role="alert">[^<]+', made_up)


def test_the_last_way_in_stays(server, keycloak, minsu, minsus_browser, settings):
    browser, _answer = sign_in_by_provider()
    page = disconnect(browser, SocialAccount.objects.get())
    assert "Set a password first." in page
    SocialAccount.objects.create(user=get_signed_in_user(browser), provider="gone", uid="1")
    page = disconnect(browser, SocialAccount.objects.get(provider="keycloak"))
    assert "Set a password first." in page
    server.person |= {"sub": "2002", "email": "kim@example.com"}
    connect(minsus_browser)
    settings.LOCAL_SIGN_IN = "administrators"
    page = disconnect(minsus_browser, SocialAccount.objects.get(user=minsu))
    assert "This server is your only way to sign in" in page
    assert SocialAccount.objects.filter(provider="keycloak").count() == 2


def test_a_connection_with_a_directory_is_shown_and_not_ended(
    server, keycloak, minsu, minsus_browser
):
    held = SocialAccount.objects.create(user=minsu, provider="ldap", uid="abc")
    page = minsus_browser.get("/settings/sign-on").content.decode()
    assert "Your administrator manages this connection." in page
    disconnect(minsus_browser, held)
    assert SocialAccount.objects.filter(pk=held.pk).exists()


def test_the_profile_leads_to_connections_where_there_are_servers(server, minsus_browser):
    assert "/settings/sign-on" not in minsus_browser.get("/settings/profile").content.decode()
    set_up(server)
    assert "/settings/sign-on" in minsus_browser.get("/settings/profile").content.decode()


@pytest.fixture
def hostile():
    with HostileServer() as server:
        yield server


@pytest.mark.parametrize("way", ["endless", "drip", "slow-head", "bomb", "redirect"])
@pytest.mark.parametrize("endpoint", ["token_endpoint", "jwks_uri", "userinfo_endpoint"])
def test_a_server_that_never_ends_or_leads_elsewhere_lets_nobody_in(
    way, endpoint, server, keycloak, hostile, monkeypatch
):
    if way not in {"bomb", "redirect"}:  # those end by themselves
        monkeypatch.setattr(sign_on, "ANSWER_SECONDS", 0.8)
    hostile.redirect_url = f"{hostile.url}/elsewhere"
    server.discovery = {endpoint: f"{hostile.url}/{way}"}
    began = time.monotonic()
    check_refusal(*sign_in_by_provider())
    assert time.monotonic() - began < 6
    assert [one[1] for one in hostile.requests] == [f"/{way}"]
    assert hostile.sent_bytes < 200 * 2**20


@pytest.mark.parametrize("way", ["endless", "drip", "redirect"])
def test_a_server_whose_first_answer_never_ends_is_told_in_words(
    way, keycloak, hostile, monkeypatch
):
    monkeypatch.setattr(sign_on, "ANSWER_SECONDS", 0.4)
    hostile.answers["/.well-known/openid-configuration"] = way
    SignOnServer.objects.update(issuer=hostile.url)
    page = make_browser().get("/accounts/oidc/keycloak/login/")
    assert page.status_code in {200, 401, 403}
    assert len(hostile.requests) == 1


@pytest.mark.parametrize("endpoint", ["token_endpoint", "jwks_uri", "userinfo_endpoint"])
def test_a_server_that_names_the_machines_own_surroundings_is_not_followed(
    endpoint, server, keycloak
):
    server.discovery = {endpoint: "http://169.254.169.254/latest/meta-data/"}
    began = time.monotonic()
    check_refusal(*sign_in_by_provider())
    assert time.monotonic() - began < 4
    reason = AuditEvent.objects.filter(action=Action.SIGN_IN_FAILED).get().details["reason"]
    assert "AddressForbidden" in reason


@pytest.mark.parametrize(
    "body",
    [
        b"[" * 100_000,
        b"{" * 100_000,
        b'{"access_token": {"a": 1}, "id_token": 7}',
        b"\xff\xfe",
        b"",
        f'{{"error": "invalid_client", "client_secret": "{oidc.CLIENT_SECRET}"}}'.encode(),
    ],
    ids=["deep", "deeper", "types", "no text", "empty", "secret"],
)
@pytest.mark.parametrize("headers", [{}, {"Content-Type": "application/json"}])
def test_what_a_server_says_instead_of_a_token_is_written_down_nowhere(
    body, headers, server, keycloak, hostile, caplog
):
    hostile.answers["/token"] = (400 if b"error" in body else 200, headers, body)
    server.discovery = {"token_endpoint": f"{hostile.url}/token"}
    check_refusal(*sign_in_by_provider())
    told = str(list(AuditEvent.objects.values_list("details", flat=True))) + caplog.text
    assert oidc.CLIENT_SECRET not in told
    assert "[[[" not in told
    assert ("invalid_client" in told) == (b"invalid_client" in body)


@pytest.mark.parametrize(
    "claims",
    [
        {"sub": "x" * 10_000},
        {"sub": ""},
        {"sub": 7},
        {"email": "hana\0@example.com"},
        {"preferred_username": "ha\0na"},
        {"name": "\ud800"},
    ],
    ids=["long", "empty", "number", "NUL in address", "NUL in name", "half a pair"],
)
def test_claims_that_cannot_be_kept_are_no_error_of_ours(claims, server, keycloak):
    server.person |= claims
    _browser, page = sign_in_by_provider()
    assert page.status_code in {200, 302, 401, 403}


@pytest.mark.parametrize(
    "claims",
    [
        {"email": f"{'h' * 400}@example.com"},
        {"email": ["hana@example.com"]},
        {"email": {"a": 1}},
        {"preferred_username": {"a": 1}},
        {"preferred_username": "x" * 100_000},
        {"name": ["x"] * 1000},
        {"groups": ["g" * 100_000] * 5},
        {"groups": {"a": 1}},
        {"groups": 7},
    ],
)
def test_claims_of_other_shapes_are_no_error_of_ours(claims, server):
    set_up(server, groups_claim="groups")
    server.person |= claims
    _browser, page = sign_in_by_provider()
    assert page.status_code in {200, 302, 401, 403}
