"""Where sessions run: the provider port, providers, the link, and the bridge that runs inside."""
