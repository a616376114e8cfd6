"""Administration of users, of the audit log, and of the site as a whole."""

from functools import partial
from typing import Any, ClassVar, cast
from urllib.parse import urlsplit

from allauth.account.decorators import secure_admin_login
from allauth.account.models import EmailAddress
from allauth.mfa.models import Authenticator
from allauth.socialaccount.models import SocialAccount, SocialApp, SocialToken
from allauth.usersessions.models import UserSession
from django import forms
from django.conf import settings
from django.contrib import admin, messages
from django.contrib.auth.admin import UserAdmin as StockUserAdmin
from django.contrib.auth.models import Group, User
from django.db import transaction
from django.db.models import QuerySet
from django.http import HttpRequest, StreamingHttpResponse
from django.shortcuts import redirect
from django.urls import reverse
from django.utils import timezone
from django.utils.html import format_html
from django.utils.translation import gettext_lazy as _
from django.utils.translation import ngettext
from knox.models import AuthToken
from unfold.admin import StackedInline, TabularInline
from unfold.decorators import action
from unfold.forms import (
    AdminPasswordChangeForm,
    UnfoldReadOnlyPasswordHashWidget,
    UserChangeForm,
    UserCreationForm,
)
from unfold.widgets import (
    UnfoldAdminIntegerFieldWidget,
    UnfoldAdminPasswordWidget,
    UnfoldAdminSelectWidget,
)

from chats.models import Chat
from documents.admin import GroupQuotaInline, UserQuotaInline
from documents.administration import AuditedAdmin, MenuPlace, Section, count_rows, list_addresses
from documents.audit import Action, AuditEvent, make_export_response, record_event
from documents.errors import explain_code
from documents.models import Deletion, Document, LibraryMember
from documents.notices import announce_rights_change
from documents.secrets import seal_secret
from nura.accounts import services
from nura.accounts.deletion import delete_account
from nura.accounts.profile import may_administer
from nura.accounts.roles import (
    AccountRole,
    LastAdministrator,
    change_memberships,
    delete_group,
    get_role,
    is_administrator,
    is_auditor,
    may_enter,
    record_membership,
    require_other_administrator,
    set_role,
)
from nura.accounts.services import check_name
from nura.accounts.sign_on import SignOnFailed, end_former_connections, fetch_server_configuration
from nura.accounts.signup import (
    DEFAULT_DAYS,
    MAX_DAYS,
    build_path,
    create_invitation,
    mail_invitation,
    withdraw_invitation,
)
from nura.administration import (  # noqa: F401 - they register their pages
    accounts,
    operations,
    overview,
    quality,
    record,
)
from nura.housekeeping import OVERDUE
from nura.models import GroupDetails, Invitation, SignOnServer

admin.site.site_header = "Nura"
admin.site.site_title = _("Nura administration")
admin.site.index_title = _("Administration")
admin.site.extra_urls = list_addresses  # type: ignore[attr-defined] # unfold asks for it


def has_permission(request: HttpRequest) -> bool:
    """Whether the user is an administrator or auditor, with a second step if one is required."""
    return may_enter(request.user) and may_administer(request)


def ask_for_second_step(view: Any) -> Any:
    """Decorate the sign-in view: send users who lack the second step to its settings."""

    def guarded_view(request: HttpRequest, *arguments: Any, **options: Any) -> Any:
        if not may_enter(request.user):
            return view(request, *arguments, **options)
        if not may_administer(request):
            hint = _("The administration needs two-step sign-in. Set it up, or sign in with it.")
            messages.warning(request, hint)
            return redirect("accounts:two-step")
        return (
            redirect("admin:index")
            if is_auditor(request.user)
            else view(request, *arguments, **options)
        )

    return guarded_view


admin.site.has_permission = has_permission  # type: ignore[method-assign]
# Administrators use the same sign-in page, with its limits on attempts.
admin.site.login = ask_for_second_step(secure_admin_login(admin.site.login))  # type: ignore[method-assign]

