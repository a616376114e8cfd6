"""`manage.py create_user`."""

from io import StringIO

import pytest
from django.contrib.auth.models import User
from django.core.management import CommandError, call_command
from django.test import Client
from knox.models import AuthToken

pytestmark = pytest.mark.django_db


def create_user(*arguments):
    out = StringIO()
    call_command("create_user", *arguments, stdout=out)
    return out.getvalue()


def test_the_key_is_all_that_is_printed():
    printed = create_user("hana", "--password", "p")
    key = printed.removesuffix("\n")
    assert key.isalnum()
    answer = Client().get("/api/v1/me", headers={"Authorization": f"Token {key}"})
    assert answer.json()["username"] == "hana"


def test_an_existing_name_gets_a_new_key_and_the_password():
    first = create_user("hana", "--password", "one")
    second = create_user("hana", "--password", "two")
    assert first != second
    assert User.objects.get().check_password("two")
    assert AuthToken.objects.count() == 2


def test_staff_is_given_on_request_and_not_taken_away():
    create_user("hana", "--password", "p")
    assert not User.objects.get().is_staff
    create_user("hana", "--password", "p", "--staff")
    create_user("hana", "--password", "p")
    assert User.objects.get().is_staff


@pytest.mark.parametrize("name", ["", "  ", "x" * 151, "a\0b"])
def test_an_impossible_name_is_refused(name):
    with pytest.raises(CommandError):
        create_user(name, "--password", "p")
    assert not User.objects.exists()
