"""Hiding secrets in JSON, log lines and tables."""
