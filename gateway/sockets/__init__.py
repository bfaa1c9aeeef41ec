"""WebSocket endpoints and the viewers they feed."""
