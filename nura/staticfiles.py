"""Static files under names that carry their content, so that browsers keep them for ever and never mix versions."""

from whitenoise.storage import CompressedManifestStaticFilesStorage


class HashedStaticFiles(CompressedManifestStaticFilesStorage):  # type: ignore[misc]
    """Also rewrites the `import` lines of our script modules: an old module never loads a new one."""

    support_js_module_import_aggregation = True
