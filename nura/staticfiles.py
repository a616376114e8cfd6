"""Static files under names that carry their content.

Browsers keep them for ever and never mix versions.
"""

from whitenoise.storage import CompressedManifestStaticFilesStorage


class HashedStaticFiles(CompressedManifestStaticFilesStorage):  # type: ignore[misc]
    """Rewrites the imports of our script modules too: an old one never loads a new one."""

    support_js_module_import_aggregation = True
