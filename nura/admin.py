"""Administration of users, and of the site as a whole."""

from allauth.account.decorators import secure_admin_login
from allauth.account.models import EmailAddress
from django.contrib import admin, messages
from django.contrib.auth.admin import UserAdmin as StockUserAdmin
from django.contrib.auth.models import Group, User
from django.db.models import Count, QuerySet
from django.http import HttpRequest
from django.utils.translation import gettext_lazy as _
from django.utils.translation import ngettext
from knox.models import AuthToken
from unfold.admin import ModelAdmin
from unfold.forms import AdminPasswordChangeForm, UserChangeForm, UserCreationForm

from nura.accounts import services

admin.site.site_header = "Nura"
admin.site.site_title = _("Nura administration")
admin.site.index_title = _("Administration")
# The one sign-in page, with its limits on attempts, for administrators too.
admin.site.login = secure_admin_login(admin.site.login)  # type: ignore[method-assign]

for model in (User, Group, AuthToken, EmailAddress):
    admin.site.unregister(model)


@admin.register(User)
class UserAdmin(StockUserAdmin[User], ModelAdmin):  # type: ignore[misc]
    """Users with what they have stored and asked."""

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
        keys = AuthToken.objects.filter(user__in=users.values("pk"))
        count, _by_model = keys.delete()
        text = ngettext("%(count)d key revoked.", "%(count)d keys revoked.", count)
        self.message_user(request, text % {"count": count}, messages.SUCCESS)