ACCOUNT_PARTS = (AuthToken, EmailAddress, Authenticator, UserSession)
SIGN_ON_PARTS = (SocialAccount, SocialApp, SocialToken)  # servers are `SignOnServer`
for model in (User, Group, *ACCOUNT_PARTS, *SIGN_ON_PARTS):
    admin.site.unregister(model)


MEMBERS_A_PAGE = 50
PASSWORD_MESSAGE = [{"changed": {"fields": ["password"]}}]
"""The change message of Django's password form."""


class PasswordState(UnfoldReadOnlyPasswordHashWidget):  # type: ignore[misc]
    """Whether there is a password, and nothing of how it is stored."""

    def get_context(self, name: str, value: str, attrs: Any) -> dict[str, Any]:
        """The context with one entry."""
        context: dict[str, Any] = super().get_context(name, value, attrs)
        if len(context["summary"]) > 1:  # parts of the hash
            context["summary"] = [{"label": _("Set")}]
        return context


class NamedUserChangeForm(UserChangeForm):  # type: ignore[misc]
    """A user with the role; the name must not resemble another one."""

    role = forms.ChoiceField(
        label=_("Role"),
        choices=AccountRole.choices,
        required=False,
        widget=UnfoldAdminSelectWidget,
        help_text=_(
            "Administrators may open every page of the administration. Auditors read the audit log"
            " and the usage, and no contents."
        ),
    )

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.initial["role"] = get_role(self.instance)
        self.fields["password"].widget = PasswordState()

    def clean_role(self) -> AccountRole:
        """The role; unchanged if none is given."""
        return AccountRole(self.cleaned_data["role"] or get_role(self.instance))

    def clean(self) -> dict[str, Any]:
        """Refuse to demote or deactivate the last administrator."""
        cleaned: dict[str, Any] = super().clean()
        stays_administrator = cleaned.get("role") == AccountRole.ADMINISTRATOR and cleaned.get(
            "is_active"
        )
        if not stays_administrator and is_administrator(self.instance):
            try:
                require_other_administrator(excluding=[self.instance.pk])
            except LastAdministrator as error:
                raise forms.ValidationError(explain_code(error.code)) from error
        return cleaned

    def clean_username(self) -> str:
        """The name; checked only if changed."""
        name = str(self.cleaned_data["username"])
        if name != self.instance.username:
            check_name(name)
        return name


class NamedUserCreationForm(UserCreationForm):  # type: ignore[misc]
    """A new user; the name must not resemble another one."""

    def clean_username(self) -> str:
        """The name."""
        name = str(super().clean_username())
        check_name(name)
        return name


class RoleFilter(admin.SimpleListFilter):
    """Accounts of one role."""

    title = _("role")
    parameter_name = "role"

    def lookups(self, *_arguments: Any) -> list[tuple[str, Any]]:
        """All roles."""
        return list(AccountRole.choices)

    def queryset(self, request: HttpRequest, queryset: QuerySet[User]) -> Any:
        """Narrowed to the chosen role."""
        if self.value() == AccountRole.ADMINISTRATOR:
            return queryset.filter(is_staff=True)
        if self.value() not in AccountRole.values:
            return queryset
        return queryset.filter(is_staff=False, auditor__isnull=self.value() == AccountRole.USER)


