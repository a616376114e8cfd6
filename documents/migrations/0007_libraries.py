"""Libraries, their members, and the library of a document."""

import uuid

import django.db.models.deletion
from django.conf import settings
from django.db import migrations, models


class Migration(migrations.Migration):
    """Only adds."""

    dependencies = [
        ("auth", "0012_alter_user_first_name_max_length"),
        ("documents", "0006_connected_models"),
        migrations.swappable_dependency(settings.AUTH_USER_MODEL),
    ]

    operations = [
        migrations.CreateModel(
            name="Library",
            fields=[
                (
                    "id",
                    models.UUIDField(
                        default=uuid.uuid4, editable=False, primary_key=True, serialize=False
                    ),
                ),
                ("name", models.CharField(max_length=100, verbose_name="name")),
                (
                    "description",
                    models.CharField(
                        blank=True, default="", max_length=1000, verbose_name="description"
                    ),
                ),
                ("created_at", models.DateTimeField(auto_now_add=True, verbose_name="created at")),
                ("updated_at", models.DateTimeField(auto_now=True, verbose_name="changed at")),
            ],
            options={
                "verbose_name": "library",
                "verbose_name_plural": "libraries",
                "ordering": ("name", "id"),
            },
        ),
        migrations.CreateModel(
            name="LibraryMember",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                (
                    "role",
                    models.CharField(
                        choices=[
                            ("reader", "Reader"),
                            ("contributor", "Contributor"),
                            ("manager", "Manager"),
                        ],
                        default="reader",
                        max_length=11,
                        verbose_name="role",
                    ),
                ),
                ("created_at", models.DateTimeField(auto_now_add=True, verbose_name="created at")),
            ],
            options={
                "verbose_name": "member",
                "verbose_name_plural": "members",
                "ordering": ("library", "pk"),
            },
        ),
        migrations.AddField(
            model_name="document",
            name="moved_at",
            field=models.DateTimeField(editable=False, null=True),
        ),
        migrations.AddField(
            model_name="document",
            name="library",
            field=models.ForeignKey(
                blank=True,
                db_index=False,
                null=True,
                on_delete=django.db.models.deletion.PROTECT,
                related_name="documents",
                to="documents.library",
                verbose_name="library",
            ),
        ),
        migrations.AddIndex(
            model_name="document",
            index=models.Index(
                condition=models.Q(("library__isnull", False)),
                fields=["library", "-created_at"],
                name="document_of_library",
            ),
        ),
        migrations.AddIndex(
            model_name="document",
            index=models.Index(
                condition=models.Q(("library__isnull", False)),
                fields=["library", "sha256"],
                name="document_same_in_library",
            ),
        ),
        migrations.AddIndex(
            model_name="document",
            index=models.Index(
                condition=models.Q(("moved_at__isnull", False)),
                fields=["moved_at"],
                name="document_moved",
            ),
        ),
        migrations.AddField(
            model_name="librarymember",
            name="group",
            field=models.ForeignKey(
                blank=True,
                null=True,
                on_delete=django.db.models.deletion.CASCADE,
                related_name="library_memberships",
                to="auth.group",
                verbose_name="group",
            ),
        ),
        migrations.AddField(
            model_name="librarymember",
            name="library",
            field=models.ForeignKey(
                db_index=False,
                on_delete=django.db.models.deletion.CASCADE,
                related_name="members",
                to="documents.library",
            ),
        ),
        migrations.AddField(
            model_name="librarymember",
            name="user",
            field=models.ForeignKey(
                blank=True,
                null=True,
                on_delete=django.db.models.deletion.CASCADE,
                related_name="library_memberships",
                to=settings.AUTH_USER_MODEL,
                verbose_name="account",
            ),
        ),
        migrations.AddConstraint(
            model_name="librarymember",
            constraint=models.CheckConstraint(
                condition=models.Q(
                    ("user__isnull", True), ("group__isnull", True), _connector="XOR"
                ),
                name="user_or_group",
            ),
        ),
        migrations.AddConstraint(
            model_name="librarymember",
            constraint=models.UniqueConstraint(
                fields=("library", "user"), name="one_membership_a_user"
            ),
        ),
        migrations.AddConstraint(
            model_name="librarymember",
            constraint=models.UniqueConstraint(
                fields=("library", "group"), name="one_membership_a_group"
            ),
        ),
    ]
