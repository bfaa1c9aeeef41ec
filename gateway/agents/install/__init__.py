"""Agents brought to this machine: by npm, at one version, for `holdfast agents install`."""