@admin.register(User)
class UserAdmin(StockUserAdmin[User], AuditedAdmin):  # type: ignore[misc]
    """Users with what they have stored and asked."""

    navigation = MenuPlace(Section.PEOPLE, "group", 10, _("Users"))
    addition_action = Action.ACCOUNT_CREATED
    change_action = Action.ACCOUNT_CHANGED
    deletion_action = Action.ACCOUNT_DELETED

    form = NamedUserChangeForm
    add_form = NamedUserCreationForm
    change_password_form = AdminPasswordChangeForm
    list_display = ("username", "email", "role", "document_count", "chat_count", "is_active")
    list_filter = (RoleFilter, "is_active", "date_joined")
    search_fields = ("username", "email")
    readonly_fields = ("last_login", "date_joined")
    fieldsets = (
        (None, {"fields": ("username", "email", "password")}),
        (_("Permissions"), {"fields": ("is_active", "role", "groups")}),
        (_("Dates"), {"fields": ("last_login", "date_joined")}),
    )
    autocomplete_fields = ("groups",)
    inlines = (UserQuotaInline,)
    actions = ("revoke_keys", "end_two_step")

    def get_inlines(self, request: HttpRequest, obj: User | None) -> tuple[Any, ...]:
        """Quotas, once the account exists."""
        return self.inlines if obj else ()

    def get_queryset(self, request: HttpRequest) -> QuerySet[User]:
        """Users with the counts shown in the list."""
        users: QuerySet[User] = super().get_queryset(request)
        return users.select_related("auditor").annotate(
            count_of_documents=count_rows(Document.objects.all(), "owner"),
            count_of_chats=count_rows(Chat.objects.all(), "owner"),
        )

    def find_subject(self, row: User) -> User:
        """The account itself."""
        return row

    def save_model(self, request: HttpRequest, obj: User, form: Any, change: bool) -> None:
        """Save; changes of rights are audited as such."""
        super().save_model(request, obj, form, change)
        if not change:
            return
        actor = cast("User", request.user)
        set_role(user=obj, role=form.cleaned_data["role"], by=actor)
        if "is_active" in form.changed_data:
            if not obj.is_active:
                record_event(Action.ACCOUNT_DEACTIVATED, actor=actor, subject=obj, target=obj)
            details = {"is_active": obj.is_active}
            record_event(
                Action.RIGHTS_CHANGED, actor=actor, subject=obj, target=obj, details=details
            )
            announce_rights_change()

    def save_related(self, request: HttpRequest, form: Any, formsets: Any, change: bool) -> None:
        """Save; groups through their service, which audits them."""
        groups = form.cleaned_data.pop("groups", None) if change else None
        super().save_related(request, form, formsets, change)
        if groups is not None:
            old_groups = list(form.instance.groups.all())
            left = [group for group in old_groups if group not in groups]
            actor = cast("User", request.user)
            change_memberships(user=form.instance, join=groups, leave=left, by=actor)

    def get_deleted_objects(self, objs: Any, request: HttpRequest) -> Any:
        """What is deleted with the accounts; the last administrator is protected."""
        objects, counts, missing_permissions, protected = super().get_deleted_objects(objs, request)
        try:
            with transaction.atomic():
                require_other_administrator(excluding=[user.pk for user in objs])
        except LastAdministrator as error:
            protected = [*protected, explain_code(error.code)]
        return objects, counts, missing_permissions, protected

    def log_change(self, request: HttpRequest, obj: Any, message: Any) -> Any:
        """Audit a new password as such, and revoke the keys, which may be compromised."""
        if message == PASSWORD_MESSAGE:
            services.revoke_keys(user=obj, actor=request.user)
            record_event(Action.PASSWORD_CHANGED, actor=request.user, subject=obj, target=obj)
            announce_rights_change()
        return super().log_change(request, obj, message)

    def delete_model(self, request: HttpRequest, obj: User) -> None:
        """Delete with files."""
        delete_account(user=obj)
        announce_rights_change()

    def delete_queryset(self, request: HttpRequest, queryset: QuerySet[User]) -> None:
        """Delete users with their files."""
        for user in queryset:
            delete_account(user=user)
        announce_rights_change()

    @admin.display(description=_("role"))
    def role(self, user: User) -> str:
        """The account's role."""
        if user.is_staff:
            return str(AccountRole.ADMINISTRATOR.label)
        return str((AccountRole.AUDITOR if hasattr(user, "auditor") else AccountRole.USER).label)

    @admin.display(description=_("documents"), ordering="count_of_documents")
    def document_count(self, user: User) -> int:
        """How many files are stored."""
        count: int = getattr(user, "count_of_documents", 0)
        return count

    @admin.display(description=_("chats"), ordering="count_of_chats")
    def chat_count(self, user: User) -> int:
        """How many conversations, deleted ones included."""
        count: int = getattr(user, "count_of_chats", 0)
        return count

    @admin.action(description=_("Revoke all API keys"), permissions=("change",))
    def revoke_keys(self, request: HttpRequest, users: QuerySet[User]) -> None:
        """End every key of the chosen users."""
        count = 0
        for user in users:
            count += services.revoke_keys(user=user, actor=request.user)
        text = ngettext("%(count)d key revoked.", "%(count)d keys revoked.", count)
        self.message_user(request, text % {"count": count}, messages.SUCCESS)

    @admin.action(description=_("End two-step sign-in"), permissions=("change",))
    def end_two_step(self, request: HttpRequest, users: QuerySet[User]) -> None:
        """Let users who lost phone and recovery codes sign in with the password alone."""
        for user in users:
            if Authenticator.objects.filter(user=user).delete()[0]:
                details = {"change": "ended_by_administrator"}
                record_event(
                    Action.SECOND_STEP_CHANGED, actor=request.user, subject=user, details=details
                )
        self.message_user(request, _("Two-step sign-in was turned off for them."), messages.SUCCESS)


