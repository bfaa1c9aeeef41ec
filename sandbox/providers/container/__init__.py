"""Sandboxes in containers of an engine on this host: Docker Engine, or Podman."""
