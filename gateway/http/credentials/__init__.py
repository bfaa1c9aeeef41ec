"""Credentials and configurations of users."""