class GroupDetailsForm(forms.ModelForm[GroupDetails]):
    """Details of a group; its name in the directory must be unique."""

    class Meta:
        """All of it."""

        model = GroupDetails
        fields = ("description", "directory_name")

    def clean_directory_name(self) -> str:
        """The name."""
        name = str(self.cleaned_data["directory_name"]).strip()
        others = GroupDetails.objects.exclude(pk=self.instance.pk)
        if name and others.filter(directory_name__iexact=name).exists():
            raise forms.ValidationError(_("Another group has this name in the directory."))
        return name


class GroupDetailsInline(StackedInline):  # type: ignore[misc] # unfold has no types
    """Details of the group."""

    model = GroupDetails
    form = GroupDetailsForm
    can_delete = False


class MembershipForm(forms.ModelForm[Any]):
    """A member of the group; cannot be changed to another user, only removed, which is audited."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.fields["user"].disabled = self.instance.pk is not None


class MembershipInline(TabularInline):  # type: ignore[misc] # unfold has no types
    """The members of the group."""

    model = User.groups.through
    form = MembershipForm
    verbose_name, verbose_name_plural = _("member"), _("members")
    autocomplete_fields = ("user",)
    ordering = ("user__username",)
    extra = 0
    per_page = MEMBERS_A_PAGE

    def formfield_for_foreignkey(self, db_field: Any, request: HttpRequest, **kwargs: Any) -> Any:
        """Label the field as elsewhere: Django's own table has no translation."""
        return super().formfield_for_foreignkey(db_field, request, **kwargs | {"label": _("User")})

    def has_view_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """Whoever may see the group."""
        return request.user.has_perm("auth.view_group")


@admin.register(Group)
class GroupAdmin(AuditedAdmin):
    """Groups with their members, quotas and libraries."""

    navigation = MenuPlace(Section.PEOPLE, "groups", 20)
    list_display = ("name", "description", "member_count", "directory_name")
    search_fields = ("name", "details__description", "details__directory_name")
    ordering = ("name",)
    fields = ("name", "libraries")
    readonly_fields = ("libraries",)
    inlines = (GroupDetailsInline, GroupQuotaInline, MembershipInline)

    def get_queryset(self, request: HttpRequest) -> QuerySet[Group]:
        """With the number of members, which the list shows."""
        rows: QuerySet[Group] = super().get_queryset(request)
        return rows.select_related("details").annotate(
            count_of_members=count_rows(User.groups.through.objects.all(), "group")
        )

    def save_formset(self, request: HttpRequest, form: Any, formset: Any, change: bool) -> None:
        """Save; changes of membership are audited and effective at once."""
        super().save_formset(request, form, formset, change)
        if formset.model is not User.groups.through:
            return
        actor = cast("User", request.user)
        for row in formset.new_objects:
            record_membership(user=row.user, group=row.group, is_member=True, by=actor)
        for row in formset.deleted_objects:
            record_membership(user=row.user, group=row.group, is_member=False, by=actor)

    def delete_model(self, request: HttpRequest, obj: Group) -> None:
        """Delete a group; each member's leaving is audited first."""
        delete_group(group=obj, by=cast("User", request.user))

    def delete_queryset(self, request: HttpRequest, queryset: QuerySet[Group]) -> None:
        """Delete several."""
        for group in queryset:
            delete_group(group=group, by=cast("User", request.user))

    @admin.display(description=_("libraries"))
    def libraries(self, group: Group) -> str:
        """The libraries its members may read, with their roles."""
        memberships = LibraryMember.objects.filter(group=group.pk).select_related("library")
        names = [
            f"{membership.library.name} ({membership.get_role_display()})"
            for membership in memberships
        ]
        return ", ".join(sorted(names)) or "–"

    @admin.display(description=_("members"), ordering="count_of_members")
    def member_count(self, group: Group) -> int:
        """How many are in it."""
        count: int = getattr(group, "count_of_members", 0)
        return count

    @admin.display(description=_("description"))
    def description(self, group: Group) -> str:
        """What it is for."""
        return group.details.description if hasattr(group, "details") else ""

    @admin.display(description=_("name in the directory"))
    def directory_name(self, group: Group) -> str:
        """Its name in the directory."""
        return group.details.directory_name if hasattr(group, "details") else ""


