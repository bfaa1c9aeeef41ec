"""Cores of agents: one module for each agent's own words, run by the bridge."""
