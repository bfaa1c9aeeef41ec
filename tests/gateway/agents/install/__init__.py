"""Tests of gateway/agents/install."""
