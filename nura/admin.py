"""Administration of users, of the audit log, and of the site as a whole."""

from typing import Any

from allauth.account.decorators import secure_admin_login
from allauth.account.models import EmailAddress
from django.contrib import admin, messages
from django.contrib.auth.admin import UserAdmin as StockUserAdmin
from django.contrib.auth.models import Group, User
from django.db.models import Count, QuerySet
from django.http import HttpRequest, StreamingHttpResponse
from django.utils.translation import gettext_lazy as _
from django.utils.translation import ngettext
from knox.models import AuthToken
from unfold.decorators import action
from unfold.forms import AdminPasswordChangeForm, UserChangeForm, UserCreationForm

from documents.audit import Action, AuditEvent, record_event
from documents.oversight import AuditedAdmin
from nura.accounts import services
from nura.audit_export import make_export_response

admin.site.site_header = "Nura"
admin.site.site_title = _("Nura administration")
admin.site.index_title = _("Administration")
# The one sign-in page, with its limits on attempts, for administrators too.
admin.site.login = secure_admin_login(admin.site.login)  # type: ignore[method-assign]

for model in (User, Group, AuthToken, EmailAddress):
    admin.site.unregister(model)


RIGHTS = frozenset({"is_active", "is_staff", "is_superuser"})
PASSWORD_MESSAGE = [{"changed": {"fields": ["password"]}}]
"""What Django's form for a new password says that it changed."""


@admin.register(User)
class UserAdmin(StockUserAdmin[User], AuditedAdmin):  # type: ignore[misc]
    """Users with what they have stored and asked."""

    added_as = Action.ACCOUNT_CREATED
    changed_as = Action.ACCOUNT_CHANGED
    deleted_as = Action.ACCOUNT_DELETED

    form = UserChangeForm
    add_form = UserCreationForm
    change_password_form = AdminPasswordChangeForm
    list_display = ("username", "email", "document_count", "chat_count", "is_active", "is_staff")
    list_filter = ("is_active", "is_staff", "date_joined")
    search_fields = ("username", "email")
    readonly_fields = ("last_login", "date_joined")
    fieldsets = (
        (None, {"fields": ("username", "email", "password")}),
        (_("Permissions"), {"fields": ("is_active", "is_staff", "is_superuser")}),
        (_("Dates"), {"fields": ("last_login", "date_joined")}),
    )
    filter_horizontal = ()
    actions = ("revoke_keys",)

    def get_queryset(self, request: HttpRequest) -> QuerySet[User]:
        """Users with the counts shown in the list."""
        users: QuerySet[User] = super().get_queryset(request)
        return users.annotate(
            count_of_documents=Count("documents", distinct=True),
            count_of_chats=Count("chats", distinct=True),
        )

    def find_subject(self, row: User) -> User:
        """The account itself."""
        return row

    def save_model(self, request: HttpRequest, obj: User, form: Any, change: bool) -> None:
        """Save; what ends or gives rights is written down by its name."""
        super().save_model(request, obj, form, change)
        changed = set(form.changed_data) if change else set()
        if "is_active" in changed and not obj.is_active:
            record_event(Action.ACCOUNT_DEACTIVATED, actor=request.user, subject=obj, target=obj)
        if changed & RIGHTS:
            rights = {name: getattr(obj, name) for name in sorted(RIGHTS)}
            record_event(
                Action.RIGHTS_CHANGED,
                actor=request.user,
                subject=obj,
                target=obj,
                details=rights,
            )

    def log_change(self, request: HttpRequest, obj: Any, message: Any) -> Any:
        """A new password has a name of its own."""
        if message == PASSWORD_MESSAGE:
            record_event(Action.PASSWORD_CHANGED, actor=request.user, subject=obj, target=obj)
        return super().log_change(request, obj, message)

    def delete_model(self, request: HttpRequest, obj: User) -> None:
        """Delete with files."""
        services.delete_user(user=obj)

    def delete_queryset(self, request: HttpRequest, queryset: QuerySet[User]) -> None:
        """Delete users with their files."""
        for user in queryset:
            services.delete_user(user=user)

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

    list_display = ("at", "what", "actor_name", "subject_name", "target", "address")
    list_filter = (ActionFilter, "at")
    search_fields = ("actor_name", "subject_name", "target", "address", "request_id")
    date_hierarchy = "at"
    show_full_result_count = False
    actions_list = ("export",)
    fields = (
        *("at", "what", "actor_name", "actor_id", "subject_name", "subject_id"),
        *("target", "details", "address", "request_id"),
    )
    readonly_fields = fields

    @admin.display(description=_("action"), ordering="action")
    def what(self, event: AuditEvent) -> str:
        """The kind in words; one of another version as it is stored."""
        return str(dict(Action.choices).get(event.action, event.action))

    def has_add_permission(self, request: HttpRequest) -> bool:
        """The product writes it."""
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
        """The entries that the list shows, as a file; that it was taken is an entry too."""
        chosen = self.get_changelist_instance(request).get_queryset(request)
        filters = {name: request.GET[name] for name in sorted(request.GET)}
        record_event(
            Action.DATA_EXPORTED,
            actor=request.user,
            target="auditlog:jsonl",
            details={"filters": filters},
        )
        return make_export_response(request, chosen)