class ActionFilter(admin.SimpleListFilter):
    """Entries of one kind."""

    title = _("action")
    parameter_name = "action"

    def lookups(self, *_arguments: Any) -> list[tuple[str, Any]]:
        """All kinds."""
        return list(Action.choices)

    def queryset(self, request: HttpRequest, queryset: QuerySet[AuditEvent]) -> Any:
        """Narrowed to the chosen kind."""
        return queryset.filter(action=self.value()) if self.value() else queryset


@admin.register(AuditEvent)
class AuditEventAdmin(AuditedAdmin):
    """The audit log, to read, search and export; nobody changes it."""

    navigation = MenuPlace(Section.RECORD, "policy", 10, _("Audit log"))
    list_display = ("at", "what", "actor_name", "subject_name", "target", "address")
    list_filter = (ActionFilter, "at")
    search_fields = ("actor_name", "subject_name", "target", "address", "request_id")
    date_hierarchy = "at"
    actions_list = ("export",)
    fields = (
        *("at", "what", "actor_name", "actor_id", "subject_name", "subject_id"),
        *("target", "details", "address", "request_id"),
    )
    readonly_fields = fields

    @admin.display(description=_("action"), ordering="action")
    def what(self, event: AuditEvent) -> str:
        """The action in words; unknown ones of other versions as stored."""
        return str(dict(Action.choices).get(event.action, event.action))

    def has_add_permission(self, request: HttpRequest) -> bool:
        """Nura writes it."""
        return False

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """Never: the database refuses it as well."""
        return False

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """Never: the database refuses it as well."""
        return False

    @action(  # type: ignore[untyped-decorator] # unfold has no types
        description=_("Export as JSON Lines"),
        url_path="export",
        icon="download",
        permissions=["view"],
    )
    def export(self, request: HttpRequest) -> StreamingHttpResponse:
        """Export the listed entries; the export itself is audited."""
        events = self.get_changelist_instance(request).get_queryset(request)
        filters = {name: request.GET[name] for name in sorted(request.GET)}
        record_event(
            Action.DATA_EXPORTED,
            actor=request.user,
            target="auditlog:jsonl",
            details={"filters": filters},
        )
        return make_export_response(request, events)


COPIED = '{} <code class="nu-copied">{}</code>'
"""A hint with something to copy: a click selects all of it."""


class InvitationForm(forms.ModelForm[Invitation]):
    """Address, number of accounts, groups and lifetime."""

    days = forms.IntegerField(
        label=_("Valid for days"),
        min_value=1,
        max_value=MAX_DAYS,
        initial=DEFAULT_DAYS,
        widget=UnfoldAdminIntegerFieldWidget,
    )

    class Meta:
        """The fields to fill in; the rest is generated."""

        model = Invitation
        fields = ("email", "max_uses", "groups")
        help_texts = {
            "email": _("The account's address. Leave empty to let whoever has the link choose."),
            "max_uses": _("How many people may create an account with the link."),
        }

    def clean(self) -> dict[str, Any]:
        """An invitation with an address is for one account."""
        cleaned: dict[str, Any] = super().clean() or {}
        if cleaned.get("email") and cleaned.get("max_uses", 1) > 1:
            self.add_error("max_uses", _("An invitation for an address is for one account."))
        return cleaned


