"""Accounts: sign-up and sign-in by allauth, API keys by knox, usage of one user."""
