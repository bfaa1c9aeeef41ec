"""Logs, metrics, and the loop's watchdog."""