@admin.register(Invitation)
class InvitationAdmin(AuditedAdmin):
    """Links by which people create their accounts; a link is shown once."""

    navigation = MenuPlace(Section.PEOPLE, "mail", 30)
    change_action = deletion_action = Action.INVITATION_CHANGED

    form = InvitationForm
    list_display = ("__str__", "used", "joined_groups", "created_by", "expires_at", "used_by")
    list_filter = ("used_at", "groups")
    autocomplete_fields = ("groups",)
    search_fields = ("email",)
    actions = ("withdraw",)

    def log_addition(self, request: HttpRequest, obj: Any, message: Any) -> Any:
        """Nothing: the service has audited it."""

    def get_fields(self, request: HttpRequest, obj: Any = None) -> Any:
        """What is to be filled in; of an existing invitation, what has become of it."""
        return ("email", *self.list_display[1:]) if obj else super().get_fields(request, obj)

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """Never: the link may have been sent."""
        return False

    def save_model(self, request: HttpRequest, obj: Any, form: Any, change: bool) -> None:
        """Create it, show its link once, and mail it if there is an address and mail works."""
        invitation, secret = create_invitation(
            by=cast("User", request.user),
            email=obj.email,
            days=form.cleaned_data["days"],
            max_uses=form.cleaned_data["max_uses"],
            groups=list(form.cleaned_data["groups"]),
        )
        obj.pk, obj.created_at, obj.expires_at = (
            invitation.pk,
            invitation.created_at,
            invitation.expires_at,
        )
        link = request.build_absolute_uri(build_path(secret))
        hint = _("The link, which will not be shown again:")
        self.message_user(request, format_html(COPIED, hint, link), messages.WARNING)
        if invitation.email and settings.MAIL_WORKS:
            mail_invitation(invitation, link)

    def get_queryset(self, request: HttpRequest) -> QuerySet[Invitation]:
        """With the groups, which the list shows."""
        rows: QuerySet[Invitation] = super().get_queryset(request)
        return rows.prefetch_related("groups")

    @admin.display(description=_("used"))
    def used(self, invitation: Invitation) -> str:
        """Accounts created of those allowed."""
        uses = max(invitation.uses, 1 if invitation.used_at else 0)
        return f"{uses} / {invitation.max_uses}"

    @admin.display(description=_("groups"))
    def joined_groups(self, invitation: Invitation) -> str:
        """The groups that accounts join."""
        return ", ".join(group.name for group in invitation.groups.all())

    @admin.action(description=_("Withdraw"), permissions=("delete",))
    def withdraw(self, request: HttpRequest, invitations: QuerySet[Invitation]) -> None:
        """Withdraw open invitations."""
        by = cast("User", request.user)
        count = sum(withdraw_invitation(invitation=invitation, by=by) for invitation in invitations)
        text = ngettext(
            "%(count)d invitation withdrawn.", "%(count)d invitations withdrawn.", count
        )
        self.message_user(request, text % {"count": count}, messages.SUCCESS)


class ErasureFilter(admin.SimpleListFilter):
    """Deletions by whether their copies have been erased."""

    title = _("copies")
    parameter_name = "state"

    def lookups(self, *_arguments: Any) -> list[tuple[str, Any]]:
        """The states."""
        return [
            ("waiting", _("Waiting to be erased")),
            ("overdue", _("Overdue")),
            ("erased", _("Erased")),
        ]

    def queryset(self, request: HttpRequest, queryset: QuerySet[Deletion]) -> QuerySet[Deletion]:
        """Narrowed to the chosen state."""
        if self.value() == "erased":
            return queryset.exclude(erased_at=None)
        if self.value() == "waiting":
            return queryset.filter(erased_at=None)
        if self.value() == "overdue":
            return queryset.filter(erased_at=None, due_at__lt=timezone.now() - OVERDUE)
        return queryset


