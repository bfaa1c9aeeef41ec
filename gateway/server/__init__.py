"""The web server and its guards: connections, frames, admission, liveness."""
