"""Management commands of the installation."""