@admin.register(Deletion)
class DeletionAdmin(AuditedAdmin):
    """What was deleted, and what of it has yet to be erased."""

    navigation = MenuPlace(Section.RECORD, "delete_sweep", 40)
    list_display = ("kind", "key", "deleted_at", "due_at", "erased_at")
    list_filter = (ErasureFilter, "kind", "deleted_at")
    search_fields = ("key",)
    ordering = ("-deleted_at",)
    fields = (*list_display, "receipt")
    readonly_fields = fields

    def has_add_permission(self, request: HttpRequest) -> bool:
        """The product writes it."""
        return False

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """Never."""
        return False

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """Never: a restore repeats the deletions recorded here."""
        return False


class SignOnServerForm(forms.ModelForm[SignOnServer]):
    """A sign-on server; its client secret is stored and never shown."""

    secret = forms.CharField(
        label=_("client secret"),
        required=False,
        strip=True,
        widget=UnfoldAdminPasswordWidget(attrs={"autocomplete": "off"}),
        help_text=_("Stored encrypted and not shown again. Leave empty to keep it."),
    )

    class Meta:
        """All fields but the sealed secret."""

        model = SignOnServer
        fields = (
            *("name", "slug", "issuer", "client_id", "is_active", "sign_up", "domains"),
            *("link_by_email", "vouches_for_email", "groups_claim", "administrators", "auditors"),
        )
        field_classes: ClassVar[dict[str, Any]] = {
            "issuer": partial(forms.URLField, assume_scheme="https")
        }

    def clean_issuer(self) -> str:
        """The address: https, or on this machine."""
        issuer = str(self.cleaned_data["issuer"]).removesuffix("/.well-known/openid-configuration")
        parts = urlsplit(issuer)
        if parts.scheme != "https" and parts.hostname not in {"localhost", "127.0.0.1", "::1"}:
            raise forms.ValidationError(_("The address must begin with https://."))
        return issuer

    def save(self, commit: bool = True) -> SignOnServer:
        """With the new secret, if there is one."""
        if secret := self.cleaned_data["secret"]:
            self.instance.sealed_secret = seal_secret(secret)
        server: SignOnServer = super().save(commit)
        return server


@admin.register(SignOnServer)
class SignOnServerAdmin(AuditedAdmin):
    """Servers by which people sign in."""

    navigation = MenuPlace(Section.PEOPLE, "key", 40)
    form = SignOnServerForm
    list_display = ("name", "issuer", "sign_up", "is_active")
    prepopulated_fields: ClassVar[dict[str, Any]] = {"slug": ("name",)}
    fieldsets = (
        (None, {"fields": ("name", "slug", "issuer", "client_id", "secret", "is_active")}),
        (
            _("Accounts"),
            {"fields": ("sign_up", "domains", "link_by_email", "vouches_for_email")},
        ),
        (_("Groups and roles"), {"fields": ("groups_claim", "administrators", "auditors")}),
    )

    def get_readonly_fields(self, request: HttpRequest, obj: Any = None) -> tuple[str, ...]:
        """The short name, once accounts may refer to it."""
        return ("slug",) if obj else ()

    def get_prepopulated_fields(self, request: HttpRequest, obj: Any = None) -> dict[str, Any]:
        """Only for a new server."""
        return {} if obj else self.prepopulated_fields

    def save_model(self, request: HttpRequest, obj: Any, form: Any, change: bool) -> None:
        """Save; show the redirect address, and whether the server responds."""
        super().save_model(request, obj, form, change)
        if not change:
            end_former_connections(slug=obj.slug, actor=cast("User", request.user))
        path = reverse("openid_connect_callback", args=[obj.slug])
        hint = _("Allow this redirect address at the server:")
        address = request.build_absolute_uri(path)
        self.message_user(request, format_html(COPIED, hint, address), messages.INFO)
        try:
            fetch_server_configuration(obj.issuer)
        except SignOnFailed as error:
            problem = _("The server does not answer as it should: %(error)s") % {"error": error}
            self.message_user(request, problem, messages.WARNING)
        else:
            self.message_user(request, _("The server answers."), messages.SUCCESS)
